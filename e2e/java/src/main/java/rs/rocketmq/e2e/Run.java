package rs.rocketmq.e2e;

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** What a running program is given: where its lines go, and whether it was told to stop. */
final class Run {
    private static final PrintStream LINES =
        new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);

    private final String id;
    private final CountDownLatch stop = new CountDownLatch(1);

    Run(String id) {
        this.id = id;
    }

    void print(Json line) {
        if (id != null) {
            line.put("id", id);
        }
        String text = line.end();
        synchronized (LINES) {
            LINES.println(text);
            LINES.flush();
        }
    }

    void error(Throwable error) {
        java.io.StringWriter trace = new java.io.StringWriter();
        error.printStackTrace(new java.io.PrintWriter(trace));
        print(Json.op("failed").put("error", String.valueOf(error)).put("trace", trace.toString()));
    }

    void stop() {
        stop.countDown();
    }

    boolean stopped() {
        return stop.getCount() == 0;
    }

    /** Waits up to {@code millis} for the order to stop; true when it came. */
    boolean sleep(long millis) {
        try {
            return stop.await(millis, TimeUnit.MILLISECONDS);
        } catch (InterruptedException e) {
            stop.countDown();
            return true;
        }
    }
}
