package main

import (
	"context"
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

const fateProperty = "fate"

// transacting sends messages in transactions and prints one line per message, "transaction", and one per check,
// "checked". Each message has a fate, one of --fates in turn, which travels in a property: "commit" and "rollback" are
// decided at once, "commit-2" at the second check, "never" not at all. When all are sent it answers checks until it is
// stopped.
type transacting struct {
	run    *run
	lock   sync.Mutex
	checks map[string]int
}

func transact(r *run, args []string) error {
	o, err := parse(args, "namesrv", "topic", "fates", "key-prefix", "count", "size", "threads", "rate", "timeout-ms",
		"retries", "group", "instance", "property")
	if err != nil {
		return err
	}
	t := &transacting{run: r, checks: map[string]int{}}
	started := time.Now()
	client, err := rocketmq.NewTransactionProducer(t,
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{o.text("namesrv", "")})),
		producer.WithGroupName(o.text("group", "e2e_transactions")),
		producer.WithInstanceName(o.text("instance", fmt.Sprintf("t%d", started.UnixNano()))),
		producer.WithRetry(int(o.number("retries", 2))),
		producer.WithSendMsgTimeout(time.Duration(o.number("timeout-ms", 3000))*time.Millisecond),
	)
	if err != nil {
		return err
	}
	if err = client.Start(); err != nil {
		return err
	}
	r.print(line{"op": "ready"})
	fates := strings.Split(o.text("fates", "commit"), ",")
	threads, rate := o.number("threads", 1), o.number("rate", 0)
	var sent atomic.Int64
	var workers sync.WaitGroup
	for thread := int64(0); thread < threads; thread++ {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for sequence := int64(0); sequence < o.number("count", 1); sequence++ {
				due := started
				if rate > 0 {
					due = started.Add(time.Duration(sequence * threads * int64(time.Second) / rate))
				}
				if r.sleep(time.Until(due)) {
					return
				}
				key := fmt.Sprintf("%s-%d-%d", o.text("key-prefix", "k"), thread, sequence)
				fate := fates[sequence%int64(len(fates))]
				message := primitive.NewMessage(o.text("topic", ""), makeBody(key, int(o.number("size", 64))))
				message.WithKeys([]string{key})
				message.WithProperty(fateProperty, fate)
				for name, value := range o.properties {
					message.WithProperty(name, value)
				}
				sent.Add(1)
				l := line{"op": "transaction", "key": key, "fate": fate}
				result, err := client.SendMessageInTransaction(context.Background(), message)
				if err != nil {
					l["status"], l["error"] = "FAILED", err.Error()
				} else {
					l["status"], l["msgId"] = statusNames[result.Status], result.MsgID
					l["transactionId"] = result.TransactionID
				}
				r.print(l)
			}
		}()
	}
	workers.Wait()
	<-r.stopped
	if err = client.Shutdown(); err != nil {
		return err
	}
	r.print(line{"op": "done", "program": "transact", "sent": sent.Load()})
	return nil
}

func (t *transacting) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	return decide(message.GetProperty(fateProperty), 0)
}

func (t *transacting) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	key, fate := message.GetKeys(), message.GetProperty(fateProperty)
	t.lock.Lock()
	t.checks[key]++
	number := t.checks[key]
	t.lock.Unlock()
	t.run.print(line{"op": "checked", "key": key, "fate": fate, "topic": message.Topic,
		"transactionId": message.TransactionId, "bodySha256": sha256Hex(message.Body)})
	return decide(fate, number)
}

// decide is what the fate says when it is asked for the number-th time.
func decide(fate string, number int) primitive.LocalTransactionState {
	what, at, _ := strings.Cut(fate, "-")
	decidedAt, err := strconv.Atoi(at)
	if err != nil {
		decidedAt = 0
	}
	switch {
	case what == "never" || number < decidedAt:
		return primitive.UnknowState
	case what == "commit":
		return primitive.CommitMessageState
	default:
		return primitive.RollbackMessageState
	}
}
