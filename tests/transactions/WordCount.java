import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Kafka Streams' word count, exactly once: `WordCount BOOTSTRAP APPLICATION SOURCE TARGET STATE-DIRECTORY`. Each word of a line in SOURCE
 * makes a record in TARGET with the word and its count so far. It ends when its standard input ends, and with status 1 if it fails.
 */
public final class WordCount {
    public static void main(String[] arguments) throws Exception {
        var settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", arguments[1]);
        settings.put("state.dir", arguments[4]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("statestore.cache.max.bytes", 0); // every count is written
        settings.put("commit.interval.ms", 300);
        settings.put("consumer.session.timeout.ms", 6_000); // of an instance that is killed
        settings.put("consumer.heartbeat.interval.ms", 500);
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);

        var builder = new StreamsBuilder();
        builder.stream(arguments[2], Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> List.of(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.as("words"))
            .count()
            .toStream()
            .mapValues(String::valueOf)
            .to(arguments[3], Produced.with(Serdes.String(), Serdes.String()));

        var streams = new KafkaStreams(builder.build(), settings);
        var failed = new CountDownLatch(1);
        streams.setStateListener((state, before) -> {
            if (state == KafkaStreams.State.ERROR) failed.countDown();
        });
        streams.start();
        var reader = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException closed) {
                // the end
            }
            streams.close();
            System.exit(0);
        });
        reader.start();
        failed.await();
        System.exit(1);
    }
}
