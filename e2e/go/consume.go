package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const pollInterval = 50 * time.Millisecond

// receiving prints one "recv" line per message. It ends after --count messages, after --idle-ms without one, after
// --seconds, or when told to.
//
// Modes: push (concurrently), orderly, pull (every queue of a topic from its first to its last offset, with a
// "queue" line for each), lite-pull (the client's own poll and acknowledge). In the first two a message fails as long
// as it was delivered again fewer than --fail-times. --sql filters by an expression instead of --tags. With --reply a
// push consumer answers each message with "re: KEY".
type receiving struct {
	run         *run
	options     *options
	topics      []string
	selector    consumer.MessageSelector
	count       int64
	idle        time.Duration
	deadline    time.Time
	consumeFor  time.Duration
	received    atomic.Int64
	lastArrival atomic.Int64
}

func consume(r *run, args []string) error {
	o, err := parse(args, "namesrv", "topic", "mode", "model", "tags", "sql", "group", "from", "count", "idle-ms", "seconds",
		"batch-size", "threads", "instance", "consume-ms", "fail-times", "max-reconsume-times", "reply")
	if err != nil {
		return err
	}
	c := &receiving{
		run:        r,
		options:    o,
		topics:     strings.Split(o.text("topic", ""), ","),
		selector:   consumer.MessageSelector{Type: consumer.TAG, Expression: o.text("tags", "*")},
		count:      o.number("count", 1<<62),
		idle:       time.Duration(o.number("idle-ms", 0)) * time.Millisecond,
		consumeFor: time.Duration(o.number("consume-ms", 0)) * time.Millisecond,
	}
	if sql := o.text("sql", ""); sql != "" {
		c.selector = consumer.MessageSelector{Type: consumer.SQL92, Expression: sql}
	}
	c.lastArrival.Store(time.Now().UnixNano())
	if seconds := o.number("seconds", 0); seconds > 0 {
		c.deadline = time.Now().Add(time.Duration(seconds) * time.Second)
	}
	switch mode := o.text("mode", "push"); mode {
	case "push", "orderly":
		err = c.push(mode == "orderly")
	case "pull":
		err = c.pull()
	case "lite-pull":
		err = c.poll()
	default:
		err = fmt.Errorf("argument --mode %q: expected push, orderly, pull or lite-pull", mode)
	}
	if err != nil {
		return err
	}
	r.print(line{"op": "done", "program": "consume", "received": c.received.Load()})
	return nil
}

func (c *receiving) consumerOptions() []consumer.Option {
	from := consumer.ConsumeFromFirstOffset
	if c.options.text("from", "first") == "last" {
		from = consumer.ConsumeFromLastOffset
	}
	model := consumer.Clustering
	if c.options.text("model", "cluster") == "broadcast" {
		model = consumer.BroadCasting
	}
	return []consumer.Option{
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{c.options.text("namesrv", "")})),
		consumer.WithGroupName(c.options.text("group", "e2e_consumer")),
		consumer.WithInstance(c.options.text("instance", fmt.Sprintf("c%d", time.Now().UnixNano()))),
		consumer.WithConsumerModel(model),
		consumer.WithConsumeFromWhere(from),
		consumer.WithConsumeMessageBatchMaxSize(int(c.options.number("batch-size", 1))),
		consumer.WithConsumeGoroutineNums(int(c.options.number("threads", 4))),
	}
}

func (c *receiving) push(orderly bool) error {
	failTimes := c.options.number("fail-times", 0)
	options := append(c.consumerOptions(), consumer.WithConsumerOrder(orderly))
	if most := c.options.number("max-reconsume-times", -1); most >= 0 {
		options = append(options, consumer.WithMaxReconsumeTimes(int32(most)))
	}
	push, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return err
	}
	var replier rocketmq.Producer
	if c.options.text("reply", "") == "true" {
		if replier, err = c.startReplier(); err != nil {
			return err
		}
		defer replier.Shutdown()
	}
	for _, topic := range c.topics {
		err = push.Subscribe(topic, c.selector,
			func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
				c.arrived(messages)
				if replier != nil {
					c.reply(replier, messages)
				}
				for _, message := range messages {
					if int64(message.ReconsumeTimes) < failTimes {
						return consumer.ConsumeRetryLater, nil
					}
				}
				return consumer.ConsumeSuccess, nil
			})
		if err != nil {
			return err
		}
	}
	if err = push.Start(); err != nil {
		return err
	}
	c.run.print(line{"op": "ready"})
	for !c.finished() {
		c.run.sleep(pollInterval)
	}
	return push.Shutdown()
}

func (c *receiving) startReplier() (rocketmq.Producer, error) {
	replier, err := rocketmq.NewProducer(
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{c.options.text("namesrv", "")})),
		producer.WithGroupName(c.options.text("group", "e2e_consumer")+"_replier"),
		producer.WithInstanceName(fmt.Sprintf("r%d", time.Now().UnixNano())))
	if err != nil {
		return nil, err
	}
	return replier, replier.Start()
}

