package rs.rocketmq.e2e;

import java.nio.charset.StandardCharsets;
import java.text.SimpleDateFormat;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Date;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.filter.ExpressionType;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Receives messages and prints one {@code recv} line for each. It ends after {@code --count} messages, after
 * {@code --idle-ms} without one, after {@code --seconds}, or when told to. Several topics are joined by commas.
 *
 * <p>Modes: {@code push} (concurrently), {@code orderly}, {@code pull} (every queue of a topic from its first to
 * its last offset, with a {@code queue} line for each), {@code lite-pull} (subscribe), {@code lite-assign}. In
 * the first two a message fails as long as it was delivered again fewer than {@code --fail-times}. With
 * {@code --reply} a {@code push} consumer answers each message with {@code re: KEY}. {@code --sql} filters by an
 * expression instead of {@code --tags}, except in {@code lite-assign}.
 */
final class Consume {
    private static final long POLL_MS = 50;

    private final Run run;
    private final String[] topics;
    private final MessageSelector selector;
    private final String group;
    private final String namesrv;
    private final String instance;
    private final String model;
    private final String from;
    private final long fromTimeMs;
    private final String strategy;
    private final long suspendMs;
    private final int batch;
    private final int threads;
    private final long count;
    private final long idleMs;
    private final long deadline;
    private final long consumeMs;
    private final int heartbeatMs;
    private final int routePollMs;
    private final int failTimes;
    private final boolean reply;
    private final int maxReconsumeTimes;
    private final AtomicLong received = new AtomicLong();
    private volatile long lastArrival = System.nanoTime();

    private Consume(Run run, Options options) {
        this.run = run;
        topics = options.required("topic").split(",");
        String sql = options.text("sql", null);
        selector = sql == null ? MessageSelector.byTag(options.text("tags", "*")) : MessageSelector.bySql(sql);
        group = options.text("group", "e2e_consumer");
        namesrv = options.required("namesrv");
        instance = options.text("instance", "c" + System.nanoTime());
        model = oneOf("model", options.text("model", "cluster"), "cluster", "broadcast").equals("broadcast")
            ? "BROADCASTING" : "CLUSTERING";
        from = oneOf("from", options.text("from", "first"), "first", "last", "time");
        fromTimeMs = options.number("from-time-ms", 0);
        strategy = oneOf("strategy", options.text("strategy", "average"), "average", "circle", "room", "nearby",
            "hash");
        suspendMs = options.number("suspend-ms", 0);
        batch = (int) options.number("batch-size", 1);
        threads = (int) options.number("threads", 4);
        count = options.number("count", Long.MAX_VALUE);
        idleMs = options.number("idle-ms", 0);
        consumeMs = options.number("consume-ms", 0);
        heartbeatMs = (int) options.number("heartbeat-ms", 30_000);
        routePollMs = (int) options.number("route-poll-ms", 30_000);
        failTimes = (int) options.number("fail-times", 0);
        reply = options.isSet("reply");
        maxReconsumeTimes = (int) options.number("max-reconsume-times", -1);
        long seconds = options.number("seconds", 0);
        deadline = seconds > 0 ? System.nanoTime() + seconds * 1_000_000_000L : Long.MAX_VALUE;
    }

    private static String oneOf(String name, String value, String... allowed) {
        if (!java.util.Arrays.asList(allowed).contains(value)) {
            throw new IllegalArgumentException(
                "argument --" + name + " '" + value + "': expected " + String.join(" or ", allowed));
        }
        return value;
    }

    static void run(Run run, String[] args, int from) throws Exception {
        Options options = new Options(args, from, "namesrv", "topic", "mode", "model", "tags", "sql", "group", "from",
            "from-time-ms", "strategy", "suspend-ms", "count", "idle-ms", "seconds", "batch-size", "threads", "instance", "consume-ms", "heartbeat-ms",
            "route-poll-ms", "fail-times", "max-reconsume-times", "reply");
        Consume consume = new Consume(run, options);
        String mode = options.text("mode", "push");
        switch (mode) {
            case "push":
            case "orderly":
                consume.push(mode.equals("orderly"));
                break;
            case "pull":
                consume.pull();
                break;
            case "lite-pull":
            case "lite-assign":
                consume.litePull(mode.equals("lite-assign"));
                break;
            default:
                throw new IllegalArgumentException("argument --mode '" + mode
                    + "': expected push, orderly, pull, lite-pull or lite-assign");
        }
        run.print(Json.op("done").put("program", "consume").put("received", consume.received.get()));
    }

