// The driver of sarama: HOST:PORT,... [FEATURE ...]; sarama/run builds and runs it.
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

	"github.com/IBM/sarama"
)

type client struct {
	address []string
	admin   sarama.ClusterAdmin
	client  sarama.Client
}

func main() {
	if driving.DriveSecured("sarama", "github.com/IBM/sarama", exchange) {
		return
	}
	driving.Drive("sarama", "github.com/IBM/sarama", func(address []string) (driving.Client, error) {
		plain, err := sarama.NewClient(address, config())
		if err != nil {
			return nil, err
		}
		admin, err := sarama.NewClusterAdminFromClient(plain)
		return &client{address, admin, plain}, err
	})
}

func config() *sarama.Config {
	made := sarama.NewConfig()
	made.Consumer.MaxWaitTime = 200 * time.Millisecond
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	made.Consumer.Offsets.AutoCommit.Enable = false
	made.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	made.Producer.Return.Successes = true
	made.Net.MaxOpenRequests = 1 // a retry must not follow the next request
	made.Producer.Partitioner = sarama.NewManualPartitioner
	return made
}

// EmptyIsNull: sarama reads an empty key or value as null.
func (c *client) EmptyIsNull() bool { return true }

func (c *client) CreateTopic(_ context.Context, topic string, partitions int, configs map[string]string) error {
	entries := map[string]*string{}
	for key, value := range configs {
		entries[key] = &value
	}
	return c.admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: int32(partitions), ReplicationFactor: -1, ConfigEntries: entries}, false)
}

func (c *client) Topics(context.Context) ([]string, error) {
	listed, err := c.admin.ListTopics()
	return slices.Collect(maps.Keys(listed)), err
}

func (c *client) PartitionsWithLeaders(_ context.Context, topic string) (int, error) {
	described, err := c.admin.DescribeTopics([]string{topic})
	if err != nil {
		return 0, err
	}
	found := 0
	for _, partition := range described[0].Partitions {
		if partition.Leader >= 0 {
			found++
		}
	}
	return found, nil
}

func (c *client) AddPartitions(_ context.Context, topic string, total int) error {
	return c.admin.CreatePartitions(topic, int32(total), nil, false)
}

func (c *client) TopicID(_ context.Context, topic string) (string, error) {
	described, err := c.admin.DescribeTopics([]string{topic})
	if err != nil || described[0].Uuid == (sarama.Uuid{}) {
		return "", err
	}
	return described[0].Uuid.String(), nil
}

func (c *client) DeleteTopic(_ context.Context, topic string) error {
	return c.admin.DeleteTopic(topic)
}

var (
	codecs = map[string]sarama.CompressionCodec{
		"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4,
		"zstd": sarama.CompressionZSTD,
	}
	acks = map[string]sarama.RequiredAcks{"0": sarama.NoResponse, "1": sarama.WaitForLocal, "all": sarama.WaitForAll}
)

type producer struct{ sarama.SyncProducer }

func (c *client) OpenProducer(_ context.Context, how driving.How) (driving.Producer, error) {
	settings := config()
	settings.Producer.Compression = codecs[how.Codec]
	settings.Producer.RequiredAcks = acks[how.Acks]
	settings.Producer.Flush.Messages = 50
	settings.Producer.Flush.Frequency = 5 * time.Millisecond
	settings.Producer.Idempotent = how.Idempotent
	settings.Producer.MaxMessageBytes = max(settings.Producer.MaxMessageBytes, how.BatchBytes)
	made, err := sarama.NewSyncProducer(c.address, settings)
	return producer{made}, err
}

func (p producer) Send(_ context.Context, topic string, records []driving.Record) error {
	var made []*sarama.ProducerMessage
	for _, r := range records {
		message := &sarama.ProducerMessage{Topic: topic, Partition: r.Partition, Timestamp: time.UnixMilli(r.Timestamp)}
		if r.Key != nil {
			message.Key = sarama.ByteEncoder(r.Key)
		}
		if r.Value != nil {
			message.Value = sarama.ByteEncoder(r.Value)
		}
		for _, header := range r.Headers {
			message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(header.Name), Value: header.Value})
		}
		made = append(made, message)
	}
	return p.SendMessages(made)
}

func (p producer) Renew(string) {}

type transactions struct{ producer }

