import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.TopicExistsException;

/** Clients that stay open while a topic is recreated, or the broker is restarted. */
final class LifeFeatures {
    static void topicIds(Cluster cluster, String topic) throws Exception {
        var before = cluster.create(topic, 1, Map.of());
        Check.that(!before.equals(Uuid.ZERO_UUID.toString()), "a topic without an id");
        Check.equal(id(cluster, topic), before, "the topic's id in its description");
        cluster.admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(2))).all().get();
        Check.until("two partitions", () -> cluster.describe(topic).partitions().size() == 2);
        Check.equal(id(cluster, topic), before, "the topic's id after a change");
        try (var producer = cluster.producer(Map.of("linger.ms", 0)); var consumer = cluster.consumer(Map.of("metadata.max.age.ms", 1000))) {
            consumer.assign(Cluster.places(topic, 1));
            for (int i = 0; i < 30; i++) producer.send(new ProducerRecord<>(topic, 0, null, text("old " + i))).get();
            values(Cluster.poll(consumer, 30), "old ");

            cluster.admin.deleteTopics(List.of(topic)).all().get();
            Check.until("the topic is deleted", () -> !cluster.admin.listTopics().names().get().contains(topic));
            var after = recreated(cluster, topic);
            Check.that(!after.equals(before), "the new topic has the id of the deleted one");
            Check.equal(id(cluster, topic), after, "the id of the new topic");
            // A consumer that asks for the end of its leader epoch when the new topic has records takes it for a truncation, and goes on there (KIP-320).
            Check.until("the consumer begins again", () -> {
                Check.that(consumer.poll(Duration.ofMillis(100)).isEmpty(), "a record in a new topic");
                return consumer.position(new TopicPartition(topic, 0)) == 0;
            });

            for (int i = 0; i < 5; i++) producer.send(new ProducerRecord<>(topic, 0, null, text("new " + i))).get();
            values(Cluster.poll(consumer, 5), "new ");
            Changing.move(topic);
            for (int i = 5; i < 10; i++) producer.send(new ProducerRecord<>(topic, 0, null, text("new " + i))).get();
            var more = Cluster.poll(consumer, 5);
            Check.equal(more.stream().map(Sample::offset).toList(), List.of(5L, 6L, 7L, 8L, 9L), "offsets after a move of the leader");
        }
        values(cluster.read(topic, 1, 10, Map.of()), "new ");
    }

    /** A topic cannot be created again before its deletion has ended, which clients do not see. */
    private static String recreated(Cluster cluster, String topic) throws Exception {
        var id = new String[1];
        Check.until("the topic is recreated", () -> {
            try {
                id[0] = cluster.create(topic, 1, Map.of());
                return true;
            } catch (ExecutionException problem) {
                if (problem.getCause() instanceof TopicExistsException) return false;
                throw problem;
            }
        });
        return id[0];
    }

    private static String id(Cluster cluster, String topic) throws Exception {
        return cluster.describe(topic).topicId().toString();
    }

    private static void values(List<Sample> read, String prefix) {
        for (int i = 0; i < read.size(); i++) {
            Check.equal(read.get(i).offset() + " " + new String(read.get(i).value(), StandardCharsets.UTF_8), i + " " + prefix + i, "record");
        }
    }

    private static byte[] text(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static void reconnect(Cluster cluster, String topic) throws Exception {
        cluster.create(topic, 2, Map.of());
        int count;
        try (var flow = new Flow(cluster, topic, 2); var member = new Member(cluster, topic, topic, Map.of())) {
            flow.more(100);
            Check.until("the consumer reads", () -> member.read().size() >= 100);
            Changing.restart(topic);
            flow.more(600); // more than can have been in flight
            GroupFeatures.nothingLost(flow, member);
            count = flow.finish();
        }
        // Retried records must be neither duplicated nor out of order.
        var read = cluster.read(topic, 2, count, Map.of());
        for (var sample : read) {
            Check.equal(new String(sample.value(), StandardCharsets.UTF_8), Long.toString(2 * sample.offset() + sample.partition()),
                        "record at " + sample.partition() + "-" + sample.offset());
        }
    }

    private LifeFeatures() {
    }
}
