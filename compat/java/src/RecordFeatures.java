import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.OffsetOutOfRangeException;
import org.apache.kafka.common.errors.RecordTooLargeException;

/** The features of records: write, read, look up by offset and time, delete. */
final class RecordFeatures {
    private static final Map<String, ?> SIMPLE = Map.of("enable.idempotence", false, "max.in.flight.requests.per.connection", 1);

    static Feature codec(String codec) {
        return (cluster, topic) -> {
            cluster.create(topic);
            var samples = Sample.samples(Sample.COUNT);
            cluster.sendAndMove(topic, samples, Map.of("compression.type", codec, "max.in.flight.requests.per.connection", 1));
            Sample.check(cluster.read(topic, samples.size()), samples);
        };
    }

    static void acks(Cluster cluster, String topic) throws Exception {
        cluster.create(topic);
        var samples = Sample.samples(66);
        cluster.send(topic, samples.subList(0, 33), with(SIMPLE, "acks", "1"));
        Changing.move(topic);
        cluster.send(topic, samples.subList(33, 66), with(SIMPLE, "acks", "0"));
        Sample.check(cluster.read(topic, samples.size()), samples);
    }

    static void idempotence(Cluster cluster, String topic) throws Exception {
        cluster.create(topic);
        var samples = Sample.samples(990);
        cluster.sendAndMove(topic, samples, Map.of("enable.idempotence", true, "acks", "all", "max.in.flight.requests.per.connection", 5));
        Sample.check(cluster.read(topic, samples.size()), samples);
    }

    static void offsets(Cluster cluster, String topic) throws Exception {
        cluster.create(topic);
        cluster.send(topic, Sample.samples(99), Map.of());
        Changing.move(topic);
        long tenth = Sample.BASE_TIME + 10 * Sample.PARTITIONS * Sample.STEP_MS;
        var place = new TopicPartition(topic, 0);
        try (var consumer = cluster.consumer(Map.of())) {
            Check.equal(consumer.beginningOffsets(List.of(place)), Map.of(place, 0L), "first offset");
            Check.equal(consumer.endOffsets(List.of(place)), Map.of(place, 33L), "last offset");
            var found = consumer.offsetsForTimes(Map.of(place, tenth)).get(place);
            Check.equal(List.of(found.offset(), found.timestamp()), List.of(10L, tenth), "the record of a time");
            Check.equal(consumer.offsetsForTimes(Map.of(place, tenth + 1)).get(place).offset(), 11L, "the offset of a time between two records");
            Check.equal(consumer.offsetsForTimes(Map.of(place, Sample.BASE_TIME * 2)).get(place), null, "a time after the last record");
        }
        Check.equal(cluster.offset(topic, 0, OffsetSpec.earliest()), 0L, "earliest offset");
        Check.equal(cluster.offset(topic, 0, OffsetSpec.latest()), 33L, "latest offset");
        Check.equal(cluster.offset(topic, 0, OffsetSpec.forTimestamp(tenth)), 10L, "the offset of a record's own time");
        Check.equal(cluster.offset(topic, 0, OffsetSpec.forTimestamp(Sample.BASE_TIME * 2)), -1L, "the offset of a time after the last record");
        for (var method : OffsetSpec.class.getMethods()) {
            if (method.getName().equals("maxTimestamp")) { // since 3.0
                Check.equal(cluster.offset(topic, 0, (OffsetSpec) method.invoke(null)), 32L, "the offset of the largest timestamp");
            }
        }
    }