func (c *client) OpenTransactions(_ context.Context, id string) (driving.Transactions, error) {
	settings := config()
	settings.Producer.Transaction.ID = id
	settings.Producer.Idempotent = true
	settings.Producer.RequiredAcks = sarama.WaitForAll
	settings.Net.MaxOpenRequests = 1
	made, err := sarama.NewSyncProducer(c.address, settings)
	return transactions{producer{made}}, err
}

func (t transactions) Begin() error { return t.BeginTxn() }

func (t transactions) SendOffsets(_ context.Context, group, topic string, offsets map[int32]int64) error {
	var positions []*sarama.PartitionOffsetMetadata
	for partition, offset := range offsets {
		positions = append(positions, &sarama.PartitionOffsetMetadata{Partition: partition, Offset: offset, LeaderEpoch: -1})
	}
	return t.AddOffsetsToTxn(map[string][]*sarama.PartitionOffsetMetadata{topic: positions}, group)
}

func (t transactions) End(_ context.Context, commit bool) error {
	if commit {
		return t.CommitTxn()
	}
	return t.AbortTxn()
}

// consumer returns the records of its partition consumers.
type consumer struct {
	sarama.Consumer
	topic      string
	partitions int
	arrived    chan *sarama.ConsumerMessage
	open       []sarama.PartitionConsumer
	closed     chan struct{}
}

