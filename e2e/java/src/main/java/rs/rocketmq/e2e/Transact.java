package rs.rocketmq.e2e;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends messages in transactions and prints one line per message, {@code transaction}, and one per check,
 * {@code checked}. Keys are {@code PREFIX-THREAD-SEQUENCE}. Each message has a fate, one of {@code --fates} in
 * turn, which travels in the property {@code fate}: {@code commit} and {@code rollback} are decided at once,
 * {@code commit-2} at the second check, {@code never} not at all. When all are sent it answers checks until it
 * is stopped.
 */
final class Transact implements TransactionListener {
    private static final String FATE = "fate";
    private static final long PAUSE_AFTER_ERROR_MS = 100;

    private final Run run;
    private final TransactionMQProducer producer;
    private final String topic;
    private final String[] fates;
    private final String keyPrefix;
    private final long count;
    private final int size;
    private final int threads;
    private final long rate;
    private final Map<String, String> properties;
    private final long started = System.nanoTime();
    private final Map<String, Integer> checks = new ConcurrentHashMap<>();
    private final AtomicLong sent = new AtomicLong();

    private Transact(Run run, Options options) {
        this.run = run;
        topic = options.required("topic");
        fates = options.text("fates", "commit").split(",", -1);
        keyPrefix = options.text("key-prefix", "k");
        count = options.number("count", 1);
        size = (int) options.number("size", 64);
        threads = (int) options.number("threads", 1);
        rate = options.number("rate", 0);
        properties = options.properties();
        producer = new TransactionMQProducer(options.text("group", "e2e_transactions"));
        producer.setNamesrvAddr(options.required("namesrv"));
        producer.setInstanceName(options.text("instance", "t" + System.nanoTime()));
        producer.setSendMsgTimeout((int) options.number("timeout-ms", 3000));
        producer.setRetryTimesWhenSendFailed((int) options.number("retries", 2));
        producer.setHeartbeatBrokerInterval((int) options.number("heartbeat-ms", 30_000));
        producer.setTransactionListener(this);
    }

    static void run(Run run, String[] args, int from) throws Exception {
        new Transact(run, new Options(args, from, "namesrv", "topic", "fates", "key-prefix", "count", "size",
            "threads", "rate", "timeout-ms", "retries", "group", "instance", "heartbeat-ms", "property")).execute();
    }

    private void execute() throws Exception {
        producer.start();
        run.print(Json.op("ready"));
        List<Thread> workers = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            int thread = i;
            Thread worker = new Thread(() -> work(thread), "transact-" + i);
            workers.add(worker);
            worker.start();
        }
        for (Thread worker : workers) {
            worker.join();
        }
        while (!run.sleep(1000)) {
            // Checks are answered meanwhile.
        }
        producer.shutdown();
        run.print(Json.op("done").put("program", "transact").put("sent", sent.get()));
    }

    private void work(int thread) {
        for (long sequence = 0; sequence < count && !run.stopped(); sequence++) {
            if (rate > 0) {
                long due = started + (long) (sequence * threads * 1e9 / rate);
                long wait = (due - System.nanoTime()) / 1_000_000;
                if (wait > 0 && run.sleep(wait)) {
                    return;
                }
            }
            String key = keyPrefix + "-" + thread + "-" + sequence;
            String fate = fates[(int) (sequence % fates.length)];
            Message message = new Message(topic, Body.make(key, size));
            message.setKeys(key);
            message.putUserProperty(FATE, fate);
            properties.forEach(message::putUserProperty);
            sent.incrementAndGet();
            Json line = Json.op("transaction").put("key", key).put("fate", fate);
            try {
                TransactionSendResult result = producer.sendMessageInTransaction(message, null);
                run.print(line.put("status", result.getSendStatus().name()).put("msgId", result.getMsgId())
                    .put("transactionId", result.getTransactionId()));
            } catch (Exception e) {
                run.print(line.put("status", "FAILED").put("error", String.valueOf(e)));
                if (run.sleep(PAUSE_AFTER_ERROR_MS)) {
                    return;
                }
            }
        }
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
        return decide(message.getProperty(FATE), 0);
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        String fate = message.getProperty(FATE);
        int number = checks.merge(message.getKeys(), 1, Integer::sum);
        run.print(Json.op("checked").put("key", message.getKeys()).put("fate", fate).put("topic", message.getTopic())
            .put("transactionId", message.getTransactionId()).put("bodySha256", Body.sha256(message.getBody())));
        return decide(fate, number);
    }

    /** What the fate says when it is asked for the {@code number}th time. */
    private static LocalTransactionState decide(String fate, int number) {
        if (fate.equals("never")) {
            return LocalTransactionState.UNKNOW;
        }
        int dash = fate.indexOf('-');
        int decidedAt = dash < 0 ? 0 : Integer.parseInt(fate.substring(dash + 1));
        if (number < decidedAt) {
            return LocalTransactionState.UNKNOW;
        }
        return fate.startsWith("commit") ? LocalTransactionState.COMMIT_MESSAGE
            : LocalTransactionState.ROLLBACK_MESSAGE;
    }
}
