package rs.rocketmq.e2e;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends messages and prints one line per message: {@code send} with the result, or {@code error}.
 * Keys are {@code PREFIX-THREAD-SEQUENCE}. With {@code --order} a thread's messages all go to one queue,
 * and the property {@code seq} counts them. With {@code --trace} each send leaves a trace. In mode
 * {@code request} a send waits for a consumer's reply.
 */
final class Produce {
    private static final long PAUSE_AFTER_ERROR_MS = 100;

    private final Run run;
    private final DefaultMQProducer producer;
    private final String topic;
    private final String mode;
    private final String[] tags;
    private final String keyPrefix;
    private final long count;
    private final int size;
    private final int threads;
    private final boolean order;
    private final long rate;
    private final long deadline;
    private final int batchSize;
    private final long timeoutMs;
    private final Semaphore inFlight;
    private final int inFlightMax;
    private final Map<String, String> properties;
    private final int delayLevel;
    private final long started = System.nanoTime();
    private final AtomicLong sent = new AtomicLong();
    private final AtomicLong acknowledged = new AtomicLong();
    private final AtomicLong errors = new AtomicLong();

    private Produce(Run run, Options options) {
        this.run = run;
        topic = options.required("topic");
        mode = options.text("mode", "sync");
        tags = options.text("tags", "").split(",", -1);
        keyPrefix = options.text("key-prefix", "k");
        long seconds = options.number("seconds", 0);
        count = options.number("count", seconds > 0 ? Long.MAX_VALUE : 1);
        size = (int) options.number("size", 64);
        threads = (int) options.number("threads", 1);
        order = options.isSet("order");
        rate = options.number("rate", 0);
        deadline = seconds > 0 ? started + seconds * 1_000_000_000L : Long.MAX_VALUE;
        batchSize = (int) options.number("batch-size", 10);
        timeoutMs = options.number("timeout-ms", 3000);
        inFlightMax = (int) options.number("in-flight", 64);
        inFlight = new Semaphore(inFlightMax);
        properties = options.properties();
        delayLevel = (int) options.number("delay-level", 0);
        int retries = (int) options.number("retries", 2);
        String group = options.text("group", "e2e_producer");
        producer = options.isSet("trace") ? new DefaultMQProducer(group, true, null) : new DefaultMQProducer(group);
        producer.setNamesrvAddr(options.required("namesrv"));
        producer.setInstanceName(options.text("instance", "p" + System.nanoTime()));
        producer.setSendMsgTimeout((int) timeoutMs);
        producer.setRetryTimesWhenSendFailed(retries);
        producer.setRetryTimesWhenSendAsyncFailed(retries);
        producer.setMaxMessageSize((int) options.number("client-max-bytes", 4 * 1024 * 1024));
        producer.setPollNameServerInterval((int) options.number("route-poll-ms", 30_000));
        producer.setDefaultTopicQueueNums((int) options.number("queues", 4));
    }

    static void run(Run run, String[] args, int from) throws Exception {
        new Produce(run, new Options(args, from, "namesrv", "topic", "mode", "tags", "key-prefix", "count",
            "size", "threads", "order", "rate", "seconds", "batch-size", "timeout-ms", "in-flight", "property",
            "retries", "group", "instance", "client-max-bytes", "queues", "route-poll-ms", "delay-level",
            "trace")).execute();
    }

