import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.common.errors.FencedInstanceIdException;

/** Groups whose members join, leave and return while a producer keeps sending: nothing may be lost. */
final class GroupFeatures {
    private static final Set<Integer> ALL = Set.of(0, 1, 2, 3);
    private static final int SOME = 50;

    static void group(Cluster cluster, String topic) throws Exception {
        cluster.create(topic);
        var samples = Sample.samples(99);
        cluster.send(topic, samples, Map.of());
        var read = new ArrayList<>(cluster.readInGroup(topic, topic, 40));
        Changing.move(topic);
        read.addAll(cluster.readInGroup(topic, topic, samples.size() - 40));
        Sample.check(read, samples);
    }

    static void eager(Cluster cluster, String topic) throws Exception {
        var settings = Map.of("partition.assignment.strategy", RangeAssignor.class.getName());
        cluster.create(topic, ALL.size(), Map.of());
        try (var flow = new Flow(cluster, topic, ALL.size()); var first = new Member(cluster, topic, topic, settings)) {
            untilShared(first);
            flow.more(SOME);
            var second = new Member(cluster, topic, topic, settings);
            try (second) {
                untilShared(first, second);
                Check.equal(List.of(first.assigned().size(), second.assigned().size()), List.of(2, 2), "partitions of each");
                Check.equal(first.taken(), List.of(ALL), "partitions revoked from the first");
                Changing.move(topic);
                flow.more(SOME);
                Check.until("the second reads", () -> second.read().size() > 0);
            }
            untilShared(first);
            flow.more(SOME);
            nothingLost(flow, first, second);
            Check.equal(first.read().size() + second.read().size(), flow.finish(), "records read once");
        }
    }

    static void cooperative(Cluster cluster, String topic) throws Exception {
        var settings = Map.of("partition.assignment.strategy", CooperativeStickyAssignor.class.getName());
        cluster.create(topic, ALL.size(), Map.of());
        try (var flow = new Flow(cluster, topic, ALL.size()); var first = new Member(cluster, topic, topic, settings)) {
            untilShared(first);
            flow.more(SOME);
            var second = new Member(cluster, topic, topic, settings);
            Set<Integer> moved;
            try (second) {
                untilShared(first, second);
                moved = second.assigned();
                Check.equal(moved.size(), 2, "partitions of the second");
                Check.equal(first.taken(), List.of(moved), "partitions revoked from the first");
                Check.equal(first.given(), List.of(ALL), "partitions assigned to the first");
                Changing.move(topic);
                flow.more(SOME);
                Check.until("the second reads", () -> second.read().size() > 0);
            }
            untilShared(first);
            Check.equal(first.taken(), List.of(moved), "all partitions revoked from the first");
            Check.equal(first.given(), List.of(ALL, moved), "all partitions assigned to the first");
            flow.more(SOME);
            nothingLost(flow, first, second);
            Check.equal(first.read().size() + second.read().size(), flow.finish(), "records read once");
        }
    }

    /** A static member stops and returns to its partitions; the other sees no rebalance. A member with the same instance id fences it. */
    static void staticMember(Cluster cluster, String topic) throws Exception {
        cluster.create(topic, ALL.size(), Map.of());
        try (var flow = new Flow(cluster, topic, ALL.size()); var stays = new Member(cluster, topic, topic, named("stays"))) {
            untilShared(stays);
            var goes = new Member(cluster, topic, topic, named("goes"));
            Set<Integer> its;
            try (goes) {
                untilShared(stays, goes);
                its = goes.assigned();
                Check.until("it reads", () -> goes.read().size() > 0);
            }
            int generation = stays.generation();
            var given = stays.given();
            Changing.move(topic);
            var back = new Member(cluster, topic, topic, named("goes"));
            var usurper = new Member[1];
            try (back) {
                Check.until("the returned member has its partitions", () -> back.assigned().equals(its));
                Check.until("it reads", () -> back.read().size() > 0);
                var described = cluster.admin.describeConsumerGroups(List.of(topic)).all().get().get(topic);
                Check.equal(described.members().stream().map(member -> member.groupInstanceId().orElse("")).collect(Collectors.toCollection(TreeSet::new)),
                            new TreeSet<>(Set.of("goes", "stays")), "instances in the group");
                usurper[0] = new Member(cluster, topic, topic, named("goes"));
                Check.until("the other member with the instance id has its partitions", () -> usurper[0].assigned().equals(its));
                Check.until("the first member with the instance id is fenced", () -> back.failure() instanceof FencedInstanceIdException);
                Check.until("the other reads", () -> usurper[0].read().size() > 0);
            } finally {
                if (usurper[0] != null) usurper[0].close();
            }
            Check.equal(stays.generation(), generation, "generation of the remaining member");
            Check.equal(stays.given(), given, "partitions assigned to the remaining member");
            cluster.admin.removeMembersFromConsumerGroup(topic, new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("goes")))).all().get();
            untilShared(stays);
            nothingLost(flow, stays, goes, back, usurper[0]);
        }
    }

    private static Map<String, ?> named(String instance) {
        return Map.of("group.instance.id", instance, "session.timeout.ms", 60_000, "heartbeat.interval.ms", 300,
                      "partition.assignment.strategy", RangeAssignor.class.getName());
    }

    private static void untilShared(Member... members) throws Exception {
        Check.until(members.length + " members share the partitions", () -> {
            var owned = new ArrayList<Integer>();
            for (var member : members) {
                var its = member.assigned();
                if (its.isEmpty()) return false;
                owned.addAll(its);
            }
            return owned.size() == ALL.size() && Set.copyOf(owned).equals(ALL);
        });
    }

    /** Every record that was acknowledged is read by one member or more. */
    static void nothingLost(Flow flow, Member... members) throws Exception {
        int count = flow.finish();
        Check.until("all records are read", () -> numbers(members).size() >= count);
        var read = numbers(members);
        for (int n = 0; n < count; n++) Check.that(read.contains(n), "record " + n + " was not read");
        Check.equal(read.size(), count, "records read");
    }

    private static Set<Integer> numbers(Member... members) {
        return Arrays.stream(members).flatMap(member -> member.read().stream())
            .map(sample -> Integer.valueOf(new String(sample.value(), StandardCharsets.UTF_8))).collect(Collectors.toSet());
    }

    private GroupFeatures() {
    }
}
