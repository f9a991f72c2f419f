package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const (
	pauseAfterError = 100 * time.Millisecond
	requestTimeout  = 2 * time.Second
)

// sending sends messages and prints one line per message: "send" with the result, or "error". Keys are
// PREFIX-THREAD-SEQUENCE. With --order a thread's messages all go to one queue, and the property "seq" counts them. In
// mode request a send waits for a consumer's reply.
type sending struct {
	run          *run
	options      *options
	producer     rocketmq.Producer
	topic        string
	mode         string
	tags         []string
	keyPrefix    string
	count        int64
	threads      int64
	size         int
	rate         int64
	batchSize    int64
	order        bool
	timeout      time.Duration
	started      time.Time
	deadline     time.Time
	inFlight     chan struct{}
	sent         atomic.Int64
	acknowledged atomic.Int64
	errors       atomic.Int64
}

func produce(r *run, args []string) error {
	o, err := parse(args, "namesrv", "topic", "mode", "tags", "key-prefix", "count", "size", "threads", "order", "rate",
		"seconds", "batch-size", "timeout-ms", "in-flight", "property", "retries", "group", "instance", "queues",
		"delay-level")
	if err != nil {
		return err
	}
	s := &sending{
		run:       r,
		options:   o,
		topic:     o.text("topic", ""),
		mode:      o.text("mode", "sync"),
		tags:      strings.Split(o.text("tags", ""), ","),
		keyPrefix: o.text("key-prefix", "k"),
		threads:   o.number("threads", 1),
		size:      int(o.number("size", 64)),
		rate:      o.number("rate", 0),
		batchSize: o.number("batch-size", 10),
		order:     o.text("order", "") == "true",
		timeout:   time.Duration(o.number("timeout-ms", 3000)) * time.Millisecond,
		started:   time.Now(),
		inFlight:  make(chan struct{}, o.number("in-flight", 64)),
	}
	switch s.mode {
	case "sync", "async", "oneway", "batch", "request":
	default:
		return fmt.Errorf("argument --mode %q: expected sync, async, oneway, batch or request", s.mode)
	}
	s.count = o.number("count", 1)
	if seconds := o.number("seconds", 0); seconds > 0 {
		s.count = o.number("count", 1<<62)
		s.deadline = s.started.Add(time.Duration(seconds) * time.Second)
	}
	producerOptions := []producer.Option{
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{o.text("namesrv", "")})),
		producer.WithGroupName(o.text("group", "e2e_producer")),
		producer.WithInstanceName(o.text("instance", fmt.Sprintf("p%d", s.started.UnixNano()))),
		producer.WithRetry(int(o.number("retries", 2))),
		producer.WithSendMsgTimeout(s.timeout),
		producer.WithDefaultTopicQueueNums(int(o.number("queues", 4))),
	}
	if s.order {
		producerOptions = append(producerOptions, producer.WithQueueSelector(producer.NewHashQueueSelector()))
	}
	if s.producer, err = rocketmq.NewProducer(producerOptions...); err != nil {
		return err
	}
	if err = s.producer.Start(); err != nil {
		return err
	}
	r.print(line{"op": "ready"})
	var workers sync.WaitGroup
	for thread := int64(0); thread < s.threads; thread++ {
		workers.Add(1)
		go func() {
			defer workers.Done()
			s.work(thread)
		}()
	}
	workers.Wait()
	for i := 0; i < cap(s.inFlight); i++ {
		s.inFlight <- struct{}{}
	}
	if s.mode == "oneway" {
		s.barrier()
	}
	if err = s.producer.Shutdown(); err != nil {
		return err
	}
	r.print(line{"op": "done", "program": "produce", "sent": s.sent.Load(),
		"acknowledged": s.acknowledged.Load(), "errors": s.errors.Load()})
	return nil
}

// barrier is one synchronous send behind the one-way ones, on the same connection: once it is answered, they were
// read. A connection that is closed with answers unread is reset, and takes with it what the broker had not read yet.
func (s *sending) barrier() {
	last := []*primitive.Message{s.message(s.threads, 0)}
	s.sent.Add(1)
	result, err := s.producer.SendSync(context.Background(), last...)
	if err == nil && result.MessageQueue == nil {
		err = errors.New("send answered no result and no error")
	}
	if err != nil {
		s.fail(s.threads, last, err)
		return
	}
	s.acknowledge(s.threads, last, result)
}

func (s *sending) finished() bool {
	select {
	case <-s.run.stopped:
		return true
	default:
		return !s.deadline.IsZero() && time.Now().After(s.deadline)
	}
}

func (s *sending) work(thread int64) {
	share := s.count / s.threads
	if thread < s.count%s.threads {
		share++
	}
	for sequence := int64(0); sequence < share && !s.finished(); {
		if s.rate > 0 {
			due := s.started.Add(time.Duration(sequence * s.threads * int64(time.Second) / s.rate))
			if s.run.sleep(time.Until(due)) {
				return
			}
		}
		size := int64(1)
		if s.mode == "batch" {
			size = min(s.batchSize, share-sequence)
		}
		var messages []*primitive.Message
		for ; size > 0; size-- {
			messages = append(messages, s.message(thread, sequence))
			sequence++
		}
		s.sent.Add(int64(len(messages)))
		if err := s.send(thread, messages); err != nil {
			s.fail(thread, messages, err)
			if s.run.sleep(pauseAfterError) {
				return
			}
		}
	}
}