func (c *client) OpenConsumer(_ context.Context, topic string, partitions int, how driving.Fetching) (driving.FreeConsumer, error) {
	settings := config()
	settings.Consumer.MaxWaitTime = how.MaxWait
	settings.Consumer.Fetch.Default = int32(how.MaxBytes)
	if how.Committed {
		settings.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	made, err := sarama.NewConsumer(c.address, settings)
	if err != nil {
		return nil, err
	}
	opened := &consumer{
		Consumer: made, topic: topic, partitions: partitions, arrived: make(chan *sarama.ConsumerMessage), closed: make(chan struct{}),
	}
	return opened, opened.begin()
}

func (c *consumer) begin() error {
	for partition := range int32(c.partitions) {
		part, err := c.ConsumePartition(c.topic, partition, sarama.OffsetOldest)
		if err != nil {
			return err
		}
		c.open = append(c.open, part)
		go func() {
			for message := range part.Messages() {
				select {
				case c.arrived <- message:
				case <-c.closed:
				}
			}
		}()
	}
	return nil
}

func (c *consumer) end() error {
	var problems []error
	for _, part := range c.open {
		problems = append(problems, part.Close())
	}
	c.open = nil
	return errors.Join(problems...)
}

func (c *consumer) Renew() error {
	return errors.Join(c.end(), c.begin())
}

func (c *consumer) Next(ctx context.Context) ([]driving.Record, error) {
	return next(ctx, c.arrived)
}

func (c *consumer) Close() {
	close(c.closed)
	c.end()
	c.Consumer.Close()
}

func next(ctx context.Context, arrived <-chan *sarama.ConsumerMessage) ([]driving.Record, error) {
	select {
	case message := <-arrived:
		return []driving.Record{received(message)}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func received(message *sarama.ConsumerMessage) driving.Record {
	record := driving.Record{
		Partition: message.Partition, Offset: message.Offset, Timestamp: message.Timestamp.UnixMilli(), Key: message.Key, Value: message.Value,
	}
	for _, header := range message.Headers {
		record.Headers = append(record.Headers, driving.Header{Name: string(header.Key), Value: header.Value})
	}
	return record
}

// member is a ConsumerGroup with its handler. A claim lasts from its assignment to its revocation, with either kind of assignor.
type member struct {
	group      sarama.ConsumerGroup
	topic      string
	arrived    chan *sarama.ConsumerMessage
	cancel     context.CancelFunc
	ended      chan error
	lock       sync.Mutex
	session    sarama.ConsumerGroupSession
	assigned   map[int32]bool
	revoked    []int32
	rebalances int
}

func (c *client) Join(_ context.Context, topic string, as driving.Membership) (driving.Member, error) {
	settings := config()
	settings.Consumer.Group.InstanceId = as.Instance
	strategy := sarama.NewBalanceStrategyRange()
	if as.Cooperative {
		strategy = sarama.NewBalanceStrategyCooperativeSticky()
	}
	settings.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy}
	joined, err := sarama.NewConsumerGroup(c.address, as.Group, settings)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{
		group: joined, topic: topic, arrived: make(chan *sarama.ConsumerMessage), cancel: cancel, ended: make(chan error, 1),
		assigned: map[int32]bool{},
	}
	go func() {
		for ctx.Err() == nil {
			if err := m.group.Consume(ctx, []string{topic}, m); err != nil {
				m.ended <- err
				return
			}
		}
		m.ended <- ctx.Err()
	}()
	return m, nil
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.session = session
	m.rebalances++
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	m.lock.Lock()
	m.assigned[claim.Partition()] = true
	m.lock.Unlock()
	defer func() {
		m.lock.Lock()
		defer m.lock.Unlock()
		delete(m.assigned, claim.Partition())
		m.revoked = append(m.revoked, claim.Partition())
	}()
	for message := range claim.Messages() {
		select {
		case m.arrived <- message:
		case <-session.Context().Done():
			return nil
		}
	}
	return nil
}

func (m *member) Next(ctx context.Context) ([]driving.Record, error) {
	select {
	case err := <-m.ended:
		m.ended <- err
		return nil, err
	case message := <-m.arrived:
		return []driving.Record{received(message)}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (m *member) Commit(_ context.Context, read []driving.Record) error {
	m.lock.Lock()
	session := m.session
	m.lock.Unlock()
	for _, record := range read {
		session.MarkOffset(m.topic, record.Partition, record.Offset+1, "")
	}
	session.Commit()
	return nil
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

func (m *member) Close() {
	m.cancel()
	<-m.ended
	m.group.Close()
}

func (c *client) FirstAndLast(_ context.Context, topic string, partition int32) (int64, int64, error) {
	first, err := c.client.GetOffset(topic, partition, sarama.OffsetOldest)
	if err != nil {
		return 0, 0, err
	}
	last, err := c.client.GetOffset(topic, partition, sarama.OffsetNewest)
	return first, last, err
}

func (c *client) OffsetAt(_ context.Context, topic string, partition int32, timestamp int64) (int64, error) {
	return c.client.GetOffset(topic, partition, timestamp)
}

func (c *client) DeleteRecords(_ context.Context, topic string, partition int32, before int64) error {
	err := c.admin.DeleteRecords(topic, map[int32]int64{partition: before})
	if err != nil { // it does not look for the leader again itself
		return errors.Join(err, c.client.RefreshMetadata(topic))
	}
	return nil
}

func (c *client) Config(_ context.Context, topic, key string) (string, error) {
	described, err := c.admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{key}})
	if err != nil {
		return "", err
	}
	if len(described) != 1 {
		return "", fmt.Errorf("%s is described %d times", key, len(described))
	}
	return described[0].Value, nil
}

func (c *client) SetConfig(_ context.Context, topic, key string, value *string) error {
	change := sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: value}
	if value == nil {
		change.Operation = sarama.IncrementalAlterConfigsOperationDelete
	}
	return c.admin.IncrementalAlterConfig(sarama.TopicResource, topic, map[string]sarama.IncrementalAlterConfigsEntry{key: change}, false)
}

func (c *client) Groups(context.Context) ([]string, error) {
	listed, err := c.admin.ListConsumerGroups()
	return slices.Collect(maps.Keys(listed)), err
}

func (c *client) Group(_ context.Context, group string) (driving.GroupDescription, error) {
	described, err := c.admin.DescribeConsumerGroups([]string{group})
	if err != nil {
		return driving.GroupDescription{}, err
	}
	if described[0].Err != sarama.ErrNoError { // it does not look for the coordinator again itself
		return driving.GroupDescription{}, errors.Join(described[0].Err, c.client.RefreshCoordinator(group))
	}
	return driving.GroupDescription{State: described[0].State, Members: len(described[0].Members)}, nil
}

func (c *client) DeleteGroup(_ context.Context, group string) error {
	return c.admin.DeleteConsumerGroup(group)
}

func (c *client) SetGroupOffsets(_ context.Context, group, topic string, offsets map[int32]int64) error {
	changed := map[int32]sarama.OffsetAndMetadata{}
	for partition, offset := range offsets {
		changed[partition] = sarama.OffsetAndMetadata{Offset: offset, LeaderEpoch: -1}
	}
	answer, err := c.admin.AlterConsumerGroupOffsets(group, map[string]map[int32]sarama.OffsetAndMetadata{topic: changed}, nil)
	if err != nil {
		return err
	}
	for _, code := range answer.Errors[topic] {
		if code != sarama.ErrNoError {
			return code
		}
	}
	return nil
}
