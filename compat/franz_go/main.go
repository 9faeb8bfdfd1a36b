// The driver of franz-go: HOST:PORT,... [FEATURE ...]; franz_go/run builds and runs it.
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
	address []string
	admin   *kadm.Client
}

func main() {
	if driving.DriveSecured("franz-go", "github.com/twmb/franz-go", exchange) {
		return
	}
	driving.Drive("franz-go", "github.com/twmb/franz-go", func(address []string) (driving.Client, error) {
		// The largest age of the metadata that administration uses.
		made, err := open(address, kgo.MetadataMinAge(10*time.Millisecond))
		if err != nil {
			return nil, err
		}
		return &client{address, kadm.NewClient(made)}, nil
	})
}

func open(address []string, options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(options, kgo.SeedBrokers(address...))...)
}

func (c *client) EmptyIsNull() bool { return false }

func (c *client) CreateTopic(ctx context.Context, topic string, partitions int, configs map[string]string) error {
	given := map[string]*string{}
	for key, value := range configs {
		given[key] = &value
	}
	_, err := c.admin.CreateTopic(ctx, int32(partitions), -1, given, topic)
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

func (c *client) AddPartitions(ctx context.Context, topic string, total int) error {
	added, err := c.admin.UpdatePartitions(ctx, total, topic)
	return errors.Join(err, added.Error())
}

func (c *client) TopicID(ctx context.Context, topic string) (string, error) {
	listed, err := c.admin.ListTopics(ctx, topic)
	if err != nil || listed[topic].ID == (kadm.TopicID{}) {
		return "", err
	}
	return listed[topic].ID.String(), nil
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

type producer struct{ *kgo.Client }

func (c *client) OpenProducer(_ context.Context, how driving.How) (driving.Producer, error) {
	options := []kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(codecs[how.Codec]),
		kgo.RequiredAcks(acks[how.Acks]), kgo.ProducerBatchMaxBytes(int32(how.BatchBytes)), kgo.ProducerLinger(5 * time.Millisecond),
	}
	if !how.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	made, err := open(c.address, options...)
	return producer{made}, err
}

func (p producer) Send(ctx context.Context, topic string, records []driving.Record) error {
	return p.ProduceSync(ctx, toSend(topic, records)...).FirstErr()
}

func toSend(topic string, records []driving.Record) []*kgo.Record {
	var made []*kgo.Record
	for _, r := range records {
		record := &kgo.Record{Topic: topic, Partition: r.Partition, Key: r.Key, Value: r.Value, Timestamp: time.UnixMilli(r.Timestamp)}
		for _, header := range r.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: header.Name, Value: header.Value})
		}
		made = append(made, record)
	}
	return made
}

// Renew: a recreated topic is refused until the old one is purged, as the client's documentation says.
func (p producer) Renew(topic string) { p.PurgeTopicsFromClient(topic) }

func (p producer) Close() error {
	p.Client.Close()
	return nil
}

type transactions struct{ producer }

func (c *client) OpenTransactions(ctx context.Context, id string) (driving.Transactions, error) {
	made, err := open(c.address, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID(id),
		kgo.ProducerLinger(5*time.Millisecond))
	if err != nil {
		return nil, err
	}
	// It initializes with the first transaction: do it now, for fencing.
	_, _, err = made.ProducerID(ctx)
	return transactions{producer{made}}, err
}

func (t transactions) Begin() error { return t.BeginTransaction() }

func (t transactions) SendOffsets(context.Context, string, string, map[int32]int64) error {
	return errors.New("offsets are committed by a session")
}

func (t transactions) End(ctx context.Context, commit bool) error {
	return t.EndTransaction(ctx, kgo.TransactionEndTry(commit))
}

// session is a member of a group whose transactions have the offsets that it has read.
type session struct{ *kgo.GroupTransactSession }

func (c *client) OpenSession(_ context.Context, id, group, topic string) (driving.Transactions, error) {
	made, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(c.address...), kgo.TransactionalID(id), kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic), kgo.RequireStableFetchOffsets(), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(300*time.Millisecond))
	return session{made}, err
}

func (s session) Send(ctx context.Context, topic string, records []driving.Record) error {
	return s.ProduceSync(ctx, toSend(topic, records)...).FirstErr()
}

func (s session) SendOffsets(ctx context.Context, _, topic string, offsets map[int32]int64) error {
	for {
		reached := true
		read := s.Client().UncommittedOffsets()[topic]
		for partition, offset := range offsets {
			reached = reached && read[partition].Offset == offset
		}
		if reached {
			return nil
		}
		if err := s.PollFetches(ctx).Err(); err != nil {
			return err
		}
	}
}

func (s session) End(ctx context.Context, commit bool) error {
	committed, err := s.GroupTransactSession.End(ctx, kgo.TransactionEndTry(commit))
	if err == nil && committed != commit {
		return errors.New("the session has aborted the transaction")
	}
	return err
}

