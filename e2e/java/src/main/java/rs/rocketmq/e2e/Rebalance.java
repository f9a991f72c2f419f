package rs.rocketmq.e2e;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * How long a large group takes to share its queues anew: {@code --consumers} members, each a client of its own, on the
 * {@code --queues} queues of {@code --topic}. All join; then {@code --rounds} times the last one leaves and another joins.
 * It is settled when every queue has exactly one member. One line {@code bench} per event: its name and milliseconds.
 */
final class Rebalance {
    private static final long POLL_MS = 2;
    /** Clients that start at a time; each waits for the broker most of the time. */
    private static final int STARTERS = 8;

    private final Run run;
    private final String namesrv;
    private final String topic;
    private final int queues;
    private final int consumers;
    private final int rounds;
    private final long limitMs;
    private final List<DefaultMQPushConsumer> members = new ArrayList<>();

    private Rebalance(Run run, Options options) {
        this.run = run;
        namesrv = options.required("namesrv");
        topic = options.required("topic");
        queues = (int) options.number("queues", 1000);
        consumers = (int) options.number("consumers", 200);
        rounds = (int) options.number("rounds", 3);
        limitMs = options.number("limit-seconds", 120) * 1000;
    }

    static void run(Run run, String[] args, int from) throws Exception {
        new Rebalance(run, new Options(args, from, "namesrv", "topic", "queues", "consumers", "rounds",
            "limit-seconds")).execute();
    }

    private void execute() throws Exception {
        for (int i = 0; i < consumers; i++) {
            members.add(member(i));
        }
        long began = System.nanoTime();
        ExecutorService starters = Executors.newFixedThreadPool(STARTERS);
        List<Future<?>> started = new ArrayList<>();
        for (DefaultMQPushConsumer member : members) {
            started.add(starters.submit(() -> {
                member.start();
                return null;
            }));
        }
        for (Future<?> future : started) {
            future.get();
        }
        starters.shutdown();
        settled("all join", began);
        for (int round = 0; round < rounds; round++) {
            DefaultMQPushConsumer last = members.remove(members.size() - 1);
            began = System.nanoTime();
            last.shutdown();
            settled("one leaves", began);
            DefaultMQPushConsumer another = member(consumers + round);
            members.add(another);
            began = System.nanoTime();
            another.start();
            settled("one joins", began);
        }
        for (DefaultMQPushConsumer member : members) {
            member.shutdown();
        }
        run.print(Json.op("done"));
    }

    private DefaultMQPushConsumer member(int number) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("e2e_rebalance");
        consumer.setNamesrvAddr(namesrv);
        // Names of one length, so that a newcomer is the last of all.
        consumer.setInstanceName(String.format("member-%06d", number));
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(
            (MessageListenerConcurrently) (messages, context) -> ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        return consumer;
    }

    private void settled(String event, long began) throws Exception {
        while (!isSettled()) {
            if ((System.nanoTime() - began) / 1_000_000 > limitMs) {
                throw new IllegalStateException(event + ": not settled after " + limitMs + " ms");
            }
            Thread.sleep(POLL_MS);
        }
        long tookMs = (System.nanoTime() - began) / 1_000_000;
        run.print(Json.op("bench").put("event", event).put("ms", tookMs));
    }

    private boolean isSettled() {
        Set<MessageQueue> all = new HashSet<>();
        int places = 0;
        for (DefaultMQPushConsumer member : members) {
            for (MessageQueue queue :
                member.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet()) {
                if (queue.getTopic().equals(topic)) {
                    places++;
                    all.add(queue);
                }
            }
        }
        return places == queues && all.size() == queues;
    }
}
