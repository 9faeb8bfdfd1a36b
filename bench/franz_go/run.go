package main

import (
	"context"
	"fmt"
	"math/rand"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const deliveredWithin = 30 * time.Second

// run is one load from its start to its end.
type run struct {
	settings
	ctx            context.Context
	topics         []string
	records, bytes atomic.Int64 // acknowledged
	measured       atomic.Int64 // latencies
	measuring      atomic.Bool
	stopping       atomic.Bool
	failed         chan error
	producers      sync.WaitGroup
	consumers      []*consumer
	lock           sync.Mutex
	latencies      []*latencies
}

func newRun(ctx context.Context, given settings, topics []string) *run {
	return &run{settings: given, ctx: ctx, topics: topics, failed: make(chan error, 1)}
}

// latencies are those of one goroutine, in nanoseconds. They count in the run's `measured`.
type latencies struct {
	values   []int64
	measured *atomic.Int64
}

func (l *latencies) add(since time.Time) {
	l.values = append(l.values, int64(time.Since(since)))
	l.measured.Add(1)
}

func (r *run) newLatencies() *latencies {
	made := &latencies{measured: &r.measured}
	r.lock.Lock()
	defer r.lock.Unlock()
	r.latencies = append(r.latencies, made)
	return made
}

func (r *run) fail(err error) {
	select {
	case r.failed <- err:
	default:
	}
}

// sleep ends early with the first error of a client.
func (r *run) sleep(duration time.Duration) error {
	select {
	case err := <-r.failed:
		return err
	case <-time.After(duration):
		return nil
	}
}

// sleepUntil sleeps, and then waits on a slow machine until the condition holds.
func (r *run) sleepUntil(duration time.Duration, condition func() bool) error {
	err := r.sleep(duration)
	for err == nil && !condition() {
		err = r.sleep(10 * time.Millisecond)
	}
	return err
}

// produce runs one producing client until the load stops.
func (r *run) produce(number int, work func(*kgo.Client, *rand.Rand), options ...kgo.Opt) {
	client, err := r.client(append(options, kgo.ClientID(fmt.Sprintf("bench-%d", number)))...)
	if err != nil {
		r.fail(err)
		return
	}
	r.producers.Add(1)
	go func() {
		defer r.producers.Done()
		work(client, rand.New(rand.NewSource(int64(number))))
		if err := client.Flush(r.ctx); err != nil {
			r.fail(err)
		}
		client.Close()
	}()
}

func (r *run) acknowledged(record *kgo.Record, err error) {
	if err != nil {
		r.fail(fmt.Errorf("a record was not acknowledged: %w", err))
		return
	}
	r.records.Add(1)
	r.bytes.Add(int64(len(record.Value)))
}

// finish stops the producers, waits until each group has every record, and stops the consumers.
func (r *run) finish() error {
	r.stopping.Store(true)
	r.producers.Wait()
	deadline := time.Now().Add(deliveredWithin)
	for !r.delivered() {
		if err := r.sleep(10 * time.Millisecond); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d records were acknowledged, and the groups have received %v of them", r.records.Load(), r.received())
		}
	}
	r.watch.counting.Store(false) // the clients close their connections
	var closed sync.WaitGroup
	for _, each := range r.consumers {
		closed.Go(each.close)
	}
	closed.Wait()
	select {
	case err := <-r.failed:
		return err
	default:
		return nil
	}
}

// received is the number of records by group.
func (r *run) received() map[string]int64 {
	found := map[string]int64{}
	for _, each := range r.consumers {
		found[each.group] += each.records.Load()
	}
	return found
}

func (r *run) delivered() bool {
	for _, records := range r.received() {
		if records < r.records.Load() {
			return false
		}
	}
	return true
}

// quantiles are those of all goroutines, which have ended.
func (r *run) quantiles() (p50, p99 float64) {
	var all []int64
	for _, each := range r.latencies {
		all = append(all, each.values...)
	}
	if len(all) == 0 {
		return 0, 0
	}
	slices.Sort(all)
	return float64(all[len(all)/2]) / 1e6, float64(all[len(all)*99/100]) / 1e6
}
