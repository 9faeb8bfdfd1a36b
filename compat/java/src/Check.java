import java.util.Objects;
import java.util.concurrent.ExecutionException;

/** Assertions of features. */
final class Check {
    static final long PATIENCE_MS = 30_000;

    interface Condition {
        boolean holds() throws Exception;
    }

    interface Call {
        void run() throws Exception;
    }

    static void that(boolean holds, String complaint) {
        if (!holds) throw new AssertionError(complaint);
    }

    static void equal(Object got, Object want, String what) {
        that(Objects.equals(got, want), what + ": " + got + " instead of " + want);
    }

    /** Wait until it holds. */
    static void until(String what, Condition condition) throws Exception {
        long end = System.nanoTime() + PATIENCE_MS * 1_000_000;
        while (!condition.holds()) {
            that(System.nanoTime() < end, "after " + PATIENCE_MS / 1000 + " s still waiting for: " + what);
            Thread.sleep(20);
        }
    }

    /** Check that a call fails with this error, itself or as the cause of a future's failure. */
    static void fails(Class<? extends Exception> expected, String what, Call call) throws Exception {
        try {
            call.run();
        } catch (Exception problem) {
            var cause = problem instanceof ExecutionException && problem.getCause() != null ? problem.getCause() : problem;
            that(expected.isInstance(cause), what + ": " + cause + " instead of " + expected.getSimpleName());
            return;
        }
        throw new AssertionError(what + ": no " + expected.getSimpleName());
    }

    private Check() {
    }
}
