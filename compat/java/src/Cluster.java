import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeTopicsResult;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Brokers by their addresses, with the steps of features. */
final class Cluster implements AutoCloseable {
    /** The sample records have old timestamps. */
    static final Map<String, String> KEEP = Map.of("retention.ms", "-1");

    private final String address;
    final Admin admin;

    Cluster(String address) {
        this.address = address;
        admin = Admin.create(Map.of("bootstrap.servers", address));
    }

    KafkaProducer<byte[], byte[]> producer(Map<String, ?> settings) {
        var all = new HashMap<String, Object>(Map.of("bootstrap.servers", address, "acks", "all", "linger.ms", 10, "batch.size", 4000));
        all.putAll(settings);
        return new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer());
    }

    KafkaConsumer<byte[], byte[]> consumer(Map<String, ?> settings) {
        var all = new HashMap<String, Object>(Map.of("bootstrap.servers", address, "auto.offset.reset", "earliest", "enable.auto.commit", false,
                                                     "allow.auto.create.topics", false, "heartbeat.interval.ms", 300));
        all.putAll(settings);
        return new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** Create a topic, and wait until every leader answers: Kafka reports leaders to clients before all leaders know. Returns the topic's id. */
    String create(String topic, int partitions, Map<String, String> configs) throws Exception {
        var all = new HashMap<>(KEEP);
        all.putAll(configs);
        var created = admin.createTopics(List.of(new NewTopic(topic, partitions, (short) -1).configs(all)));
        created.all().get();
        Check.equal(created.numPartitions(topic).get(), partitions, "partitions in the answer to the creation");
        Check.until(partitions + " partitions whose leaders answer", () -> {
            try {
                return describe(topic).partitions().stream().filter(partition -> partition.leader() != null).count() == partitions
                    && IntStream.range(0, partitions).allMatch(partition -> end(topic, partition) == 0);
            } catch (ExecutionException problem) {
                if (problem.getCause() instanceof ApiException) return false;
                throw problem;
            }
        });
        return created.topicId(topic).get().toString();
    }

    void create(String topic) throws Exception {
        create(topic, Sample.PARTITIONS, Map.of());
    }

    /** The broker's description of a topic: `all` in old releases, `allTopicNames` since 3.1. */
    @SuppressWarnings("unchecked")
    TopicDescription describe(String topic) throws Exception {
        var result = admin.describeTopics(List.of(topic));
        java.lang.reflect.Method all;
        try {
            all = DescribeTopicsResult.class.getMethod("allTopicNames");
        } catch (NoSuchMethodException old) {
            all = DescribeTopicsResult.class.getMethod("all");
        }
        return ((KafkaFuture<Map<String, TopicDescription>>) all.invoke(result)).get().get(topic);
    }

    long offset(String topic, int partition, OffsetSpec spec) throws Exception {
        var place = new TopicPartition(topic, partition);
        return admin.listOffsets(Map.of(place, spec)).partitionResult(place).get().offset();
    }

    /** The end of a partition; -1 while its leader does not answer. */
    private long end(String topic, int partition) {
        try {
            return offset(topic, partition, OffsetSpec.latest());
        } catch (Exception notYet) {
            return -1;
        }
    }

    /** Send, and wait until all is acknowledged or, with acks=0, sent; checks the offset of each record. */
    void send(String topic, List<Sample> samples, Map<String, ?> settings) throws Exception {
        try (var producer = producer(settings)) {
            send(producer, topic, samples, !"0".equals(settings.get("acks")));
        }
    }

    /** The same through one producer; the leaders move in the middle. */
    void sendAndMove(String topic, List<Sample> samples, Map<String, ?> settings) throws Exception {
        int half = samples.size() / 2;
        try (var producer = producer(settings)) {
            send(producer, topic, samples.subList(0, half), true);
            Changing.move(topic);
            send(producer, topic, samples.subList(half, samples.size()), true);
        }
    }

    private static void send(KafkaProducer<byte[], byte[]> producer, String topic, List<Sample> samples, boolean acknowledged) throws Exception {
        var sent = new ArrayList<Future<RecordMetadata>>();
        for (var sample : samples) sent.add(producer.send(sample.to(topic)));
        for (int i = 0; i < samples.size(); i++) {
            var metadata = sent.get(i).get();
            if (acknowledged) Check.equal(metadata.offset(), samples.get(i).offset(), "offset of sent record " + i);
        }
    }

    /** `count` records from the first offsets of all partitions on, without a group; checks that no more arrive. */
    List<Sample> read(String topic, int partitions, int count, Map<String, ?> settings) throws Exception {
        try (var consumer = consumer(settings)) {
            consumer.assign(places(topic, partitions));
            return poll(consumer, count);
        }
    }

    List<Sample> read(String topic, int count) throws Exception {
        return read(topic, Sample.PARTITIONS, count, Map.of());
    }

    /** A new member reads `count` records, commits what it read, with a remark, and leaves. */
    List<Sample> readInGroup(String topic, String group, int count) throws Exception {
        try (var consumer = consumer(Map.of("group.id", group, "max.poll.records", Math.min(count, 10)))) {
            consumer.subscribe(List.of(topic));
            var read = poll(consumer, count);
            var next = new TreeMap<Integer, OffsetAndMetadata>();
            for (var sample : read) next.put(sample.partition(), new OffsetAndMetadata(sample.offset() + 1, "remark " + sample.offset()));
            var commits = new HashMap<TopicPartition, OffsetAndMetadata>();
            next.forEach((partition, offset) -> commits.put(new TopicPartition(topic, partition), offset));
            consumer.commitSync(commits);
            var committed = consumer.committed(commits.keySet());
            commits.forEach((place, offset) -> {
                Check.equal(committed.get(place).offset(), offset.offset(), "offset committed for " + place);
                Check.equal(committed.get(place).metadata(), offset.metadata(), "remark committed for " + place);
            });
            return read;
        }
    }

    static List<Sample> poll(KafkaConsumer<byte[], byte[]> consumer, int count) throws Exception {
        var read = new ArrayList<Sample>();
        Check.until(count + " records", () -> {
            for (var record : consumer.poll(Duration.ofMillis(500))) if (read.size() < count) read.add(Sample.of(record));
            return read.size() == count;
        });
        return read;
    }

    static Collection<TopicPartition> places(String topic, int partitions) {
        return IntStream.range(0, partitions).mapToObj(partition -> new TopicPartition(topic, partition)).toList();
    }

    @Override
    public void close() {
        admin.close(Duration.ofSeconds(5));
    }
}
