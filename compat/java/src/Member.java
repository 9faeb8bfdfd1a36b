import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.WakeupException;

/** A consumer of a group on its own thread; it commits what it reads, and records its assignments and revocations. */
final class Member implements ConsumerRebalanceListener, AutoCloseable {
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final Thread thread;
    private final List<Sample> read = new ArrayList<>();
    private final Set<Integer> assigned = new TreeSet<>();
    private final List<Set<Integer>> given = new ArrayList<>();
    private final List<Set<Integer>> taken = new ArrayList<>();
    private int generation = -1;
    private Exception failure;
    private volatile boolean over;

    /** Join `group` with more settings of a consumer. */
    Member(Cluster cluster, String topic, String group, Map<String, ?> settings) {
        var all = new HashMap<String, Object>(settings);
        all.put("group.id", group);
        consumer = cluster.consumer(all);
        consumer.subscribe(List.of(topic), this);
        thread = new Thread(this::run, "member");
        thread.setDaemon(true);
        thread.start();
    }

    private void run() {
        try {
            while (!over) {
                var records = consumer.poll(Duration.ofMillis(200));
                synchronized (this) {
                    for (var record : records) read.add(Sample.of(record));
                    generation = consumer.groupMetadata().generationId();
                }
                if (!records.isEmpty()) commit();
            }
        } catch (WakeupException end) {
            // by close
        } catch (Exception problem) {
            fail(problem);
        } finally {
            consumer.close(Duration.ofSeconds(10));
        }
    }

    private synchronized void fail(Exception problem) {
        if (failure == null) failure = problem;
        over = true;
    }

    private void commit() {
        try {
            consumer.commitSync();
        } catch (RebalanceInProgressException | CommitFailedException later) {
            // the next commit covers it, or another member reads it again
        } catch (FencedInstanceIdException fenced) {
            fail(fenced);
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> places) {
        note(places, given);
        synchronized (this) {
            assigned.addAll(numbers(places));
            // As poll is not over yet, its generation would be known later than its partitions.
            generation = consumer.groupMetadata().generationId();
        }
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> places) {
        commit();
        note(places, taken);
        synchronized (this) {
            assigned.removeAll(numbers(places));
        }
    }

    private synchronized void note(Collection<TopicPartition> places, List<Set<Integer>> where) {
        if (!places.isEmpty()) where.add(numbers(places));
    }

    private static Set<Integer> numbers(Collection<TopicPartition> places) {
        return new TreeSet<>(places.stream().map(TopicPartition::partition).toList());
    }

    /** The assigned partitions. */
    synchronized Set<Integer> assigned() throws Exception {
        if (failure != null) throw failure;
        return new TreeSet<>(assigned);
    }

    /** The assigned sets of partitions, one per rebalance, without empty ones. */
    synchronized List<Set<Integer>> given() {
        return List.copyOf(given);
    }

    /** The revoked sets of partitions. */
    synchronized List<Set<Integer>> taken() {
        return List.copyOf(taken);
    }

    synchronized List<Sample> read() {
        return List.copyOf(read);
    }

    synchronized int generation() {
        return generation;
    }

    synchronized Exception failure() {
        return failure;
    }

    /** Close the consumer: a member that is not static leaves its group. */
    @Override
    public void close() {
        over = true;
        consumer.wakeup();
        try {
            thread.join(Check.PATIENCE_MS);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
