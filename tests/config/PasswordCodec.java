import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.security.PasswordEncoder;

/**
 * Arguments: secret, key factory or "", cipher, key length, iterations, all text in base64. For each line "decode TEXT" or
 * "encode TEXT", with the text in base64: what Kafka makes of it in base64, or "refused".
 */
public class PasswordCodec {
    public static void main(String[] arguments) throws Exception {
        String factory = text(arguments[1]);
        PasswordEncoder encoder = PasswordEncoder.encrypting(new Password(text(arguments[0])), factory.isEmpty() ? null : factory,
            text(arguments[2]), Integer.parseInt(arguments[3]), Integer.parseInt(arguments[4]));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, false, "US-ASCII");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            try {
                String given = words.length > 1 ? text(words[1]) : "";
                String made = words[0].equals("encode") ? encoder.encode(new Password(given)) : encoder.decode(given).value();
                out.println("=" + Base64.getEncoder().encodeToString(made.getBytes(StandardCharsets.UTF_8)));
            } catch (Exception refused) {
                out.println("refused");
            }
        }
        out.flush();
    }

    private static String text(String encoded) {
        return new String(Base64.getDecoder().decode(encoded), StandardCharsets.UTF_8);
    }
}
