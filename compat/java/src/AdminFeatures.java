import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownMemberIdException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** The features of admin clients: topics, configurations, groups and their offsets. */
final class AdminFeatures {
    static void topics(Cluster cluster, String topic) throws Exception {
        cluster.create(topic, 3, Map.of("segment.bytes", "1048576"));
        Check.that(cluster.admin.listTopics().names().get().contains(topic), "the topic is not in the list");
        Check.equal(config(cluster, topic, "segment.bytes").value(), "1048576", "segment.bytes");
        var described = cluster.describe(topic);
        Check.equal(described.partitions().stream().map(partition -> partition.partition()).toList(), List.of(0, 1, 2), "partitions");
        for (var partition : described.partitions()) {
            Check.equal(partition.replicas().get(0), partition.leader(), "the first replica, which leads");
            Check.equal(Set.copyOf(partition.isr()), Set.copyOf(partition.replicas()), "in-sync replicas");
        }
        Check.fails(TopicExistsException.class, "creation of a topic that exists",
                    () -> cluster.admin.createTopics(List.of(new NewTopic(topic, 1, (short) -1))).all().get());

        Changing.move(topic);
        cluster.admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all().get();
        Check.until("five partitions", () -> cluster.describe(topic).partitions().stream().filter(each -> each.leader() != null).count() == 5);
        Check.until("the new partition answers", () -> {
            try {
                return cluster.offset(topic, 4, OffsetSpec.latest()) == 0;
            } catch (java.util.concurrent.ExecutionException notYet) {
                return false;
            }
        });
        Check.fails(InvalidPartitionsException.class, "fewer partitions",
                    () -> cluster.admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(2))).all().get());

        cluster.admin.deleteTopics(List.of(topic)).all().get();
        Check.until("the topic is deleted", () -> !cluster.admin.listTopics().names().get().contains(topic));
        Check.fails(UnknownTopicOrPartitionException.class, "description of a deleted topic", () -> cluster.describe(topic));
    }

    static void configs(Cluster cluster, String topic) throws Exception {
        cluster.create(topic, 1, Map.of("max.message.bytes", "500000"));
        isConfig(cluster, topic, "max.message.bytes", "500000", ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG);
        isConfig(cluster, topic, "cleanup.policy", "delete", ConfigEntry.ConfigSource.DEFAULT_CONFIG);
        Changing.move(topic);
        alter(cluster, topic, Map.of("max.message.bytes", "600000", "segment.ms", "3600000"), AlterConfigOp.OpType.SET);
        isConfig(cluster, topic, "max.message.bytes", "600000", ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG);
        isConfig(cluster, topic, "segment.ms", "3600000", ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG);
        isConfig(cluster, topic, "retention.ms", "-1", ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG);
        alter(cluster, topic, Map.of("cleanup.policy", "compact"), AlterConfigOp.OpType.APPEND);
        isConfig(cluster, topic, "cleanup.policy", "delete,compact", ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG);
        alter(cluster, topic, Map.of("cleanup.policy", "compact"), AlterConfigOp.OpType.SUBTRACT);
        isConfig(cluster, topic, "cleanup.policy", "delete", ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG);
        alter(cluster, topic, Map.of("cleanup.policy", "", "segment.ms", "", "max.message.bytes", ""), AlterConfigOp.OpType.DELETE);
        isConfig(cluster, topic, "cleanup.policy", "delete", ConfigEntry.ConfigSource.DEFAULT_CONFIG);
        isConfig(cluster, topic, "segment.ms", "604800000", ConfigEntry.ConfigSource.DEFAULT_CONFIG);
        isConfig(cluster, topic, "max.message.bytes", "1048588", ConfigEntry.ConfigSource.DEFAULT_CONFIG);
        Check.fails(InvalidConfigurationException.class, "a bad value",
                    () -> alter(cluster, topic, Map.of("max.message.bytes", "many"), AlterConfigOp.OpType.SET));
    }

    private static void alter(Cluster cluster, String topic, Map<String, String> values, AlterConfigOp.OpType how) throws Exception {
        Collection<AlterConfigOp> changes = values.entrySet().stream()
            .map(entry -> new AlterConfigOp(new ConfigEntry(entry.getKey(), entry.getValue()), how)).toList();
        cluster.admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.TOPIC, topic), changes)).all().get();
    }

    private static void isConfig(Cluster cluster, String topic, String key, String value, ConfigEntry.ConfigSource source) throws Exception {
        Check.until(key + "=" + value + " by " + source + " instead of " + config(cluster, topic, key), () -> {
            var found = config(cluster, topic, key);
            return found.value().equals(value) && found.source() == source;
        });
    }

    private static ConfigEntry config(Cluster cluster, String topic, String key) throws Exception {
        var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        return cluster.admin.describeConfigs(Set.of(resource)).all().get().get(resource).get(key);
    }

    static void groups(Cluster cluster, String topic) throws Exception {
        cluster.create(topic, 2, Map.of());
        try (var member = new Member(cluster, topic, topic, Map.of("client.id", "lonely"))) {
            Check.until("a member has both partitions", () -> member.assigned().size() == 2);
            var described = cluster.admin.describeConsumerGroups(List.of(topic)).all().get().get(topic);
            Check.equal(described.state().toString(), "Stable", "state of a group with a member");
            Check.equal(described.members().size(), 1, "members");
            var found = described.members().iterator().next();
            Check.equal(found.clientId(), "lonely", "client id");
            Check.equal(found.assignment().topicPartitions(), Set.copyOf(Cluster.places(topic, 2)), "assignment");
            Check.fails(GroupNotEmptyException.class, "deletion of a group with a member",
                        () -> cluster.admin.deleteConsumerGroups(List.of(topic)).all().get());
        }
        Changing.move(topic);
        Check.that(isListed(cluster, topic), "the group is not in the list");
        Check.until("the group is empty", () -> {
            var described = cluster.admin.describeConsumerGroups(List.of(topic)).all().get().get(topic);
            return described.state().toString().equals("Empty") && described.members().isEmpty();
        });
        cluster.admin.deleteConsumerGroups(List.of(topic)).all().get();
        Check.that(!isListed(cluster, topic), "the group is still in the list");
        Check.fails(GroupIdNotFoundException.class, "deletion of a deleted group",
                    () -> cluster.admin.deleteConsumerGroups(List.of(topic)).all().get());
    }

    private static boolean isListed(Cluster cluster, String group) throws Exception {
        return cluster.admin.listConsumerGroups().all().get().stream().anyMatch(listed -> listed.groupId().equals(group));
    }

    /** Committed offsets are reset while the group is empty; while it has members the reset is refused. */
    static void reset(Cluster cluster, String topic) throws Exception {
        cluster.create(topic);
        var samples = Sample.samples(99);
        cluster.send(topic, samples, Map.of());
        Sample.check(cluster.readInGroup(topic, topic, samples.size()), samples);

        var earliest = new HashMap<TopicPartition, OffsetAndMetadata>();
        for (var place : Cluster.places(topic, Sample.PARTITIONS)) {
            earliest.put(place, new OffsetAndMetadata(cluster.offset(topic, place.partition(), OffsetSpec.earliest())));
        }
        cluster.admin.alterConsumerGroupOffsets(topic, earliest).all().get();
        Sample.check(cluster.readInGroup(topic, topic, samples.size()), samples);

        Changing.move(topic);
        var place = new TopicPartition(topic, 1);
        cluster.admin.alterConsumerGroupOffsets(topic, Map.of(place, new OffsetAndMetadata(17, "set"))).all().get();
        var committed = cluster.admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get();
        Check.equal(committed.entrySet().stream().collect(Collectors.toMap(entry -> entry.getKey().partition(), entry -> entry.getValue().offset())),
                    Map.of(0, 33L, 1, 17L, 2, 33L), "committed offsets");
        Check.equal(committed.get(place).metadata(), "set", "remark");
        var left = samples.stream().filter(sample -> sample.partition() == 1 && sample.offset() >= 17).toList();
        Sample.check(cluster.readInGroup(topic, topic, left.size()), left);

        cluster.admin.deleteConsumerGroupOffsets(topic, Set.of(place)).all().get();
        var whole = samples.stream().filter(sample -> sample.partition() == 1).toList();
        Sample.check(cluster.readInGroup(topic, topic, whole.size()), whole);

        try (var member = new Member(cluster, topic, topic, Map.of())) {
            Check.until("a member has all partitions", () -> member.assigned().size() == Sample.PARTITIONS);
            Check.fails(UnknownMemberIdException.class, "a reset of a group with a member",
                        () -> cluster.admin.alterConsumerGroupOffsets(topic, earliest).all().get());
        }
    }

    private AdminFeatures() {
    }
}