func (s *sending) message(thread, sequence int64) *primitive.Message {
	key := fmt.Sprintf("%s-%d-%d", s.keyPrefix, thread, sequence)
	message := primitive.NewMessage(s.topic, makeBody(key, s.size))
	message.WithKeys([]string{key})
	if tag := s.tags[sequence%int64(len(s.tags))]; tag != "" {
		message.WithTag(tag)
	}
	if s.order {
		message.WithShardingKey(strconv.FormatInt(thread, 10))
	}
	message.WithProperty("seq", strconv.FormatInt(sequence, 10))
	for name, value := range s.options.properties {
		message.WithProperty(name, value)
	}
	if level := s.options.number("delay-level", 0); level > 0 {
		message.WithDelayTimeLevel(int(level))
	}
	return message
}

func (s *sending) send(thread int64, messages []*primitive.Message) error {
	ctx := context.Background()
	switch s.mode {
	case "oneway":
		if err := s.producer.SendOneWay(ctx, messages[0]); err != nil {
			return err
		}
		l := s.line("send", thread, messages[0])
		l["status"] = "ONEWAY"
		s.run.print(l)
	case "async":
		s.inFlight <- struct{}{}
		err := s.producer.SendAsync(ctx, func(_ context.Context, result *primitive.SendResult, err error) {
			if err != nil {
				s.fail(thread, messages, err)
				// Slows the loop down while the broker is away.
				s.run.sleep(pauseAfterError)
			} else {
				s.acknowledge(thread, messages, result)
			}
			<-s.inFlight
		}, messages[0])
		if err != nil {
			<-s.inFlight
			return err
		}
	case "request":
		reply, err := s.request(ctx, messages[0])
		if err != nil {
			return err
		}
		l := s.line("send", thread, messages[0])
		l["status"], l["reply"] = "REPLIED", bodyText(reply.Body)
		s.run.print(l)
	default:
		result, err := s.producer.SendSync(ctx, messages...)
		if err != nil {
			return err
		}
		if result.MessageQueue == nil {
			return errors.New("send answered no result and no error")
		}
		s.acknowledge(thread, messages, result)
	}
	return nil
}

// request waits for the reply to a message. A producer of a topic that exists tells the broker of itself only with its
// next heart-beat, and until then no reply finds it, so a request without one is sent again.
func (s *sending) request(ctx context.Context, message *primitive.Message) (*primitive.Message, error) {
	for until := time.Now().Add(s.timeout); ; {
		reply, err := s.producer.Request(ctx, requestTimeout, message)
		// The client may end the wait with an empty message.
		if err == nil && (reply == nil || len(reply.Body) == 0) {
			err = errors.New("no reply in time")
		}
		if err == nil || s.finished() || time.Now().After(until) {
			return reply, err
		}
	}
}

func (s *sending) line(op string, thread int64, message *primitive.Message) line {
	return line{"op": op, "key": message.GetKeys(), "topic": s.topic, "tags": message.GetTags(), "thread": thread,
		"bodyLength": len(message.Body), "bodySha256": sha256Hex(message.Body)}
}

var statusNames = map[primitive.SendStatus]string{
	primitive.SendOK:                "SEND_OK",
	primitive.SendFlushDiskTimeout:  "FLUSH_DISK_TIMEOUT",
	primitive.SendFlushSlaveTimeout: "FLUSH_SLAVE_TIMEOUT",
	primitive.SendSlaveNotAvailable: "SLAVE_NOT_AVAILABLE",
	primitive.SendUnknownError:      "UNKNOWN",
}

func (s *sending) acknowledge(thread int64, messages []*primitive.Message, result *primitive.SendResult) {
	// A batch answers one result: ids joined by commas, and the queue offset of its first message.
	ids := strings.Split(result.MsgID, ",")
	offsetIDs := strings.Split(result.OffsetMsgID, ",")
	for i, message := range messages {
		s.acknowledged.Add(1)
		l := s.line("send", thread, message)
		l["status"] = statusNames[result.Status]
		l["msgId"], l["offsetMsgId"] = at(ids, i), at(offsetIDs, i)
		l["queueId"], l["queueOffset"] = result.MessageQueue.QueueId, result.QueueOffset+int64(i)
		l["brokerName"] = result.MessageQueue.BrokerName
		s.run.print(l)
	}
}

func at(texts []string, i int) any {
	if i < len(texts) && texts[i] != "" {
		return texts[i]
	}
	return nil
}

func (s *sending) fail(thread int64, messages []*primitive.Message, err error) {
	for _, message := range messages {
		s.errors.Add(1)
		l := s.line("error", thread, message)
		l["code"], l["error"] = -1, err.Error()
		s.run.print(l)
	}
}
