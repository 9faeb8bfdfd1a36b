package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"compat/driving"

	"github.com/segmentio/kafka-go"
)

// member is a ConsumerGroup, which shows its assignment, with a reader for each of its partitions.
type member struct {
	client     *client
	group      *kafka.ConsumerGroup
	topic      string
	arrived    chan kafka.Message
	cancel     context.CancelFunc
	ended      chan struct{}
	lock       sync.Mutex
	generation *kafka.Generation
	assigned   []int32
	revoked    []int32
	rebalances int
}

func (c *client) Join(_ context.Context, topic string, as driving.Membership) (driving.Member, error) {
	switch {
	case as.Cooperative:
		return nil, driving.Lacks("its assignors are eager")
	case as.Instance != "":
		return nil, driving.Lacks("it does not support static members")
	}
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: as.Group, Brokers: c.address, Topics: []string{topic}, GroupBalancers: []kafka.GroupBalancer{kafka.RangeGroupBalancer{}},
		StartOffset: kafka.FirstOffset, HeartbeatInterval: 300 * time.Millisecond, JoinGroupBackoff: 100 * time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{client: c, group: group, topic: topic, arrived: make(chan kafka.Message), cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(m.ended)
		for ctx.Err() == nil {
			if generation, err := m.group.Next(ctx); err == nil {
				m.begin(generation)
			}
		}
	}()
	return m, nil
}

// begin reads the partitions of a generation until that ends.
func (m *member) begin(generation *kafka.Generation) {
	var assigned []int32
	for _, partition := range generation.Assignments[m.topic] {
		assigned = append(assigned, int32(partition.ID))
		generation.Start(func(ctx context.Context) {
			reader := m.client.reader(m.topic, partition.ID, driving.Fetching{MaxWait: 200 * time.Millisecond, MaxBytes: 1 << 20})
			defer reader.Close()
			if reader.SetOffset(partition.Offset) == nil {
				forward(ctx, reader, m.arrived)
			}
		})
	}
	m.lock.Lock()
	m.generation, m.assigned = generation, assigned
	m.rebalances++
	m.lock.Unlock()
	generation.Start(func(ctx context.Context) {
		<-ctx.Done()
		m.lock.Lock()
		defer m.lock.Unlock()
		m.assigned, m.revoked = nil, append(m.revoked, assigned...)
	})
}

func (m *member) Next(ctx context.Context) ([]driving.Record, error) { return next(ctx, m.arrived) }

func (m *member) Commit(_ context.Context, read []driving.Record) error {
	m.lock.Lock()
	generation := m.generation
	m.lock.Unlock()
	if generation == nil {
		return errors.New("no generation yet")
	}
	offsets := map[int]int64{}
	for _, record := range read {
		offsets[int(record.Partition)] = record.Offset + 1
	}
	return generation.CommitOffsets(map[string]map[int]int64{m.topic: offsets})
}

func (m *member) Assignment() []int32 {
	m.lock.Lock()
	defer m.lock.Unlock()
	return slices.Clone(m.assigned)
}

func (m *member) Revoked() []int32 {
	m.lock.Lock()
	defer m.lock.Unlock()
	return slices.Clone(m.revoked)
}

func (m *member) Rebalances() int {
	m.lock.Lock()
	defer m.lock.Unlock()
	return m.rebalances
}

func (m *member) Close() {
	m.cancel()
	<-m.ended
	m.group.Close()
}
