package rs.rocketmq.e2e;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * Send load that fills what the broker gives: {@code --mode sync} with {@code --threads} closed loops, or
 * {@code --mode async} with at most {@code --in-flight} unanswered sends. {@code --warmup-seconds}, then
 * {@code --seconds} measured: lines {@code measuring} at its start and {@code bench} with the figures at its end, so
 * that a watcher can read the broker's CPU over the same window. Works on any broker.
 */
final class Bench {
    private final Run run;
    private final DefaultMQProducer producer = new DefaultMQProducer();
    private final String topic;
    private final boolean async;
    private final int threads;
    private final int inFlightMax;
    private final Semaphore inFlight;
    private final byte[] body;
    private final long warmupMs;
    private final long measureMs;
    private final Histogram histogram = new Histogram();
    private final AtomicLong errors = new AtomicLong();
    private volatile boolean measuring;
    private volatile boolean ended;
    private volatile String firstError;

    private Bench(Run run, Options options) {
        this.run = run;
        topic = options.required("topic");
        String mode = options.text("mode", "sync");
        if (!mode.equals("sync") && !mode.equals("async")) {
            throw new IllegalArgumentException("argument --mode '" + mode + "': expected sync or async");
        }
        async = mode.equals("async");
        threads = (int) options.number("threads", async ? 1 : 64);
        inFlightMax = (int) options.number("in-flight", 512);
        inFlight = new Semaphore(inFlightMax);
        body = Body.make("bench", (int) options.number("size", 128));
        warmupMs = options.number("warmup-seconds", 20) * 1000;
        measureMs = options.number("seconds", 20) * 1000;
        producer.setProducerGroup(options.text("group", "e2e_bench"));
        producer.setNamesrvAddr(options.required("namesrv"));
        producer.setInstanceName("b" + System.nanoTime());
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        producer.setDefaultTopicQueueNums((int) options.number("queues", 8));
        producer.setRetryTimesWhenSendFailed(0);
        producer.setRetryTimesWhenSendAsyncFailed(0);
    }

    static void run(Run run, String[] args, int from) throws Exception {
        new Bench(run, new Options(args, from, "namesrv", "topic", "mode", "threads", "in-flight", "size",
            "warmup-seconds", "seconds", "group", "queues")).execute();
    }

    private void execute() throws Exception {
        OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        producer.start();
        List<Thread> workers = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            Thread worker = new Thread(async ? this::asyncLoop : this::syncLoop, "bench-" + i);
            workers.add(worker);
            worker.start();
        }
        run.print(Json.op("ready"));
        run.sleep(warmupMs);
        errors.set(0);
        firstError = null;
        long cpu = system.getProcessCpuTime();
        long start = System.nanoTime();
        measuring = true;
        run.print(Json.op("measuring"));
        run.sleep(measureMs);
        measuring = false;
        double seconds = (System.nanoTime() - start) / 1e9;
        double cpuSeconds = (system.getProcessCpuTime() - cpu) / 1e9;
        long messages = histogram.count();
        run.print(Json.op("bench").put("topic", topic).put("mode", async ? "async" : "sync")
            .put("threads", threads).put("inFlight", async ? inFlightMax : threads).put("size", body.length)
            .put("seconds", seconds).put("messages", messages).put("errors", errors.get())
            .put("firstError", firstError).put("messagesPerSecond", messages / seconds)
            .put("clientCpuSeconds", cpuSeconds)
            .put("clientCpuSecondsPer100000", messages == 0 ? 0 : cpuSeconds * 100_000 / messages)
            .put("meanMs", histogram.meanMs()).put("p50Ms", histogram.percentileMs(0.50))
            .put("p90Ms", histogram.percentileMs(0.90)).put("p99Ms", histogram.percentileMs(0.99))
            .put("p999Ms", histogram.percentileMs(0.999)).put("maxMs", histogram.percentileMs(1)));
        ended = true;
        for (Thread worker : workers) {
            worker.join();
        }
        inFlight.acquire(inFlightMax);
        producer.shutdown();
        run.print(Json.op("done").put("program", "bench"));
    }

    private void syncLoop() {
        while (!ended) {
            long start = System.nanoTime();
            try {
                answered(start, producer.send(new Message(topic, body)));
            } catch (Exception e) {
                failed(e);
            }
        }
    }

    private void asyncLoop() {
        while (!ended) {
            try {
                inFlight.acquire();
            } catch (InterruptedException e) {
                return;
            }
            long start = System.nanoTime();
            try {
                producer.send(new Message(topic, body), new SendCallback() {
                    @Override
                    public void onSuccess(SendResult result) {
                        answered(start, result);
                        inFlight.release();
                    }

                    @Override
                    public void onException(Throwable e) {
                        failed(e);
                        inFlight.release();
                    }
                });
            } catch (Exception e) {
                failed(e);
                inFlight.release();
            }
        }
    }

    private void answered(long start, SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            failed(new IllegalStateException("send status " + result.getSendStatus()));
        } else if (measuring) {
            histogram.record(System.nanoTime() - start);
        }
    }

    private void failed(Throwable e) {
        errors.incrementAndGet();
        if (firstError == null) {
            firstError = String.valueOf(e);
        }
        // A broker that refuses at once must not turn the loop into a spin.
        run.sleep(10);
    }

    /** Microseconds in buckets of 1/64 of a power of two, so within 1.6 %. */
    private static final class Histogram {
        private static final int SUB_BITS = 6;
        private final AtomicLongArray buckets = new AtomicLongArray(40 << SUB_BITS);
        private final AtomicLong count = new AtomicLong();
        private final AtomicLong sumMicros = new AtomicLong();

        void record(long nanos) {
            long micros = Math.max(1, nanos / 1000);
            int shift = Math.max(0, 63 - Long.numberOfLeadingZeros(micros) - SUB_BITS);
            buckets.incrementAndGet((int) ((shift << SUB_BITS) + (micros >> shift)));
            count.incrementAndGet();
            sumMicros.addAndGet(micros);
        }

        long count() {
            return count.get();
        }

        double meanMs() {
            return count.get() == 0 ? 0 : sumMicros.get() / 1000.0 / count.get();
        }

        double percentileMs(double part) {
            long wanted = Math.max(1, (long) Math.ceil(part * count.get()));
            long seen = 0;
            for (int i = 0; i < buckets.length(); i++) {
                seen += buckets.get(i);
                if (seen >= wanted && seen > 0) {
                    // Inverse of record(): the index is (shift << 6) + (micros >> shift), micros >> shift < 128.
                    int shift = Math.max(0, (i >> SUB_BITS) - 1);
                    long micros = (long) (i - (shift << SUB_BITS)) << shift;
                    return micros / 1000.0;
                }
            }
            return 0;
        }
    }
}
