import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Apache Kafka's tools by their main classes, one after the other in one JVM: starting a JVM takes longer than most calls.
 *
 * A line of the standard input is one call: the class, what the tool reads from its own standard input, and its arguments, each in base64 and
 * separated by spaces. A line of the standard output answers it: exit status, standard output and standard error.
 */
public final class ToolHost {
    /** Ends a tool that calls System.exit. */
    private static final class Exited extends Error {
        Exited() {
            super("the tool exits", null, false, false);
        }
    }

    /** A tool's output; the underlying stream changes with each call. */
    private static final class Swapped extends OutputStream {
        private volatile ByteArrayOutputStream target = new ByteArrayOutputStream();
        private volatile boolean muted;

        @Override
        public void write(int one) {
            if (!muted) target.write(one);
        }

        @Override
        public void write(byte[] data, int start, int length) {
            if (!muted) target.write(data, start, length);
        }

        String taken() {
            return Base64.getEncoder().encodeToString(target.toByteArray());
        }
    }

    /** Loads the tools' classes again for each call, so that no call sees static fields of another. */
    private static final class Fresh extends URLClassLoader {
        Fresh(URL[] places) {
            super(places, ToolHost.class.getClassLoader());
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            if (!name.startsWith("org.apache.kafka.tools.") && !name.startsWith("kafka.tools.") && !name.startsWith("kafka.admin.")) {
                return super.loadClass(name, resolve);
            }
            synchronized (getClassLoadingLock(name)) {
                var found = findLoadedClass(name);
                return found != null ? found : findClass(name);
            }
        }
    }

    private static final Swapped OUT = new Swapped();
    private static final Swapped ERR = new Swapped();
    private static final List<Runnable> HOOKS = new ArrayList<>();
    private static Integer status;

    public static void main(String[] arguments) throws Exception {
        var answers = System.out;
        System.setOut(new PrintStream(OUT, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(ERR, true, StandardCharsets.UTF_8));
        var calls = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        Exit.setExitProcedure(ToolHost::exit);
        Exit.setHaltProcedure(ToolHost::exit);
        Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
        var places = places();
        for (String line; (line = calls.readLine()) != null; ) {
            var parts = Arrays.stream(line.split(" ", -1)).map(part -> Base64.getDecoder().decode(part)).toList();
            var texts = parts.stream().map(part -> new String(part, StandardCharsets.UTF_8)).toArray(String[]::new);
            OUT.target = new ByteArrayOutputStream();
            ERR.target = new ByteArrayOutputStream();
            System.setIn(new ByteArrayInputStream(parts.get(1)));
            int ended = run(places, texts[0], Arrays.copyOfRange(texts, 2, texts.length));
            System.out.flush();
            System.err.flush();
            answers.println(ended + " " + OUT.taken() + " " + ERR.taken());
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static int run(URL[] places, String tool, String[] arguments) throws IOException {
        status = null;
        HOOKS.clear();
        try (var loader = new Fresh(places)) {
            Thread.currentThread().setContextClassLoader(loader);
            int ended = call(loader, tool, arguments);
            mute(false); // what a tool prints while the JVM ends is printed
            for (var hook : List.copyOf(HOOKS)) hook.run();
            return ended;
        }
    }

    private static int call(ClassLoader loader, String tool, String[] arguments) {
        int ended = 0;
        try {
            loader.loadClass(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException problem) {
            if (!(problem.getCause() instanceof Exited)) {
                problem.getCause().printStackTrace();
                ended = 1;
            }
        } catch (ReflectiveOperationException problem) {
            problem.printStackTrace();
            ended = 1;
        }
        synchronized (ToolHost.class) {
            return status != null ? status : ended;
        }
    }

    /** The first exit counts: a tool may catch what ends it here, complain and exit again. */
    private static synchronized void exit(int code, String message) {
        if (status == null) status = code;
        mute(true);
        throw new Exited();
    }

    private static void mute(boolean muted) {
        OUT.muted = muted;
        ERR.muted = muted;
    }

    private static URL[] places() throws IOException {
        var places = new ArrayList<URL>();
        for (var place : System.getProperty("java.class.path").split(File.pathSeparator)) places.add(new File(place).toURI().toURL());
        return places.toArray(URL[]::new);
    }
}
