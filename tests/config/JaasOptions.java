import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;

/** For each line of base64, a login configuration: its module and options as Kafka reads them, in base64, or "refused". */
public class JaasOptions {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, false, "US-ASCII");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String text = new String(Base64.getDecoder().decode(line), StandardCharsets.UTF_8);
            out.println(read(text));
        }
        out.flush();
    }

    private static String read(String text) {
        List<AppConfigurationEntry> entries;
        try {
            entries = JaasContext.loadClientContext(Map.of("sasl.jaas.config", new Password(text))).configurationEntries();
        } catch (RuntimeException refused) {
            return "refused";
        }
        Map<String, String> options = new TreeMap<>();
        entries.get(0).getOptions().forEach((name, value) -> {
            if (name != null) {
                options.put(name, (String) value);
            }
        });
        StringBuilder found = new StringBuilder(encoded(entries.get(0).getLoginModuleName()));
        options.forEach((name, value) -> found.append(' ').append(encoded(name)).append('=').append(encoded(value)));
        return found.toString();
    }

    private static String encoded(String text) {
        return "'" + Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_16BE)) + "'";
    }
}
