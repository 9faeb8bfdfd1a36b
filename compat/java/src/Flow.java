import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentSkipListSet;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** An idempotent producer that keeps sending: record n has the text n, and goes to partition n modulo their number. */
final class Flow implements AutoCloseable {
    private static final int PAUSE_MS = 5;
    private static final int UNDER_WAY = 500;

    private final KafkaProducer<byte[], byte[]> producer;
    private final Thread thread;
    private final Set<Integer> acknowledged = new ConcurrentSkipListSet<>();
    private volatile int sent;
    private volatile boolean over;
    private volatile Exception failure;

    Flow(Cluster cluster, String topic, int partitions) {
        producer = cluster.producer(Map.of("enable.idempotence", true, "acks", "all", "linger.ms", 0));
        thread = new Thread(() -> run(topic, partitions), "flow");
        thread.setDaemon(true);
        thread.start();
    }

    private void run(String topic, int partitions) {
        try {
            for (int n = 0; !over && failure == null; n++) {
                int number = n;
                var text = Integer.toString(n).getBytes(StandardCharsets.UTF_8);
                producer.send(new ProducerRecord<>(topic, n % partitions, null, text), (metadata, problem) -> {
                    if (problem == null) acknowledged.add(number);
                    else failure = problem;
                });
                sent = n + 1;
                do Thread.sleep(PAUSE_MS); while (!over && sent - acknowledged.size() > UNDER_WAY);
            }
            producer.flush();
        } catch (Exception problem) {
            failure = problem;
        }
    }

    int acknowledged() throws Exception {
        if (failure != null) throw failure;
        return acknowledged.size();
    }

    /** Wait until `count` more than now are acknowledged. */
    void more(int count) throws Exception {
        int wanted = acknowledged() + count;
        Check.until("the producer continues", () -> acknowledged() >= wanted);
    }

    /** Stop sending; returns the number of records, all of them acknowledged. */
    int finish() throws Exception {
        over = true;
        thread.join(2 * Check.PATIENCE_MS);
        Check.equal(acknowledged(), sent, "acknowledged records of a producer");
        return sent;
    }

    @Override
    public void close() {
        over = true;
        producer.close(java.time.Duration.ofSeconds(5));
    }
}