func (s session) Close() error {
	s.GroupTransactSession.Close()
	return nil
}

type consumer struct{ *kgo.Client }

type freeConsumer struct {
	consumer
	starts map[string]map[int32]kgo.Offset
}

func (c *client) OpenConsumer(_ context.Context, topic string, partitions int, how driving.Fetching) (driving.FreeConsumer, error) {
	starts := map[int32]kgo.Offset{}
	for partition := range int32(partitions) {
		starts[partition] = kgo.NewOffset().AtStart()
	}
	placed := map[string]map[int32]kgo.Offset{topic: starts}
	made, err := c.consumer(how, kgo.ConsumePartitions(placed))
	return freeConsumer{made, placed}, err
}

func (c freeConsumer) Renew() error {
	c.PurgeTopicsFromClient(slices.Collect(maps.Keys(c.starts))...)
	c.AddConsumePartitions(c.starts)
	return nil
}

func (c *client) consumer(how driving.Fetching, options ...kgo.Opt) (consumer, error) {
	if how.Committed {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	made, err := open(c.address, append(options, kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(how.MaxWait), kgo.FetchMaxPartitionBytes(int32(how.MaxBytes)), kgo.HeartbeatInterval(300*time.Millisecond))...)
	return consumer{made}, err
}

func (c consumer) Next(ctx context.Context) ([]driving.Record, error) {
	fetches := c.PollFetches(ctx)
	return received(fetches.Records()), fetches.Err()
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
	consumer
	topic      string
	lock       sync.Mutex
	assigned   map[int32]bool
	revoked    []int32
	rebalances int
}

func (c *client) Join(_ context.Context, topic string, as driving.Membership) (driving.Member, error) {
	m := &member{topic: topic, assigned: map[int32]bool{}}
	balancer := kgo.RangeBalancer()
	if as.Cooperative {
		balancer = kgo.CooperativeStickyBalancer()
	}
	gone := func(_ context.Context, _ *kgo.Client, lost map[string][]int32) { m.lose(lost[topic]) }
	options := []kgo.Opt{
		kgo.ConsumerGroup(as.Group), kgo.ConsumeTopics(topic), kgo.Balancers(balancer), kgo.DisableAutoCommit(), kgo.OnPartitionsRevoked(gone),
		kgo.OnPartitionsLost(gone),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, added map[string][]int32) { m.gain(added[topic]) }),
	}
	if as.Instance != "" {
		options = append(options, kgo.InstanceID(as.Instance))
	}
	var err error
	m.consumer, err = c.consumer(driving.Fetching{MaxWait: 200 * time.Millisecond, MaxBytes: 1 << 20}, options...)
	return m, err
}

func (m *member) gain(partitions []int32) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.rebalances++
	for _, partition := range partitions {
		m.assigned[partition] = true
	}
}

func (m *member) lose(partitions []int32) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.revoked = append(m.revoked, partitions...)
	for _, partition := range partitions {
		delete(m.assigned, partition)
	}
}

func (m *member) Commit(ctx context.Context, read []driving.Record) error {
	var last []*kgo.Record
	for _, r := range read {
		last = append(last, &kgo.Record{Topic: m.topic, Partition: r.Partition, Offset: r.Offset, LeaderEpoch: -1})
	}
	return m.CommitRecords(ctx, last...)
}

func (m *member) Assignment() []int32 {
	m.lock.Lock()
	defer m.lock.Unlock()
	return slices.Collect(maps.Keys(m.assigned))
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

func (c *client) SetConfig(ctx context.Context, topic, key string, value *string) error {
	change := kadm.AlterConfig{Op: kadm.SetConfig, Name: key, Value: value}
	if value == nil {
		change.Op = kadm.DeleteConfig
	}
	altered, err := c.admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{change}, topic)
	if err != nil {
		return err
	}
	return altered[0].Err
}

func (c *client) Groups(ctx context.Context) ([]string, error) {
	listed, err := c.admin.ListGroups(ctx)
	return listed.Groups(), err
}

func (c *client) Group(ctx context.Context, group string) (driving.GroupDescription, error) {
	described, err := c.admin.DescribeGroups(ctx, group)
	return driving.GroupDescription{State: described[group].State, Members: len(described[group].Members)}, errors.Join(err, described.Error())
}

func (c *client) DeleteGroup(ctx context.Context, group string) error {
	_, err := c.admin.DeleteGroup(ctx, group)
	return err
}

func (c *client) SetGroupOffsets(ctx context.Context, group, topic string, offsets map[int32]int64) error {
	var changed kadm.Offsets
	for partition, offset := range offsets {
		changed.AddOffset(topic, partition, offset, -1)
	}
	return c.admin.CommitAllOffsets(ctx, group, changed)
}
