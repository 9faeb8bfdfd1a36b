package driving

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

const enough = 50 // records before and after the restart

// reconnect: a producer and a consumer survive a restart of the broker; records are sent continuously, and all acknowledged ones are read.
func (d driver) reconnect(ctx context.Context, topic string) error {
	if err := d.readyTopic(ctx, topic, partitions, nil); err != nil {
		return err
	}
	how := plain
	how.Idempotent = true
	producer, err := d.OpenProducer(ctx, how)
	if errors.Is(err, errLacks) {
		producer, err = d.OpenProducer(ctx, plain)
	}
	if err != nil {
		return err
	}
	defer producer.Close()
	consumer, err := d.OpenConsumer(ctx, topic, partitions, prompt)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer consumer.Close()
	defer work.Wait()
	defer cancel()
	lived := &ledger{read: map[string]bool{}, last: map[int32]int64{}}
	sending, stop := context.WithCancel(ctx)
	defer stop()
	sent := make(chan struct{})
	work.Go(func() {
		defer close(sent)
		lived.send(sending, producer, topic)
	})
	work.Go(func() { lived.receive(ctx, consumer) })

	if err := lived.more(ctx, "before the restart"); err != nil {
		return err
	}
	if err := restarted(ctx, topic); err != nil {
		return err
	}
	if err := lived.more(ctx, "after the restart"); err != nil {
		return err
	}
	stop()
	<-sent
	return until(ctx, "all acknowledged records are read", lived.complete)
}

// ledger has what was acknowledged and what was read, by value.
type ledger struct {
	lock    sync.Mutex
	acked   []string
	read    map[string]bool
	last    map[int32]int64
	refused error // why the last record was not acknowledged
	problem error
}

func (l *ledger) send(ctx context.Context, producer Producer, topic string) {
	for i := 0; ctx.Err() == nil; i++ {
		value := fmt.Sprintf("record %d", i)
		// Stopping does not cancel a record in flight.
		err := producer.Send(context.WithoutCancel(ctx), topic, []Record{{Partition: int32(i % partitions), Timestamp: baseTimestamp, Value: []byte(value)}})
		l.lock.Lock()
		if l.refused = err; err == nil {
			l.acked = append(l.acked, value)
		}
		l.lock.Unlock()
		if err != nil {
			time.Sleep(50 * time.Millisecond)
		}
	}
}

func (l *ledger) receive(ctx context.Context, consumer Consumer) {
	for ctx.Err() == nil {
		some, err := consumer.Next(ctx)
		l.lock.Lock()
		for _, record := range some {
			if before, seen := l.last[record.Partition]; seen && record.Offset <= before {
				l.problem = fmt.Errorf("%v arrived after offset %d", record.place(), before)
			}
			l.last[record.Partition] = record.Offset
			l.read[string(record.Value)] = true
		}
		l.lock.Unlock()
		if err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "consumer:", err)
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// more waits for more acknowledged records, and that they are read.
func (l *ledger) more(ctx context.Context, when string) error {
	l.lock.Lock()
	goal := len(l.acked) + enough
	l.lock.Unlock()
	err := until(ctx, "records acknowledged and read "+when, func() (bool, error) {
		l.lock.Lock()
		defer l.lock.Unlock()
		return len(l.acked) >= goal && l.read[l.acked[goal-1]], l.problem
	})
	l.lock.Lock()
	defer l.lock.Unlock()
	if err != nil {
		return fmt.Errorf("%w (%d acknowledged, %d wanted, %d read, sender: %v)", err, len(l.acked), goal, len(l.read), l.refused)
	}
	return nil
}

func (l *ledger) complete() (bool, error) {
	l.lock.Lock()
	defer l.lock.Unlock()
	for _, value := range l.acked {
		if !l.read[value] {
			return false, l.problem
		}
	}
	return true, l.problem
}
