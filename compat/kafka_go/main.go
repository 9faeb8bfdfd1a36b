// The driver of kafka-go: HOST:PORT,... [FEATURE ...]; kafka_go/run builds and runs it.
package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"compat/driving"

	"github.com/segmentio/kafka-go"
)

type client struct {
	address []string
	admin   *kafka.Client
}

func main() {
	if driving.DriveSecured("kafka-go", "github.com/segmentio/kafka-go", exchange) {
		return
	}
	driving.Drive("kafka-go", "github.com/segmentio/kafka-go", func(address []string) (driving.Client, error) {
		// The largest age of the metadata that administration uses; also the time limit of metadata requests.
		transport := &kafka.Transport{MetadataTTL: time.Second}
		return &client{address, &kafka.Client{Addr: kafka.TCP(address...), Transport: transport}}, nil
	})
}

// EmptyIsNull: kafka-go reads null as empty.
func (c *client) EmptyIsNull() bool { return true }

func (c *client) CreateTopic(ctx context.Context, topic string, partitions int, configs map[string]string) error {
	made := kafka.TopicConfig{Topic: topic, NumPartitions: partitions, ReplicationFactor: -1}
	for key, value := range configs {
		made.ConfigEntries = append(made.ConfigEntries, kafka.ConfigEntry{ConfigName: key, ConfigValue: value})
	}
	answer, err := c.admin.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{made}})
	if err != nil {
		return err
	}
	return answer.Errors[topic]
}

func (c *client) Topics(ctx context.Context) ([]string, error) {
	answer, err := c.admin.Metadata(ctx, &kafka.MetadataRequest{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, topic := range answer.Topics {
		names = append(names, topic.Name)
	}
	return names, nil
}

func (c *client) PartitionsWithLeaders(ctx context.Context, topic string) (int, error) {
	answer, err := c.admin.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return 0, err
	}
	found := 0
	for _, partition := range answer.Topics[0].Partitions {
		if partition.Error == nil && partition.Leader.Host != "" {
			found++
		}
	}
	return found, nil
}

func (c *client) AddPartitions(ctx context.Context, topic string, total int) error {
	answer, err := c.admin.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{{Name: topic, Count: int32(total)}}})
	if err != nil {
		return err
	}
	return answer.Errors[topic]
}

func (c *client) TopicID(context.Context, string) (string, error) {
	return "", driving.Lacks("it does not show topic ids")
}

func (c *client) DeleteTopic(ctx context.Context, topic string) error {
	answer, err := c.admin.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	if err != nil {
		return err
	}
	return answer.Errors[topic]
}

func (c *client) FirstAndLast(ctx context.Context, topic string, partition int32) (int64, int64, error) {
	first, err := c.offset(ctx, topic, kafka.FirstOffsetOf(int(partition)))
	if err != nil {
		return 0, 0, err
	}
	last, err := c.offset(ctx, topic, kafka.LastOffsetOf(int(partition)))
	return first.FirstOffset, last.LastOffset, err
}

func (c *client) OffsetAt(ctx context.Context, topic string, partition int32, timestamp int64) (int64, error) {
	found, err := c.offset(ctx, topic, kafka.TimeOffsetOf(int(partition), time.UnixMilli(timestamp)))
	if err != nil {
		return 0, err
	}
	for offset := range found.Offsets {
		return offset, nil
	}
	return 0, fmt.Errorf("no offset at %d", timestamp)
}

func (c *client) offset(ctx context.Context, topic string, which kafka.OffsetRequest) (kafka.PartitionOffsets, error) {
	answer, err := c.admin.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: {which}}})
	if err != nil {
		return kafka.PartitionOffsets{}, err
	}
	found := answer.Topics[topic]
	if len(found) != 1 {
		return kafka.PartitionOffsets{}, fmt.Errorf("%d responses for one partition", len(found))
	}
	return found[0], found[0].Error
}

func (c *client) DeleteRecords(context.Context, string, int32, int64) error {
	return driving.Lacks("it does not delete records")
}

func (c *client) Config(ctx context.Context, topic, key string) (string, error) {
	asked := kafka.DescribeConfigRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{key}}
	answer, err := c.admin.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{asked}})
	if err != nil {
		return "", err
	}
	described := answer.Resources[0]
	if described.Error != nil || len(described.ConfigEntries) != 1 {
		return "", errors.Join(described.Error, fmt.Errorf("%s is described %d times", key, len(described.ConfigEntries)))
	}
	return described.ConfigEntries[0].ConfigValue, nil
}

func (c *client) SetConfig(ctx context.Context, topic, key string, value *string) error {
	change := kafka.IncrementalAlterConfigsRequestConfig{Name: key, ConfigOperation: kafka.ConfigOperationDelete}
	if value != nil {
		change.Value, change.ConfigOperation = *value, kafka.ConfigOperationSet
	}
	altered := kafka.IncrementalAlterConfigsRequestResource{
		ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, Configs: []kafka.IncrementalAlterConfigsRequestConfig{change},
	}
	answer, err := c.admin.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{altered},
	})
	if err != nil {
		return err
	}
	return answer.Resources[0].Error
}

func (c *client) Groups(ctx context.Context) ([]string, error) {
	answer, err := c.admin.ListGroups(ctx, &kafka.ListGroupsRequest{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, group := range answer.Groups {
		names = append(names, group.GroupID)
	}
	return slices.Compact(names), answer.Error
}

func (c *client) Group(ctx context.Context, group string) (driving.GroupDescription, error) {
	answer, err := c.admin.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{group}})
	if err != nil {
		return driving.GroupDescription{}, err
	}
	described := answer.Groups[0]
	return driving.GroupDescription{State: described.GroupState, Members: len(described.Members)}, described.Error
}

func (c *client) DeleteGroup(ctx context.Context, group string) error {
	answer, err := c.admin.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{group}})
	if err != nil {
		return err
	}
	return answer.Errors[group]
}

func (c *client) SetGroupOffsets(ctx context.Context, group, topic string, offsets map[int32]int64) error {
	var commits []kafka.OffsetCommit
	for partition, offset := range offsets {
		commits = append(commits, kafka.OffsetCommit{Partition: int(partition), Offset: offset})
	}
	answer, err := c.admin.OffsetCommit(ctx, &kafka.OffsetCommitRequest{
		GroupID: group, GenerationID: -1, Topics: map[string][]kafka.OffsetCommit{topic: commits},
	})
	if err != nil {
		return err
	}
	var problems []error
	for _, committed := range answer.Topics[topic] {
		problems = append(problems, committed.Error)
	}
	return errors.Join(problems...)
}
