import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A client of a fault test: `produce NAME BOOTSTRAP TOPIC PARTITIONS` or `consume NAME BOOTSTRAP TOPIC GROUP`. It works until its standard
 * input ends, and writes each operation to standard output as a line of the history.
 */
public final class JavaClient {
    private static final Duration POLL = Duration.ofMillis(200);
    private final String name;
    private final Map<String, Object> settings = new HashMap<>();
    private final String topic;
    private volatile boolean end;
    private volatile Exception failure;
    private int number;

    private JavaClient(String name, String bootstrap, String topic) {
        this.name = name;
        this.topic = topic;
        settings.put("bootstrap.servers", bootstrap);
        settings.put("client.id", name);
        settings.put("reconnect.backoff.max.ms", 500);
        var reader = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException closed) {
                // the end
            }
            end = true;
        });
        reader.setDaemon(true);
        reader.start();
    }

    public static void main(String[] arguments) throws Exception {
        var client = new JavaClient(arguments[1], arguments[2], arguments[3]);
        if (arguments[0].equals("produce")) client.produce(Integer.parseInt(arguments[4]));
        else client.consume(arguments[4]);
        if (client.failure != null) throw client.failure;
    }

    private synchronized void line(String operation, int number, String rest, Object... values) {
        System.out.println("{\"op\":\"" + operation + "\",\"client\":\"" + name + "\",\"number\":" + number + ",\"topic\":\"" + topic + "\","
            + String.format(rest, values) + "}");
    }

    private void produce(int partitions) throws Exception {
        settings.put("key.serializer", StringSerializer.class);
        settings.put("value.serializer", StringSerializer.class);
        settings.put("enable.idempotence", true);
        settings.put("acks", "all");
        settings.put("linger.ms", 2);
        settings.put("delivery.timeout.ms", 600_000);
        settings.put("max.block.ms", 600_000);
        settings.put("request.timeout.ms", 10_000);
        var chance = new Random(name.hashCode());
        try (var producer = new KafkaProducer<String, String>(settings)) {
            while (!end && failure == null) {
                int partition = chance.nextInt(partitions);
                for (int left = 1 + chance.nextInt(10); left > 0; left--) send(producer, partition, chance.nextInt(200));
                Thread.sleep(50);
            }
        }
    }

    private void send(KafkaProducer<String, String> producer, int partition, int size) {
        int mine = ++number;
        long began = System.nanoTime();
        String value = name + "-" + mine;
        producer.send(new ProducerRecord<>(topic, partition, "key", value + " " + "x".repeat(size)), (metadata, error) -> {
            long offset = error == null && metadata.hasOffset() ? metadata.offset() : -1;
            line("send", mine, "\"partition\":%d,\"value\":\"%s\",\"began\":%d,\"ended\":%d,\"outcome\":\"%s\",\"offset\":%d",
                partition, value, began, System.nanoTime(), error == null ? "ok" : "unknown", offset);
            if (error != null) failure = error;
        });
    }

    private void consume(String group) throws Exception {
        settings.put("key.deserializer", StringDeserializer.class);
        settings.put("value.deserializer", StringDeserializer.class);
        settings.put("group.id", group);
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", "earliest");
        settings.put("max.poll.records", 200);
        settings.put("request.timeout.ms", 10_000);
        settings.put("default.api.timeout.ms", 600_000);
        try (var consumer = new KafkaConsumer<String, String>(settings)) {
            consumer.subscribe(List.of(topic), new Listener(consumer, group));
            while (!end) poll(consumer, group);
        }
    }

    private void poll(KafkaConsumer<String, String> consumer, String group) {
        long began = System.nanoTime();
        var records = consumer.poll(POLL);
        for (var part : records.partitions()) {
            var pairs = new ArrayList<String>();
            for (var record : records.records(part)) pairs.add("[" + record.offset() + ",\"" + record.value().split(" ", 2)[0] + "\"]");
            line("poll", ++number, "\"partition\":%d,\"records\":[%s],\"began\":%d,\"ended\":%d",
                part.partition(), String.join(",", pairs), began, System.nanoTime());
        }
        if (records.isEmpty()) return;
        var offsets = new HashMap<TopicPartition, OffsetAndMetadata>();
        for (var part : records.partitions()) {
            var those = records.records(part);
            offsets.put(part, new OffsetAndMetadata(those.get(those.size() - 1).offset() + 1));
        }
        String outcome = "unknown";
        began = System.nanoTime();
        try {
            consumer.commitSync(offsets, Duration.ofSeconds(15));
            outcome = "ok";
        } catch (CommitFailedException | RetriableException later) {
            // the group rebalances, or there was no answer
        }
        for (var each : offsets.entrySet()) {
            line("commit", ++number, "\"group\":\"%s\",\"partition\":%d,\"offset\":%d,\"began\":%d,\"ended\":%d,\"outcome\":\"%s\"",
                group, each.getKey().partition(), each.getValue().offset(), began, System.nanoTime(), outcome);
        }
    }

    private final class Listener implements ConsumerRebalanceListener {
        private final KafkaConsumer<String, String> consumer;
        private final String group;

        Listener(KafkaConsumer<String, String> consumer, String group) {
            this.consumer = consumer;
            this.group = group;
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> parts) {
            if (parts.isEmpty()) return;
            long began = System.nanoTime();
            var found = consumer.committed(new HashSet<>(parts));
            for (var part : parts) {
                var committed = found.get(part);
                long offset = committed == null ? -1 : committed.offset();
                line("fetched-commit", ++number, "\"group\":\"%s\",\"partition\":%d,\"offset\":%d,\"began\":%d,\"ended\":%d",
                    group, part.partition(), offset, began, System.nanoTime());
                consumer.seek(part, Math.max(offset, 0));
                line("assign", ++number, "\"partition\":%d,\"position\":%d", part.partition(), Math.max(offset, 0));
            }
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> parts) {
        }
    }
}