// reply answers messages. A reply may reach nobody, since who asked does not wait any more or is not known yet.
func (c *receiving) reply(replier rocketmq.Producer, messages []*primitive.MessageExt) {
	for _, message := range messages {
		// The client's call takes the body for properties.
		if reply, err := consumer.CreateReplyMessage(message, nil); err == nil {
			reply.Body = []byte("re: " + message.GetKeys())
			_, _ = replier.SendSync(context.Background(), reply)
		}
	}
}

func (c *receiving) pull() error {
	names, err := admin.NewAdmin(admin.WithResolver(
		primitive.NewPassthroughResolver([]string{c.options.text("namesrv", "")})))
	if err != nil {
		return err
	}
	defer names.Close()
	for _, topic := range c.topics {
		pull, err := rocketmq.NewPullConsumer(c.consumerOptions()...)
		if err != nil {
			return err
		}
		if err = pull.Subscribe(topic, c.selector); err != nil {
			return err
		}
		if err = pull.Start(); err != nil {
			return err
		}
		c.run.print(line{"op": "ready"})
		queues, err := names.FetchPublishMessageQueues(context.Background(), topic)
		if err != nil {
			return err
		}
		for _, queue := range queues {
			if err = c.pullQueue(pull, queue); err != nil {
				return fmt.Errorf("queue %s: %w", queue, err)
			}
		}
		if err = pull.Shutdown(); err != nil {
			return err
		}
	}
	return nil
}

func (c *receiving) pullQueue(pull rocketmq.PullConsumer, queue *primitive.MessageQueue) error {
	// The client has no call for the first and last offset, but every answer tells both.
	for next, first := int64(0), true; !c.finished(); first = false {
		result, err := pull.PullFrom(context.Background(), queue, next, 32)
		if err != nil {
			return err
		}
		if first {
			c.run.print(line{"op": "queue", "topic": queue.Topic, "brokerName": queue.BrokerName,
				"queueId": queue.QueueId, "minOffset": result.MinOffset, "maxOffset": result.MaxOffset})
			if result.MaxOffset <= result.MinOffset {
				return nil
			}
		}
		c.arrived(result.GetMessageExts())
		if result.NextBeginOffset <= next && result.NextBeginOffset < result.MaxOffset {
			return fmt.Errorf("pull at %d answered next offset %d", next, result.NextBeginOffset)
		}
		next = result.NextBeginOffset
		if next >= result.MaxOffset {
			return nil
		}
	}
	return nil
}

func (c *receiving) poll() error {
	if len(c.topics) != 1 {
		return fmt.Errorf("argument --topic %q: lite-pull takes one topic", c.topics)
	}
	pull, err := rocketmq.NewPullConsumer(c.consumerOptions()...)
	if err != nil {
		return err
	}
	if err = pull.Subscribe(c.topics[0], c.selector); err != nil {
		return err
	}
	if err = pull.Start(); err != nil {
		return err
	}
	c.run.print(line{"op": "ready"})
	for !c.finished() {
		request, err := pull.Poll(context.Background(), pollInterval)
		if consumer.IsNoNewMsgError(err) {
			continue
		}
		if err != nil {
			return err
		}
		c.arrived(request.GetMsgList())
		pull.ACK(context.Background(), request, consumer.ConsumeSuccess)
	}
	return pull.Shutdown()
}

func (c *receiving) finished() bool {
	select {
	case <-c.run.stopped:
		return true
	default:
	}
	now := time.Now()
	return c.received.Load() >= c.count || !c.deadline.IsZero() && now.After(c.deadline) ||
		c.idle > 0 && now.UnixNano()-c.lastArrival.Load() > int64(c.idle)
}

func (c *receiving) arrived(messages []*primitive.MessageExt) {
	for _, m := range messages {
		c.run.print(line{"op": "recv", "topic": m.Topic, "brokerName": m.Queue.BrokerName,
			"queueId": m.Queue.QueueId, "queueOffset": m.QueueOffset, "msgId": m.MsgId, "keys": m.GetKeys(),
			"tags": m.GetTags(), "body": bodyText(m.Body), "bodyLength": len(m.Body),
			"bodySha256": sha256Hex(m.Body), "flag": m.Flag, "sysFlag": m.SysFlag, "bodyCRC": m.BodyCRC,
			"size": m.StoreSize, "physicalOffset": m.CommitLogOffset, "reconsumeTimes": m.ReconsumeTimes,
			"preparedTransactionOffset": m.PreparedTransactionOffset, "bornTimestamp": m.BornTimestamp,
			"bornHost": m.BornHost, "storeTimestamp": m.StoreTimestamp, "storeHost": m.StoreHost,
			"properties": m.GetProperties()})
		c.received.Add(1)
		c.lastArrival.Store(time.Now().UnixNano())
	}
	if c.consumeFor > 0 {
		c.run.sleep(c.consumeFor)
	}
}
