import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * A test with a broker of txbroker: a rule for faults is set over HTTP, and the client and the journal are checked. TXBROKER in the environment
 * is the command txbroker, if it is not on the PATH.
 */
class OrdersTest {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, Object> RULE =
        Map.of("api", "Produce", "topic", "orders", "action", "error", "error", "NOT_LEADER_OR_FOLLOWER");

    @TempDir
    static Path folder;
    private static Process process;
    private static JsonNode broker;

    /** The broker ends with its standard input, which this process keeps open, and so also when this process is killed. */
    @BeforeAll
    static void start() throws Exception {
        Path ready = folder.resolve("ready.json");
        String program = Optional.ofNullable(System.getenv("TXBROKER")).orElse("txbroker");
        process = new ProcessBuilder(program, "test-server", "--stop-with-input", "--topic", "orders", "--ready-file", ready.toString())
            .redirectOutput(ProcessBuilder.Redirect.DISCARD).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        long begun = System.nanoTime();
        while (!Files.exists(ready)) {
            assertTrue(process.isAlive(), "the broker has ended");
            assertTrue(System.nanoTime() - begun < TimeUnit.MINUTES.toNanos(1), "the broker does not start");
            Thread.sleep(20);
        }
        broker = JSON.readTree(Files.readString(ready));
    }

    @AfterAll
    static void stop() throws Exception {
        process.getOutputStream().close();
        process.waitFor();
    }

    private static JsonNode control(String method, String path, Object body) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(broker.get("control_url").asText() + "/v1" + path))
            .header("Content-Type", "application/json")
            .method(method, HttpRequest.BodyPublishers.ofString(JSON.writeValueAsString(body))).build();
        HttpResponse<String> response = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        assertEquals(200, response.statusCode(), response.body());
        return JSON.readTree(response.body());
    }

    @Test
    void anOrderIsStoredOnceAlthoughTheFirstRequestIsRefused() throws Exception {
        JsonNode rule = control("POST", "/rules", RULE);
        Map<String, Object> address = Map.of("bootstrap.servers", broker.get("bootstrap_servers").asText());
        try (var producer = new KafkaProducer<>(address, new StringSerializer(), new StringSerializer())) {
            assertEquals(0, producer.send(new ProducerRecord<>("orders", "order 1")).get().offset());
        }

        Map<String, Object> reader = new java.util.HashMap<>(address);
        reader.putAll(Map.of("group.id", "readers", "auto.offset.reset", "earliest"));
        List<String> values = new ArrayList<>();
        try (var consumer = new KafkaConsumer<>(reader, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("orders"));
            while (values.isEmpty()) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    values.add(record.value());
                }
            }
        }
        assertEquals(List.of("order 1"), values);

        assertEquals(1, control("GET", "/rules/" + rule.get("id"), Map.of()).get("hits").asInt());
        List<String> produced = new ArrayList<>();
        for (JsonNode entry : control("GET", "/journal?since=0", Map.of()).get("entries")) {
            if (entry.get("api").asText().equals("Produce")) {
                produced.add(entry.get("errors").toString());
            }
        }
        assertEquals(List.of("[\"NOT_LEADER_OR_FOLLOWER\"]", "[]"), produced);
    }
}
