package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const partitionsOfTopic = 4

type topics struct {
	names []string
	admin *kadm.Client
}

// createTopics creates three topics with names that no other run has, and waits until their partitions have leaders.
func createTopics(ctx context.Context, given settings, load string) (*topics, error) {
	plain, err := kgo.NewClient(append(given.security(), kgo.SeedBrokers(given.brokers...), kgo.MetadataMinAge(10*time.Millisecond))...)
	if err != nil {
		return nil, err
	}
	made := &topics{admin: kadm.NewClient(plain)}
	for _, subject := range []string{"orders", "payments", "page-views"} {
		made.names = append(made.names, fmt.Sprintf("%s-%d-%s", load, time.Now().UnixNano(), subject))
	}
	created, err := made.admin.CreateTopics(ctx, partitionsOfTopic, -1, nil, made.names...)
	if err == nil {
		err = created.Error()
	}
	for err == nil && !made.led(ctx) {
		time.Sleep(10 * time.Millisecond)
	}
	return made, err
}

func (t *topics) led(ctx context.Context) bool {
	listed, err := t.admin.ListTopics(ctx, t.names...)
	count := 0
	for _, name := range t.names {
		for _, partition := range listed[name].Partitions {
			if partition.Err == nil && partition.Leader >= 0 {
				count++
			}
		}
	}
	return err == nil && count == len(t.names)*partitionsOfTopic
}

func (t *topics) remove(ctx context.Context) {
	t.admin.DeleteTopics(ctx, t.names...)
	t.admin.Close()
}
