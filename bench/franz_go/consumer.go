package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// consumer is a member of a group. It measures how old records are when it receives them.
type consumer struct {
	group      string
	client     *kgo.Client
	records    atomic.Int64
	partitions atomic.Int64 // that are assigned to it
	ended      sync.WaitGroup
}

func (r *run) consume(group string) error {
	made := &consumer{group: group}
	count := func(sign int64) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
			for _, partitions := range changed {
				made.partitions.Add(sign * int64(len(partitions)))
			}
		}
	}
	client, err := r.client(kgo.ConsumerGroup(group), kgo.ConsumeTopics(r.topics...),
		kgo.OnPartitionsAssigned(count(1)), kgo.OnPartitionsRevoked(count(-1)), kgo.OnPartitionsLost(count(-1)))
	if err != nil {
		return err
	}
	made.client = client
	r.consumers = append(r.consumers, made)
	latencies := r.newLatencies()
	made.ended.Go(func() {
		for {
			fetched := client.PollFetches(r.ctx)
			if fetched.IsClientClosed() {
				return
			}
			fetched.EachError(func(topic string, partition int32, err error) {
				r.fail(fmt.Errorf("group %s cannot read %s-%d: %w", group, topic, partition, err))
			})
			measured := r.measuring.Load()
			fetched.EachRecord(func(record *kgo.Record) {
				if measured {
					latencies.add(sentAt(record))
				}
			})
			made.records.Add(int64(fetched.NumRecords()))
		}
	})
	return nil
}

func (c *consumer) close() {
	c.client.Close()
	c.ended.Wait()
}

// untilAssigned waits until each group's members have all partitions.
func (r *run) untilAssigned() error {
	wanted := int64(len(r.topics) * partitionsOfTopic)
	deadline := time.Now().Add(deliveredWithin)
	for {
		assigned := map[string]int64{}
		for _, each := range r.consumers {
			assigned[each.group] += each.partitions.Load()
		}
		settled := true
		for _, each := range r.consumers {
			settled = settled && assigned[each.group] == wanted && each.partitions.Load() > 0
		}
		if settled {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("partitions of the groups: %v instead of %d each", assigned, wanted)
		}
		if err := r.sleep(20 * time.Millisecond); err != nil {
			return err
		}
	}
}