    private void push(boolean orderly) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(instance);
        // The enum lives in another package in 5.x, so it is never named here.
        consumer.setMessageModel(Enum.valueOf(consumer.getMessageModel().getDeclaringClass(), model));
        consumer.setConsumeFromWhere(fromWhere());
        consumer.setConsumeTimestamp(fromTime());
        consumer.setAllocateMessageQueueStrategy(allocation());
        consumer.setHeartbeatBrokerInterval(heartbeatMs);
        consumer.setPollNameServerInterval(routePollMs);
        consumer.setConsumeThreadMin(threads);
        consumer.setConsumeThreadMax(threads);
        consumer.setConsumeMessageBatchMaxSize(batch);
        consumer.setMaxReconsumeTimes(maxReconsumeTimes);
        for (String topic : topics) {
            consumer.subscribe(topic, selector);
        }
        DefaultMQProducer replier = reply ? startReplier() : null;
        if (orderly) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                arrived(messages);
                return fails(messages) ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
                    : ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                arrived(messages);
                if (replier != null) {
                    reply(replier, messages);
                }
                return fails(messages) ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                    : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        if (suspendMs > 0) {
            consumer.suspend();
        }
        consumer.start();
        run.print(Json.op("ready"));
        if (suspendMs > 0) {
            run.sleep(suspendMs);
            run.print(Json.op("resumed"));
            consumer.resume();
        }
        Set<String> assigned = new TreeSet<>();
        while (!finished()) {
            Set<String> now = names(
                consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet());
            if (!now.equals(assigned)) {
                assigned = now;
                run.print(Json.op("assigned").put("queues", assigned));
            }
            run.sleep(POLL_MS);
        }
        consumer.shutdown();
        if (replier != null) {
            replier.shutdown();
        }
    }

    private DefaultMQProducer startReplier() throws Exception {
        DefaultMQProducer replier = new DefaultMQProducer(group + "_replier");
        replier.setNamesrvAddr(namesrv);
        replier.setInstanceName(instance + "-replier");
        replier.start();
        return replier;
    }

    private static void reply(DefaultMQProducer replier, List<MessageExt> messages) {
        for (MessageExt message : messages) {
            try {
                byte[] body = ("re: " + message.getKeys()).getBytes(StandardCharsets.UTF_8);
                replier.send(MessageUtil.createReplyMessage(message, body));
            } catch (Exception e) {
                // A reply may reach nobody, since who asked does not wait any more or is not known yet.
            }
        }
    }

    private ConsumeFromWhere fromWhere() {
        switch (from) {
            case "last":
                return ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET;
            case "time":
                return ConsumeFromWhere.CONSUME_FROM_TIMESTAMP;
            default:
                return ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET;
        }
    }

    /** {@code --from-time-ms} to the second, as the client takes it. */
    private String fromTime() {
        return new SimpleDateFormat("yyyyMMddHHmmss").format(new Date(fromTimeMs));
    }

    /**
     * How members of a group share queues. The rooms are east and west: a broker's is what its name has in front of an
     * {@code @}, a member's what its instance name has in front of a {@code -}.
     */
    private AllocateMessageQueueStrategy allocation() {
        switch (strategy) {
            case "circle":
                return new AllocateMessageQueueAveragelyByCircle();
            case "hash":
                return new AllocateMessageQueueConsistentHash();
            case "room":
                AllocateMessageQueueByMachineRoom byRoom = new AllocateMessageQueueByMachineRoom();
                byRoom.setConsumeridcs(new TreeSet<>(Arrays.asList("east", "west")));
                return byRoom;
            case "nearby":
                return new AllocateMachineRoomNearby(new AllocateMessageQueueAveragely(),
                    new AllocateMachineRoomNearby.MachineRoomResolver() {
                        @Override
                        public String brokerDeployIn(MessageQueue queue) {
                            return queue.getBrokerName().split("@")[0];
                        }

                        @Override
                        public String consumerDeployIn(String clientId) {
                            return clientId.split("@")[1].split("-")[0];
                        }
                    });
            default:
                return new AllocateMessageQueueAveragely();
        }
    }

    /** Queues of the subscribed topics, without the group's retry topic, as {@code topic/broker/queueId}. */
    private static Set<String> names(Collection<MessageQueue> queues) {
        Set<String> names = new TreeSet<>();
        for (MessageQueue queue : queues) {
            if (!queue.getTopic().startsWith("%RETRY%")) {
                names.add(queue.getTopic() + "/" + queue.getBrokerName() + "/" + queue.getQueueId());
            }
        }
        return names;
    }

    private void pull() throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(instance);
        consumer.start();
        run.print(Json.op("ready"));
        for (String topic : topics) {
            for (MessageQueue queue : new TreeSet<>(consumer.fetchSubscribeMessageQueues(topic))) {
                pullQueue(consumer, queue);
            }
        }
        consumer.shutdown();
    }

    private void pullQueue(DefaultMQPullConsumer consumer, MessageQueue queue) throws Exception {
        long min = consumer.minOffset(queue);
        long max = consumer.maxOffset(queue);
        run.print(Json.op("queue").put("topic", queue.getTopic()).put("brokerName", queue.getBrokerName())
            .put("queueId", queue.getQueueId()).put("minOffset", min).put("maxOffset", max));
        if (!ExpressionType.isTagType(selector.getExpressionType())) {
            learnVersion(consumer, queue.getBrokerName());
        }
        long next = min;
        while (next < max && !finished()) {
            PullResult result = consumer.pull(queue, selector, next, 32);
            switch (result.getPullStatus()) {
                case FOUND:
                    arrived(result.getMsgFoundList());
                    break;
                case NO_MATCHED_MSG:
                    break;
                default:
                    throw new IllegalStateException("pull of " + queue + " at " + next + " below maximum " + max
                        + " answered " + result.getPullStatus());
            }
            if (result.getNextBeginOffset() <= next) {
                throw new IllegalStateException("pull of " + queue + " at " + next + " answered next offset "
                    + result.getNextBeginOffset());
            }
            next = result.getNextBeginOffset();
        }
        consumer.getDefaultMQPullConsumerImpl().updateConsumeOffsetToBroker(queue, next, false);
    }

    /**
     * The client pulls by an expression only once a heart-beat's answer told it the broker's version, and it knows the
     * broker's address only since it asked for offsets.
     */
    private void learnVersion(DefaultMQPullConsumer consumer, String brokerName) {
        MQClientInstance client = consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory();
        while (client.findBrokerAddressInSubscribe(brokerName, 0, false).getBrokerVersion() == 0 && !finished()) {
            client.sendHeartbeatToAllBrokerWithLock();
            run.sleep(POLL_MS);
        }
    }

    private void litePull(boolean assign) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(instance);
        // The enum lives in another package in 5.x, so it is never named here.
        consumer.setMessageModel(Enum.valueOf(consumer.getMessageModel().getDeclaringClass(), model));
        consumer.setConsumeFromWhere(fromWhere());
        consumer.setConsumeTimestamp(fromTime());
        consumer.setHeartbeatBrokerInterval(heartbeatMs);
        consumer.setPollNameServerInterval(routePollMs);
        if (assign) {
            consumer.start();
            List<MessageQueue> queues = new ArrayList<>();
            for (String topic : topics) {
                queues.addAll(consumer.fetchMessageQueues(topic));
            }
            consumer.assign(queues);
            run.print(Json.op("assigned").put("queues", names(queues)));
        } else {
            for (String topic : topics) {
                consumer.subscribe(topic, selector);
            }
            consumer.start();
        }
        run.print(Json.op("ready"));
        while (!finished()) {
            List<MessageExt> messages = consumer.poll(POLL_MS);
            if (!messages.isEmpty()) {
                arrived(messages);
            }
        }
        consumer.shutdown();
    }

    private boolean finished() {
        return run.stopped() || received.get() >= count || System.nanoTime() >= deadline
            || idleMs > 0 && System.nanoTime() - lastArrival > idleMs * 1_000_000L;
    }

    /** Whether one of the messages has not failed often enough yet. */
    private boolean fails(List<MessageExt> messages) {
        return messages.stream().anyMatch(message -> message.getReconsumeTimes() < failTimes);
    }

    private void arrived(List<MessageExt> messages) {
        for (MessageExt message : messages) {
            String body = Body.text(message.getBody());
            Map<String, String> properties = new TreeMap<>(message.getProperties());
            run.print(Json.op("recv").put("topic", message.getTopic()).put("brokerName", message.getBrokerName())
                .put("queueId", message.getQueueId()).put("queueOffset", message.getQueueOffset())
                .put("msgId", message.getMsgId()).put("keys", message.getKeys()).put("tags", message.getTags())
                .put("body", body).put("bodyLength", message.getBody().length)
                .put("bodySha256", Body.sha256(message.getBody())).put("flag", message.getFlag())
                .put("sysFlag", message.getSysFlag()).put("bodyCRC", message.getBodyCRC())
                .put("size", message.getStoreSize()).put("physicalOffset", message.getCommitLogOffset())
                .put("reconsumeTimes", message.getReconsumeTimes())
                .put("preparedTransactionOffset", message.getPreparedTransactionOffset())
                .put("bornTimestamp", message.getBornTimestamp()).put("bornHost", host(message.getBornHost()))
                .put("storeTimestamp", message.getStoreTimestamp()).put("storeHost", host(message.getStoreHost()))
                .put("properties", properties));
            received.incrementAndGet();
            lastArrival = System.nanoTime();
        }
        if (consumeMs > 0) {
            run.sleep(consumeMs);
        }
    }

    private static String host(java.net.SocketAddress address) {
        java.net.InetSocketAddress host = (java.net.InetSocketAddress) address;
        return host.getAddress().getHostAddress() + ":" + host.getPort();
    }
}
