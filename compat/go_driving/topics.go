package driving

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

func (d driver) topics(ctx context.Context, topic string) error {
	if err := d.readyTopic(ctx, topic, 3, map[string]string{"segment.bytes": "1048576"}); err != nil {
		return err
	}
	if err := until(ctx, "the topic is in the list", func() (bool, error) { return d.listed(ctx, topic) }); err != nil {
		return err
	}
	if err := moved(ctx, topic); err != nil {
		return err
	}
	if err := d.expectConfig(ctx, topic, "segment.bytes", "1048576"); err != nil {
		return err
	}
	if err := d.AddPartitions(ctx, topic, 5); err != nil {
		return fmt.Errorf("add partitions: %w", err)
	}
	if err := d.led(ctx, topic, 5); err != nil {
		return err
	}
	return d.gone(ctx, topic)
}

func (d driver) listed(ctx context.Context, topic string) (bool, error) {
	all, err := d.Topics(ctx)
	return slices.Contains(all, topic), err
}

// gone deletes a topic.
func (d driver) gone(ctx context.Context, topic string) error {
	if err := d.DeleteTopic(ctx, topic); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return until(ctx, "the topic is deleted", func() (bool, error) {
		there, err := d.listed(ctx, topic)
		return !there, err
	})
}

// topicIDs: one producer and one consumer continue when the topic is recreated with another id.
func (d driver) topicIDs(ctx context.Context, topic string) error {
	records, err := samples(33)
	if err != nil {
		return err
	}
	first, err := d.identified(ctx, topic)
	if err != nil {
		return err
	}
	producer, err := d.OpenProducer(ctx, plain)
	if err != nil {
		return err
	}
	defer producer.Close()
	consumer, err := d.OpenConsumer(ctx, topic, partitions, prompt)
	if err != nil {
		return err
	}
	defer consumer.Close()
	through := func(records []Record) error {
		if err := producer.Send(ctx, topic, records); err != nil {
			return fmt.Errorf("send: %w", err)
		}
		read, err := take(ctx, consumer, len(records))
		if err != nil {
			return err
		}
		return check(read, records, d.EmptyIsNull())
	}
	if err := through(records); err != nil {
		return err
	}
	if again, err := d.TopicID(ctx, topic); err != nil || again != first {
		return either(err, "the id was %s and is %s", first, again)
	}
	if err := d.gone(ctx, topic); err != nil {
		return err
	}
	if second, err := d.identified(ctx, topic); err != nil || second == first {
		return either(err, "the new topic has the old id %s", first)
	}
	producer.Renew(topic)
	if err := consumer.Renew(); err != nil {
		return fmt.Errorf("the new topic: %w", err)
	}
	if err := through(records[:15]); err != nil {
		return fmt.Errorf("the new topic: %w", err)
	}
	if err := moved(ctx, topic); err != nil {
		return err
	}
	if err := through(records[15:]); err != nil {
		return fmt.Errorf("the new topic with other leaders: %w", err)
	}
	return nil
}

// identified makes a topic and returns its id.
func (d driver) identified(ctx context.Context, topic string) (string, error) {
	// A topic cannot be created again before its deletion has ended, which clients do not see.
	if err := patiently(ctx, func() error { return d.CreateTopic(ctx, topic, partitions, map[string]string{"retention.ms": "-1"}) }); err != nil {
		return "", fmt.Errorf("create: %w", err)
	}
	if err := d.led(ctx, topic, partitions); err != nil {
		return "", err
	}
	id, err := d.TopicID(ctx, topic)
	if err == nil && id == "" {
		err = errors.New("the topic has no id")
	}
	return id, err
}

func (d driver) offsets(ctx context.Context, topic string) error {
	if _, err := d.sentAndMoved(ctx, topic, 99); err != nil {
		return err
	}
	first, last, err := d.firstAndLast(ctx, topic, 0)
	if err != nil || first != 0 || last != 33 {
		return either(err, "first and last are %d and %d", first, last)
	}
	tenth := baseTimestamp + 10*partitions*stepMs
	for timestamp, want := range map[int64]int64{tenth: 10, tenth + 1: 11} {
		if at, err := d.offsetAt(ctx, topic, 0, timestamp); err != nil || at != want {
			return either(err, "at %d is %d, not %d", timestamp, at, want)
		}
	}
	return nil
}

func (d driver) deleteRecords(ctx context.Context, topic string) error {
	records, err := d.sentAndMoved(ctx, topic, 99)
	if err != nil {
		return err
	}
	if err := patiently(ctx, func() error { return d.DeleteRecords(ctx, topic, 0, 20) }); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	if err := moved(ctx, topic); err != nil {
		return err
	}
	if first, _, err := d.firstAndLast(ctx, topic, 0); err != nil || first != 20 {
		return either(err, "the first offset is %d instead of 20", first)
	}
	left := slices.DeleteFunc(records, func(r Record) bool { return r.Partition == 0 && r.Offset < 20 })
	return d.readBack(ctx, topic, left, prompt)
}

func (d driver) configs(ctx context.Context, topic string) error {
	const changed, kept, standard = "max.message.bytes", "segment.bytes", "1048588"
	if err := d.readyTopic(ctx, topic, partitions, map[string]string{changed: "500000", kept: "1048576"}); err != nil {
		return err
	}
	for key, value := range map[string]string{changed: "500000", kept: "1048576", "cleanup.policy": "delete"} {
		if err := d.expectConfig(ctx, topic, key, value); err != nil {
			return err
		}
	}
	if err := moved(ctx, topic); err != nil {
		return err
	}
	other := "600000"
	for _, step := range []struct {
		given *string
		shown string
	}{{&other, other}, {nil, standard}} {
		if err := d.SetConfig(ctx, topic, changed, step.given); err != nil {
			return fmt.Errorf("alter: %w", err)
		}
		err := until(ctx, changed+"="+step.shown, func() (bool, error) {
			value, err := d.Config(ctx, topic, changed)
			return value == step.shown, err
		})
		if err != nil {
			return err
		}
		if err := d.expectConfig(ctx, topic, kept, "1048576"); err != nil {
			return err
		}
	}
	return nil
}

func (d driver) expectConfig(ctx context.Context, topic, key, want string) error {
	if value, err := d.Config(ctx, topic, key); err != nil || value != want {
		return either(err, "%s is %q, not %q", key, value, want)
	}
	return nil
}
