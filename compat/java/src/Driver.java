import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.common.utils.AppInfoParser;

/** The driver of Apache Kafka's Java client: `Driver RECORDS.JSON HOST:PORT,... [FEATURE ...]` prints a line of JSON per feature, or per case of COMPAT_SECURITY. */
public final class Driver {
    private static final int LIMIT_S = 240;

    private static Map<String, Feature> features() {
        var all = new LinkedHashMap<String, Feature>();
        all.put("topics", AdminFeatures::topics);
        for (var codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) all.put(codec, RecordFeatures.codec(codec));
        all.put("acks", RecordFeatures::acks);
        all.put("idempotence", RecordFeatures::idempotence);
        all.put("group", GroupFeatures::group);
        all.put("eager", GroupFeatures::eager);
        all.put("cooperative", GroupFeatures::cooperative);
        all.put("static", GroupFeatures::staticMember);
        all.put("offsets", RecordFeatures::offsets);
        all.put("delete_records", RecordFeatures::deleteRecords);
        all.put("configs", AdminFeatures::configs);
        all.put("groups", AdminFeatures::groups);
        all.put("reset", AdminFeatures::reset);
        all.put("topic_ids", LifeFeatures::topicIds);
        all.put("long_poll", RecordFeatures::longPoll);
        all.put("large", RecordFeatures::large);
        all.put("reconnect", LifeFeatures::reconnect);
        all.put("commit", TransactionFeatures::commit);
        all.put("abort", TransactionFeatures::abort);
        all.put("read_committed", TransactionFeatures::readCommitted);
        all.put("txn_offsets", TransactionFeatures::offsets);
        all.put("fencing", TransactionFeatures::fencing);
        return all;
    }

    public static void main(String[] arguments) throws Exception {
        Sample.load(Path.of(arguments[0]));
        var features = features();
        var wanted = arguments.length > 2 ? Arrays.asList(arguments).subList(2, arguments.length) : List.copyOf(features.keySet());
        var version = AppInfoParser.getVersion();
        print("\"client\": \"Java\", \"version\": " + quoted(version));
        var cases = System.getenv("COMPAT_SECURITY");
        if (cases != null) {
            for (var one : Secured.load(Path.of(cases))) attempt(one.name(), (cluster, topic) -> one.exchange(), null, "");
            System.exit(0);
        }
        var cluster = new Cluster(arguments[1]);
        for (var name : wanted) {
            var topic = "compat-java-" + name + "-" + System.currentTimeMillis();
            attempt(name, features.getOrDefault(name, (one, other) -> {
                throw new Absent("the driver does not know this feature");
            }), cluster, topic);
        }
        System.exit(0); // resources that a failed feature left open
    }

    private static void attempt(String name, Feature feature, Cluster cluster, String topic) {
        var executor = Executors.newSingleThreadExecutor(work -> {
            var thread = new Thread(work, name);
            thread.setDaemon(true);
            return thread;
        });
        var ok = "false";
        var detail = "";
        var attempt = executor.submit(() -> {
            feature.run(cluster, topic);
            return null;
        });
        try {
            attempt.get(LIMIT_S, TimeUnit.SECONDS);
            ok = "true";
        } catch (ExecutionException problem) {
            var cause = problem.getCause() instanceof ExecutionException inner ? inner.getCause() : problem.getCause();
            if (cause instanceof Absent) {
                ok = "null";
                detail = cause.getMessage();
            } else {
                cause.printStackTrace();
                detail = Secured.text(cause);
            }
        } catch (TimeoutException | InterruptedException late) {
            attempt.cancel(true);
            detail = "not done after " + LIMIT_S + " s";
        }
        executor.shutdownNow();
        print("\"feature\": " + quoted(name) + ", \"ok\": " + ok + ", \"detail\": " + quoted(detail));
    }

    /** A line of JSON: the members of an object. */
    static void print(String members) {
        var line = ("{" + members + "}\n").getBytes(StandardCharsets.UTF_8);
        System.out.write(line, 0, line.length);
        System.out.flush();
    }

    private static String quoted(String text) {
        var made = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') made.append('\\').append(c);
            else if (c < ' ') made.append(String.format("\\u%04x", (int) c));
            else made.append(c);
        }
        return made.append('"').toString();
    }
}
