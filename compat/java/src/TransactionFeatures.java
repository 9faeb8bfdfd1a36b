import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;

/** The features of transactions: commit, abort, offsets, fencing, and what consumers see. */
final class TransactionFeatures {
    private static final Map<String, ?> COMMITTED = Map.of("isolation.level", "read_committed");

    static void commit(Cluster cluster, String topic) throws Exception {
        cluster.create(topic);
        var samples = Sample.samples(99);
        try (var producer = initialized(cluster, topic)) {
            for (var part : List.of(samples.subList(0, 66), samples.subList(66, 99))) {
                producer.beginTransaction();
                send(producer, topic, part);
                producer.commitTransaction();
            }
        }
        check(cluster.read(topic, Sample.PARTITIONS, 99, COMMITTED), samples);
    }

    static void abort(Cluster cluster, String topic) throws Exception {
        cluster.create(topic);
        var samples = Sample.samples(99);
        try (var producer = initialized(cluster, topic)) {
            producer.beginTransaction();
            send(producer, topic, samples.subList(0, 33));
            producer.abortTransaction();
            producer.beginTransaction();
            send(producer, topic, samples.subList(33, 99));
            producer.commitTransaction();
        }
        check(cluster.read(topic, Sample.PARTITIONS, 66, COMMITTED), samples.subList(33, 99));
        check(cluster.read(topic, 99), samples);
    }

    /** What follows an open transaction in its partition is not read before its end; other partitions are read. */
    static void readCommitted(Cluster cluster, String topic) throws Exception {
        cluster.create(topic);
        var samples = Sample.samples(66);
        var opened = samples.subList(0, 33).stream().filter(sample -> sample.partition() == 0).toList();
        var ended = samples.subList(33, 66);
        try (var first = initialized(cluster, topic + "-1"); var second = initialized(cluster, topic + "-2");
             var consumer = cluster.consumer(COMMITTED)) {
            first.beginTransaction();
            send(first, topic, opened);
            second.beginTransaction();
            send(second, topic, ended);
            second.commitTransaction();
            consumer.assign(Cluster.places(topic, Sample.PARTITIONS));
            var read = new ArrayList<>(Cluster.poll(consumer, 22));
            Check.that(read.stream().noneMatch(sample -> sample.partition() == 0), "records behind an open transaction were read");
            first.commitTransaction();
            read.addAll(Cluster.poll(consumer, 22));
            check(read, Stream.concat(opened.stream(), ended.stream()).toList());
        }
    }

    static void offsets(Cluster cluster, String topic) throws Exception {
        cluster.create(topic);
        var samples = Sample.samples(30);
        cluster.send(topic, samples, Map.of());
        try (var producer = initialized(cluster, topic); var member = cluster.consumer(Map.of("group.id", topic))) {
            for (long offset : new long[] {5, 8}) {
                var offsets = new HashMap<TopicPartition, OffsetAndMetadata>();
                for (var place : Cluster.places(topic, Sample.PARTITIONS)) offsets.put(place, new OffsetAndMetadata(offset));
                producer.beginTransaction();
                producer.sendOffsetsToTransaction(offsets, member.groupMetadata());
                if (offset == 5) producer.commitTransaction();
                else producer.abortTransaction();
            }
        }
        var rest = samples.stream().filter(sample -> sample.offset() >= 5).toList();
        check(cluster.readInGroup(topic, topic, rest.size()), rest);
    }

    static void fencing(Cluster cluster, String topic) throws Exception {
        cluster.create(topic);
        var samples = Sample.samples(66);
        try (var zombie = initialized(cluster, topic)) {
            zombie.beginTransaction();
            send(zombie, topic, samples.subList(0, 33));
            try (var producer = initialized(cluster, topic)) { // aborts the zombie's transaction
                producer.beginTransaction();
                send(producer, topic, samples.subList(33, 66));
                producer.commitTransaction();
            }
            Check.fails(KafkaException.class, "a commit of a fenced producer", zombie::commitTransaction);
        }
        check(cluster.read(topic, Sample.PARTITIONS, 33, COMMITTED), samples.subList(33, 66));
    }

    private static KafkaProducer<byte[], byte[]> initialized(Cluster cluster, String id) {
        var producer = cluster.producer(Map.of("transactional.id", id, "enable.idempotence", true, "acks", "all"));
        producer.initTransactions();
        return producer;
    }

    private static void send(KafkaProducer<byte[], byte[]> producer, String topic, List<Sample> samples) throws Exception {
        var sent = new ArrayList<java.util.concurrent.Future<RecordMetadata>>();
        for (var sample : samples) sent.add(producer.send(sample.to(topic)));
        for (var each : sent) each.get();
    }

    /** The expected records, in the order of each partition; their offsets have gaps, where markers and aborted records are. */
    private static void check(List<Sample> read, List<Sample> expected) {
        for (int partition = 0; partition < Sample.PARTITIONS; partition++) {
            int here = partition;
            var found = read.stream().filter(sample -> sample.partition() == here).toList();
            var wanted = expected.stream().filter(sample -> sample.partition() == here).toList();
            Check.equal(found.size(), wanted.size(), "records of partition " + here);
            for (int i = 0; i < found.size(); i++) {
                var where = "the record at " + here + "-" + found.get(i).offset();
                Check.equal(found.get(i).time(), wanted.get(i).time(), "timestamp of " + where);
                Check.that(Arrays.equals(found.get(i).value(), wanted.get(i).value()), where + " has another value");
                Check.that(i == 0 || found.get(i - 1).offset() < found.get(i).offset(), where + " came after a later one");
            }
        }
    }

    private TransactionFeatures() {
    }
}