    private void execute() throws Exception {
        producer.start();
        run.print(Json.op("ready"));
        List<Thread> workers = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            int thread = i;
            Thread worker = new Thread(() -> work(thread), "send-" + i);
            workers.add(worker);
            worker.start();
        }
        for (Thread worker : workers) {
            worker.join();
        }
        inFlight.acquire(inFlightMax);
        if (mode.equals("oneway")) {
            barrier();
        }
        producer.shutdown();
        run.print(Json.op("done").put("program", "produce").put("sent", sent.get())
            .put("acknowledged", acknowledged.get()).put("errors", errors.get()));
    }

    /**
     * One synchronous send behind the one-way ones, on the same connection: once it is answered, they were read.
     * A connection that is closed with answers unread is reset, and takes with it what the broker had not read yet.
     */
    private void barrier() {
        List<Message> last = java.util.Collections.singletonList(message(threads, 0));
        sent.incrementAndGet();
        try {
            acknowledge(last, threads, producer.send(last.get(0)));
        } catch (Exception e) {
            fail(last, threads, e);
        }
    }

    private void work(int thread) {
        long share = count == Long.MAX_VALUE ? count : count / threads + (thread < count % threads ? 1 : 0);
        long sequence = 0;
        while (sequence < share && !run.stopped() && System.nanoTime() < deadline) {
            if (rate > 0) {
                long due = started + (long) (sequence * threads * 1e9 / rate);
                long wait = (due - System.nanoTime()) / 1_000_000;
                if (wait > 0 && run.sleep(wait)) {
                    return;
                }
            }
            int size = mode.equals("batch") ? (int) Math.min(batchSize, share - sequence) : 1;
            List<Message> messages = new ArrayList<>(size);
            for (int i = 0; i < size; i++) {
                messages.add(message(thread, sequence++));
            }
            sent.addAndGet(size);
            if (!send(thread, messages) && run.sleep(PAUSE_AFTER_ERROR_MS)) {
                return;
            }
        }
    }

    private Message message(int thread, long sequence) {
        String key = keyPrefix + "-" + thread + "-" + sequence;
        Message message = new Message(topic, Body.make(key, size));
        message.setKeys(key);
        String tag = tags[(int) (sequence % tags.length)];
        if (!tag.isEmpty()) {
            message.setTags(tag);
        }
        message.putUserProperty("seq", Long.toString(sequence));
        properties.forEach(message::putUserProperty);
        if (delayLevel > 0) {
            message.setDelayTimeLevel(delayLevel);
        }
        return message;
    }

    /** False when the send failed at once. */
    private boolean send(int thread, List<Message> messages) {
        Message message = messages.get(0);
        try {
            switch (mode) {
                case "sync":
                    acknowledge(messages, thread, order
                        ? producer.send(message, new SelectMessageQueueByHash(), thread)
                        : producer.send(message));
                    break;
                case "batch":
                    acknowledge(messages, thread, producer.send(messages));
                    break;
                case "oneway":
                    if (order) {
                        producer.sendOneway(message, new SelectMessageQueueByHash(), thread);
                    } else {
                        producer.sendOneway(message);
                    }
                    run.print(line("send", thread, message).put("status", "ONEWAY"));
                    break;
                case "async":
                    sendAsync(thread, message);
                    break;
                case "request":
                    run.print(line("send", thread, message).put("status", "REPLIED")
                        .put("reply", Body.text(request(message).getBody())));
                    break;
                default:
                    throw new IllegalArgumentException(
                        "argument --mode '" + mode + "': expected sync, async, oneway, batch or request");
            }
            return true;
        } catch (Exception e) {
            fail(messages, thread, e);
            return false;
        }
    }

    /**
     * The reply to a request. The 5.3.3 client ends a waiting {@code request} when the send is answered, and calls back
     * with no reply then, so that the call that has one is waited for here.
     */
    private Message request(Message message) throws Exception {
        CompletableFuture<Message> reply = new CompletableFuture<>();
        producer.request(message, new RequestCallback() {
            @Override
            public void onSuccess(Message received) {
                if (received != null) {
                    reply.complete(received);
                }
            }

            @Override
            public void onException(Throwable e) {
                reply.completeExceptionally(e);
            }
        }, timeoutMs);
        return reply.get(timeoutMs, TimeUnit.MILLISECONDS);
    }

    private void sendAsync(int thread, Message message) throws Exception {
        List<Message> one = java.util.Collections.singletonList(message);
        // The 5.x client may report one failure twice.
        AtomicBoolean held = new AtomicBoolean(true);
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                acknowledge(one, thread, result);
                release();
            }

            @Override
            public void onException(Throwable e) {
                fail(one, thread, e);
                // Slows the loop down while the broker is away.
                run.sleep(PAUSE_AFTER_ERROR_MS);
                release();
            }

            private void release() {
                if (held.getAndSet(false)) {
                    inFlight.release();
                }
            }
        };
        inFlight.acquire();
        try {
            if (order) {
                producer.send(message, new SelectMessageQueueByHash(), thread, callback);
            } else {
                producer.send(message, callback);
            }
        } catch (Exception e) {
            inFlight.release();
            throw e;
        }
    }

    private Json line(String op, int thread, Message message) {
        return Json.op(op).put("key", message.getKeys()).put("topic", topic).put("tags", message.getTags())
            .put("thread", thread).put("bodyLength", message.getBody().length)
            .put("bodySha256", Body.sha256(message.getBody()));
    }

    private void acknowledge(List<Message> messages, int thread, SendResult result) {
        // A batch answers one result: ids joined by commas, and the queue offset of its first message.
        String[] ids = split(result.getMsgId());
        String[] offsetIds = split(result.getOffsetMsgId());
        for (int i = 0; i < messages.size(); i++) {
            acknowledged.incrementAndGet();
            run.print(line("send", thread, messages.get(i)).put("status", result.getSendStatus().name())
                .put("msgId", i < ids.length ? ids[i] : null)
                .put("offsetMsgId", i < offsetIds.length ? offsetIds[i] : null)
                .put("queueId", result.getMessageQueue().getQueueId())
                .put("queueOffset", result.getQueueOffset() + i)
                .put("brokerName", result.getMessageQueue().getBrokerName()));
        }
    }

    private static String[] split(String ids) {
        return ids == null ? new String[0] : ids.split(",");
    }

    private void fail(List<Message> messages, int thread, Throwable error) {
        long code = error instanceof MQBrokerException ? ((MQBrokerException) error).getResponseCode()
            : error instanceof MQClientException ? ((MQClientException) error).getResponseCode() : -1;
        for (Message message : messages) {
            errors.incrementAndGet();
            run.print(line("error", thread, message).put("code", code).put("error", String.valueOf(error)));
        }
    }
}