    static void deleteRecords(Cluster cluster, String topic) throws Exception {
        cluster.create(topic);
        var samples = Sample.samples(99);
        cluster.send(topic, samples, Map.of());
        Changing.move(topic);
        var place = new TopicPartition(topic, 0);
        var deleted = cluster.admin.deleteRecords(Map.of(place, RecordsToDelete.beforeOffset(20)));
        Check.equal(deleted.lowWatermarks().get(place).get().lowWatermark(), 20L, "low watermark");
        Changing.move(topic);
        Check.equal(cluster.offset(topic, 0, OffsetSpec.earliest()), 20L, "earliest offset");
        var left = samples.stream().filter(sample -> sample.partition() != 0 || sample.offset() >= 20).toList();
        Sample.check(cluster.read(topic, left.size()), left);
        Check.fails(OffsetOutOfRangeException.class, "deletion of records that do not exist yet",
                    () -> cluster.admin.deleteRecords(Map.of(place, RecordsToDelete.beforeOffset(34))).all().get());
    }

    /** Records of ten million bytes, compressible or not; a topic without the setting refuses them. */
    static void large(Cluster cluster, String topic) throws Exception {
        var random = new byte[10_000_000];
        new Random(7).nextBytes(random);
        var plain = new byte[10_000_000];
        Arrays.fill(plain, (byte) 'x');
        var producing = Map.of("max.request.size", 12_000_000, "buffer.memory", 64_000_000);
        cluster.create(topic, 1, Map.of("max.message.bytes", "12000000"));
        cluster.create(topic + "-small", 1, Map.of());
        try (var producer = cluster.producer(producing); var packing = cluster.producer(with(producing, "compression.type", "lz4"))) {
            producer.send(new ProducerRecord<>(topic, 0, null, random)).get();
            producer.send(new ProducerRecord<>(topic, 0, null, plain)).get();
            packing.send(new ProducerRecord<>(topic, 0, null, random)).get();
            packing.send(new ProducerRecord<>(topic, 0, null, plain)).get();
            Check.fails(RecordTooLargeException.class, "a topic with max.message.bytes=1048588",
                        () -> producer.send(new ProducerRecord<>(topic + "-small", 0, null, random)).get());
        }
        Changing.move(topic);
        var read = cluster.read(topic, 1, 4, Map.of("fetch.max.bytes", 50_000_000));
        var wanted = List.of(random, plain, random, plain);
        for (int i = 0; i < 4; i++) {
            Check.equal(read.get(i).offset(), (long) i, "offset");
            Check.that(Arrays.equals(read.get(i).value(), wanted.get(i)), "record " + i + " has other bytes");
        }
    }

    /** Fetches wait for fetch.min.bytes: less is held back, and enough is returned at once, long before fetch.max.wait.ms. */
    static void longPoll(Cluster cluster, String topic) throws Exception {
        int patienceMs = 40_000;
        var settings = Map.of("fetch.min.bytes", 1000, "fetch.max.wait.ms", patienceMs, "request.timeout.ms", 2 * patienceMs);
        cluster.create(topic, 1, Map.of());
        var consumer = cluster.consumer(settings);
        try (var producer = cluster.producer(Map.of("linger.ms", 0))) {
            consumer.assign(Cluster.places(topic, 1));
            Check.that(consumer.poll(Duration.ofSeconds(1)).isEmpty(), "a record in an empty topic");
            Changing.move(topic);
            long start = System.nanoTime();
            producer.send(new ProducerRecord<>(topic, 0, null, new byte[100])).get();
            Check.that(consumer.poll(Duration.ofSeconds(1)).isEmpty(), "a record arrived before there were fetch.min.bytes");
            producer.send(new ProducerRecord<>(topic, 0, null, new byte[2000])).get();
            Check.equal(Cluster.poll(consumer, 2).size(), 2, "records");
            Check.that(System.nanoTime() - start < patienceMs * 1_000_000L, "the records arrived when fetch.max.wait.ms was over");
        } finally {
            consumer.close(Duration.ZERO); // newer clients wait for the fetch in flight
        }
    }

    static Map<String, Object> with(Map<String, ?> settings, String key, Object value) {
        var made = new TreeMap<String, Object>(settings);
        made.put(key, value);
        return made;
    }

    private RecordFeatures() {
    }
}
