import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** A case on a secured listener: its fields are those of `Secured` in compat/security/cases.py, strings that are empty if they are not needed. */
record Secured(Map<String, String> fields) {
    private static final Pattern FIELD = Pattern.compile("\"(\\w+)\": \"([^\"]*)\"");
    private static final String SASL = "org.apache.kafka.common.security.";

    /** Read a file with one case a line. */
    static List<Secured> load(Path path) throws Exception {
        var cases = new ArrayList<Secured>();
        for (var line : Files.readAllLines(path)) {
            var fields = new HashMap<String, String>();
            var field = FIELD.matcher(line);
            while (field.find()) fields.put(field.group(1), field.group(2));
            if (!fields.isEmpty()) cases.add(new Secured(fields));
        }
        return cases;
    }

    String name() {
        return fields.get("name");
    }

    /** Produce a record, and consume one as a member of a group. */
    void exchange() throws Exception {
        var topic = fields.get("topic");
        try (var producer = new KafkaProducer<>(settings(), new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.send(new ProducerRecord<>(topic, new byte[] {1})).get();
        }
        var settings = settings();
        settings.putAll(Map.of("group.id", fields.get("group"), "auto.offset.reset", "earliest"));
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(topic));
            Check.until("a record", () -> !consumer.poll(Duration.ofMillis(500)).isEmpty());
        }
    }

    private Map<String, Object> settings() throws Exception {
        var mechanism = fields.get("mechanism");
        var made = new HashMap<String, Object>(Map.of(
            "bootstrap.servers", fields.get("address"), "security.protocol", mechanism.isEmpty() ? "SSL" : "SASL_SSL",
            "ssl.truststore.type", "PEM", "ssl.truststore.location", fields.get("ca")));
        if (!fields.get("certificate").isEmpty()) {
            made.put("ssl.keystore.type", "PEM");
            made.put("ssl.keystore.certificate.chain", Files.readString(Path.of(fields.get("certificate"))));
            made.put("ssl.keystore.key", Files.readString(Path.of(fields.get("key"))));
        }
        if (mechanism.equals("OAUTHBEARER")) {
            addToken(made);
        } else if (!mechanism.isEmpty()) {
            var module = SASL + (mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule");
            made.put("sasl.mechanism", mechanism);
            made.put("sasl.jaas.config", module + " required username=\"" + fields.get("user") + "\" password=\"" + fields.get("password") + "\";");
        }
        return made;
    }

    /** The client reads its token from a file, since 3.1, with Jackson; since 3.9.1 only from files that a property of the JVM names. */
    private void addToken(Map<String, Object> settings) throws Exception {
        var handler = SASL + "oauthbearer.OAuthBearerLoginCallbackHandler";
        try {
            Class.forName(handler);
            Class.forName("com.fasterxml.jackson.databind.ObjectMapper");
        } catch (ClassNotFoundException missing) {
            throw new Absent("it reads no token from a file, or only with Jackson, which applications add: Kafka's tools have it");
        }
        var file = Files.writeString(Files.createTempFile("token", ""), fields.get("token"));
        file.toFile().deleteOnExit();
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", file.toUri().toString());
        settings.putAll(Map.of(
            "sasl.mechanism", "OAUTHBEARER", "sasl.jaas.config", SASL + "oauthbearer.OAuthBearerLoginModule required;",
            "sasl.login.callback.handler.class", handler, "sasl.oauthbearer.token.endpoint.url", file.toUri().toString()));
    }

    /** The error with the first cause that says something else. */
    static String text(Throwable problem) {
        var text = problem.getClass().getSimpleName() + ": " + problem.getMessage();
        var cause = problem.getCause();
        if (cause == null || String.valueOf(cause.getMessage()).equals(problem.getMessage())) return text;
        return text + "; " + cause.getClass().getSimpleName() + ": " + cause.getMessage();
    }
}
