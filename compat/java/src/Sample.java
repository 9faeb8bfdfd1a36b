import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;

/** A record as it is sent and as it is read, with partition and offset; time in milliseconds. */
record Sample(int partition, long offset, long time, byte[] key, byte[] value, List<Header> headers) {
    static final int PARTITIONS = 3;
    static final int COUNT = 330;
    static final long BASE_TIME = 1_700_000_000_000L;
    static final long STEP_MS = 100;

    private static final Pattern ENTRY = Pattern.compile(
        "\"key\": (null|\"[^\"]*\"), \"value\": (null|\"[^\"]*\"), \"repeat\": (\\d+), \"headers\": \\[(.*)\\]\\}");
    private static final Pattern HEADER = Pattern.compile("\\[\"([^\"]*)\", \"([^\"]*)\"\\]");
    private static final List<Sample> ENTRIES = new ArrayList<>();

    /** Read records.json, which has one entry per line. */
    static void load(Path path) throws Exception {
        for (var line : Files.readAllLines(path)) {
            var entry = ENTRY.matcher(line);
            if (!entry.find()) continue;
            var headers = new ArrayList<Header>();
            var header = HEADER.matcher(entry.group(4));
            while (header.find()) headers.add(new RecordHeader(header.group(1), Base64.getDecoder().decode(header.group(2))));
            var value = decoded(entry.group(2));
            ENTRIES.add(new Sample(0, 0, 0, decoded(entry.group(1)), value == null ? null : repeated(value, Integer.parseInt(entry.group(3))),
                                   headers));
        }
        Check.that(ENTRIES.size() > 5, path + " has no entries");
    }

    /** The first sample records, in the order in which they are sent, each with the offset that it must get. */
    static List<Sample> samples(int count) {
        var made = new ArrayList<Sample>();
        for (int i = 0; i < count; i++) {
            var entry = ENTRIES.get(i % ENTRIES.size());
            made.add(new Sample(i % PARTITIONS, i / PARTITIONS, BASE_TIME + STEP_MS * i, entry.key, entry.value, entry.headers));
        }
        return made;
    }

    static Sample of(ConsumerRecord<byte[], byte[]> read) {
        return new Sample(read.partition(), read.offset(), read.timestamp(), read.key(), read.value(), List.of(read.headers().toArray()));
    }

    ProducerRecord<byte[], byte[]> to(String topic) {
        return new ProducerRecord<>(topic, partition, time, key, value, headers);
    }

    /** Check that exactly the expected records were read, in the order of each partition. */
    static void check(List<Sample> read, List<Sample> expected) {
        Map<String, Sample> wanted = new TreeMap<>();
        for (var sample : expected) wanted.put(sample.place(), sample);
        var last = new HashMap<Integer, Long>();
        for (var found : read) {
            var before = last.put(found.partition, found.offset);
            Check.that(before == null || before < found.offset, found.place() + " came after offset " + before);
            var want = wanted.remove(found.place());
            Check.that(want != null, found.place() + " is unexpected");
            Check.equal(found.time, want.time, "timestamp of " + found.place());
            Check.that(Arrays.equals(found.key, want.key), "other key at " + found.place() + ": " + text(found.key));
            Check.that(Arrays.equals(found.value, want.value), "other value at " + found.place() + ": " + text(found.value));
            Check.equal(headersText(found), headersText(want), "headers of " + found.place());
        }
        Check.that(wanted.isEmpty(), wanted.size() + " records were not read: " + wanted.keySet().stream().limit(3).toList());
    }

    private String place() {
        return partition + "-" + offset;
    }

    private static String headersText(Sample sample) {
        return sample.headers.stream().map(header -> header.key() + "=" + Arrays.toString(header.value())).toList().toString();
    }

    private static String text(byte[] data) {
        if (data == null) return "null";
        var text = new String(data, StandardCharsets.UTF_8);
        return data.length + " bytes, " + text.substring(0, Math.min(40, text.length()));
    }

    private static byte[] decoded(String quoted) {
        return Objects.equals(quoted, "null") ? null : Base64.getDecoder().decode(quoted.substring(1, quoted.length() - 1));
    }

    private static byte[] repeated(byte[] data, int times) {
        var made = new byte[data.length * times];
        for (int i = 0; i < times; i++) System.arraycopy(data, 0, made, i * data.length, data.length);
        return made;
    }
}
