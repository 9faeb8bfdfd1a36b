// What sarama can: HOST:PORT [FEATURE ...]; sarama/run builds and runs it.
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
	driving.Drive("sarama", "github.com/IBM/sarama", func(address string) (driving.Client, error) {
		plain, err := sarama.NewClient([]string{address}, config())
		if err != nil {
			return nil, err
		}
		admin, err := sarama.NewClusterAdminFromClient(plain)
		return &client{[]string{address}, admin, plain}, err
	})
}

func config() *sarama.Config {
	made := sarama.NewConfig()
	made.Consumer.MaxWaitTime = 200 * time.Millisecond
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	made.Consumer.Offsets.AutoCommit.Enable = false
	made.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	made.Producer.Return.Successes = true
	made.Net.MaxOpenRequests = 1 // what is sent again must not come after the next
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
	return c.admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: int32(partitions), ReplicationFactor: 1, ConfigEntries: entries}, false)
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

func (c *client) Produce(_ context.Context, topic string, records []driving.Record, how driving.How) error {
	settings := config()
	settings.Producer.Compression = codecs[how.Codec]
	settings.Producer.RequiredAcks = acks[how.Acks]
	settings.Producer.Flush.Messages = 50
	settings.Producer.Flush.Frequency = 5 * time.Millisecond
	settings.Producer.Idempotent = how.Idempotent
	producer, err := sarama.NewSyncProducer(c.address, settings)
	if err != nil {
		return err
	}
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
	return errors.Join(producer.SendMessages(made), producer.Close())
}

func (c *client) Read(ctx context.Context, topic string, partitions, n int) ([]driving.Record, error) {
	consumer, err := sarama.NewConsumer(c.address, config())
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	arrived := make(chan *sarama.ConsumerMessage)
	done := make(chan struct{})
	defer close(done)
	for partition := range int32(partitions) {
		part, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
		if err != nil {
			return nil, err
		}
		defer part.AsyncClose()
		go func() {
			for message := range part.Messages() {
				select {
				case arrived <- message:
				case <-done:
				}
			}
		}()
	}
	return collect(ctx, arrived, n)
}

func collect(ctx context.Context, arrived <-chan *sarama.ConsumerMessage, n int) ([]driving.Record, error) {
	var read []driving.Record
	for len(read) < n {
		select {
		case message := <-arrived:
			read = append(read, received(message))
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d records came: %w", len(read), n, ctx.Err())
		}
	}
	return read, nil
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

// member is a ConsumerGroup with its handler; what arrives is taken one by one, and marked only then.
type member struct {
	group    sarama.ConsumerGroup
	cancel   context.CancelFunc
	ended    chan struct{}
	lock     sync.Mutex
	assigned []int32
	topic    string
	session  sarama.ConsumerGroupSession
	arrived  chan *sarama.ConsumerMessage
}

func (c *client) join(ctx context.Context, topic, group string) (*member, error) {
	joined, err := sarama.NewConsumerGroup(c.address, group, config())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	m := &member{group: joined, cancel: cancel, ended: make(chan struct{}), topic: topic, arrived: make(chan *sarama.ConsumerMessage)}
	go func() {
		defer close(m.ended)
		for ctx.Err() == nil && m.group.Consume(ctx, []string{topic}, m) == nil {
		}
	}()
	return m, nil
}

func (c *client) Join(ctx context.Context, topic, group string) (driving.Member, error) {
	return c.join(ctx, topic, group)
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.session, m.assigned = session, session.Claims()[m.topic]
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.assigned = nil
	return nil
}

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, more := <-claim.Messages():
			if !more {
				return nil
			}
			select {
			case m.arrived <- message:
				session.MarkMessage(message, "")
			case <-session.Context().Done():
				return nil
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func (m *member) Assignment() []int32 {
	m.lock.Lock()
	defer m.lock.Unlock()
	return slices.Clone(m.assigned)
}

func (m *member) Close() {
	m.cancel()
	<-m.ended
	m.group.Close()
}

func (c *client) ReadInGroup(ctx context.Context, topic, group string, n int) ([]driving.Record, error) {
	m, err := c.join(ctx, topic, group)
	if err != nil {
		return nil, err
	}
	read, err := collect(ctx, m.arrived, n)
	if err == nil {
		m.commit(topic, read)
	}
	m.Close()
	return read, err
}

// commit marks what was read for sure, then sends it: the last message may not be marked yet by the claim that handed it over.
func (m *member) commit(topic string, read []driving.Record) {
	m.lock.Lock()
	session := m.session
	m.lock.Unlock()
	for _, record := range read {
		session.MarkOffset(topic, record.Partition, record.Offset+1, "")
	}
	session.Commit()
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
	return c.admin.DeleteRecords(topic, map[int32]int64{partition: before})
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

func (c *client) SetConfig(_ context.Context, topic, key, value string) error {
	changes := map[string]sarama.IncrementalAlterConfigsEntry{key: {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value}}
	return c.admin.IncrementalAlterConfig(sarama.TopicResource, topic, changes, false)
}

func (c *client) Groups(context.Context) ([]string, error) {
	listed, err := c.admin.ListConsumerGroups()
	return slices.Collect(maps.Keys(listed)), err
}

func (c *client) GroupState(_ context.Context, group string) (string, error) {
	described, err := c.admin.DescribeConsumerGroups([]string{group})
	if err != nil {
		return "", err
	}
	return described[0].State, nil
}

func (c *client) DeleteGroup(_ context.Context, group string) error {
	return c.admin.DeleteConsumerGroup(group)
}
