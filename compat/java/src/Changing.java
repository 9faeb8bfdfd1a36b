import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;

/** Changes of the brokers, which the driver requests with a line on standard output; a line on standard input confirms them. */
final class Changing {
    private static final BufferedReader ANSWERS = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));

    /** The broker was restarted; of several brokers, the leader of the topic's first partition after kill -9. */
    static void restart(String topic) throws IOException {
        if (requested("restart", topic) == null) throw new Absent("the broker cannot be restarted here");
    }

    /** The leaders of the topic, and of internal topics, are other brokers, if there are several. */
    static void move(String topic) throws IOException {
        requested("move", topic);
    }

    private static String requested(String what, String topic) throws IOException {
        Driver.print("\"" + what + "\": \"" + topic + "\"");
        return ANSWERS.readLine();
    }

    private Changing() {
    }
}
