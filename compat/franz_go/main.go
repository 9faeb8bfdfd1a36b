// What franz-go can: HOST:PORT [FEATURE ...]; franz_go/run builds and runs it.
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"compat/driving"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type client struct {
	address string
	admin   *kadm.Client
}

func main() {
	driving.Drive("franz-go", "github.com/twmb/franz-go", func(address string) (driving.Client, error) {
		plain, err := kgo.NewClient(kgo.SeedBrokers(address))
		if err != nil {
			return nil, err
		}
		return &client{address, kadm.NewClient(plain)}, nil
	})
}

func (c *client) EmptyIsNull() bool { return false }

func (c *client) CreateTopic(ctx context.Context, topic string, partitions int, configs map[string]string) error {
	given := map[string]*string{}
	for key, value := range configs {
		given[key] = &value
	}
	_, err := c.admin.CreateTopic(ctx, int32(partitions), 1, given, topic)
	return err
}

func (c *client) Topics(ctx context.Context) ([]string, error) {
	listed, err := c.admin.ListTopics(ctx)
	return listed.Names(), err
}

func (c *client) PartitionsWithLeaders(ctx context.Context, topic string) (int, error) {
	listed, err := c.admin.ListTopics(ctx, topic)
	if err != nil {
		return 0, err
	}
	found := 0
	for _, partition := range listed[topic].Partitions {
		if partition.Leader >= 0 {
			found++
		}
	}
	return found, nil
}

func (c *client) DeleteTopic(ctx context.Context, topic string) error {
	_, err := c.admin.DeleteTopic(ctx, topic)
	return err
}

var (
	codecs = map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(),
		"zstd": kgo.ZstdCompression(),
	}
	acks = map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}
)

func (c *client) Produce(ctx context.Context, topic string, records []driving.Record, how driving.How) error {
	options := []kgo.Opt{
		kgo.SeedBrokers(c.address), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(codecs[how.Codec]),
		kgo.RequiredAcks(acks[how.Acks]), kgo.ProducerBatchMaxBytes(32 << 10), kgo.ProducerLinger(5 * time.Millisecond),
	}
	if !how.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	producer, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer producer.Close()
	var made []*kgo.Record
	for _, r := range records {
		record := &kgo.Record{Topic: topic, Partition: r.Partition, Key: r.Key, Value: r.Value, Timestamp: time.UnixMilli(r.Timestamp)}
		for _, header := range r.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: header.Name, Value: header.Value})
		}
		made = append(made, record)
	}
	return producer.ProduceSync(ctx, made...).FirstErr()
}

func (c *client) Read(ctx context.Context, topic string, partitions, n int) ([]driving.Record, error) {
	starts := map[int32]kgo.Offset{}
	for partition := range int32(partitions) {
		starts[partition] = kgo.NewOffset().AtStart()
	}
	consumer, err := c.consumer(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: starts}))
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	read, err := poll(ctx, consumer, n)
	return received(read), err
}

func (c *client) ReadInGroup(ctx context.Context, topic, group string, n int) ([]driving.Record, error) {
	consumer, err := c.consumer(kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit())
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	read, err := poll(ctx, consumer, n)
	if err != nil {
		return nil, err
	}
	return received(read), consumer.CommitRecords(ctx, read...)
}

func (c *client) consumer(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(options, kgo.SeedBrokers(c.address), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(200*time.Millisecond), kgo.HeartbeatInterval(300*time.Millisecond))...)
}

func poll(ctx context.Context, consumer *kgo.Client, n int) ([]*kgo.Record, error) {
	var read []*kgo.Record
	for len(read) < n {
		fetches := consumer.PollRecords(ctx, n-len(read))
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		read = append(read, fetches.Records()...)
	}
	return read, nil
}

func received(records []*kgo.Record) []driving.Record {
	var made []driving.Record
	for _, r := range records {
		record := driving.Record{Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value}
		for _, header := range r.Headers {
			record.Headers = append(record.Headers, driving.Header{Name: header.Key, Value: header.Value})
		}
		made = append(made, record)
	}
	return made
}

type member struct {
	consumer *kgo.Client
	lock     sync.Mutex
	assigned map[int32]bool
}

func (c *client) Join(ctx context.Context, topic, group string) (driving.Member, error) {
	m := &member{assigned: map[int32]bool{}}
	gone := func(_ context.Context, _ *kgo.Client, lost map[string][]int32) { m.change(lost[topic], false) }
	var err error
	m.consumer, err = c.consumer(kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.OnPartitionsRevoked(gone), kgo.OnPartitionsLost(gone),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, added map[string][]int32) { m.change(added[topic], true) }))
	if err != nil {
		return nil, err
	}
	go func() {
		for !m.consumer.PollFetches(ctx).IsClientClosed() && ctx.Err() == nil {
		}
	}()
	return m, nil
}

func (m *member) change(partitions []int32, mine bool) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, partition := range partitions {
		if mine {
			m.assigned[partition] = true
		} else {
			delete(m.assigned, partition)
		}
	}
}

func (m *member) Assignment() []int32 {
	m.lock.Lock()
	defer m.lock.Unlock()
	return slices.Collect(maps.Keys(m.assigned))
}

func (m *member) Close() { m.consumer.Close() }

func (c *client) FirstAndLast(ctx context.Context, topic string, partition int32) (int64, int64, error) {
	starts, err := c.admin.ListStartOffsets(ctx, topic)
	if err != nil {
		return 0, 0, err
	}
	ends, err := c.admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return 0, 0, err
	}
	return starts[topic][partition].Offset, ends[topic][partition].Offset, errors.Join(starts.Error(), ends.Error())
}

func (c *client) OffsetAt(ctx context.Context, topic string, partition int32, timestamp int64) (int64, error) {
	listed, err := c.admin.ListOffsetsAfterMilli(ctx, timestamp, topic)
	if err != nil {
		return 0, err
	}
	return listed[topic][partition].Offset, listed[topic][partition].Err
}

func (c *client) DeleteRecords(ctx context.Context, topic string, partition int32, before int64) error {
	var offsets kadm.Offsets
	offsets.AddOffset(topic, partition, before, -1)
	deleted, err := c.admin.DeleteRecords(ctx, offsets)
	if err != nil {
		return err
	}
	return deleted.Error()
}

func (c *client) Config(ctx context.Context, topic, key string) (string, error) {
	described, err := c.admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return "", err
	}
	for _, config := range described[0].Configs {
		if config.Key == key {
			return config.MaybeValue(), nil
		}
	}
	return "", fmt.Errorf("%s is not described", key)
}

func (c *client) SetConfig(ctx context.Context, topic, key, value string) error {
	altered, err := c.admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}}, topic)
	if err != nil {
		return err
	}
	return altered[0].Err
}

func (c *client) Groups(ctx context.Context) ([]string, error) {
	listed, err := c.admin.ListGroups(ctx)
	return listed.Groups(), err
}

func (c *client) GroupState(ctx context.Context, group string) (string, error) {
	described, err := c.admin.DescribeGroups(ctx, group)
	return described[group].State, err
}

func (c *client) DeleteGroup(ctx context.Context, group string) error {
	_, err := c.admin.DeleteGroup(ctx, group)
	return err
}
