package main

import (
	"context"
	"fmt"
	"time"

	"compat/driving"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// exchange produces a record and consumes one. The client tries again until its context ends: a first request shows what it gets.
func exchange(ctx context.Context, one driving.Secured) error {
	options, err := secured(one)
	if err != nil {
		return err
	}
	producer, err := kgo.NewClient(append(options, kgo.RetryTimeout(time.Second), kgo.RequestRetries(0))...)
	if err != nil {
		return err
	}
	defer producer.Close()
	if err := producer.Ping(ctx); err != nil {
		return err
	}
	if err := producer.ProduceSync(ctx, &kgo.Record{Topic: one.Topic, Value: []byte("secured")}).FirstErr(); err != nil {
		return err
	}
	consumer, err := kgo.NewClient(append(options, kgo.ConsumerGroup(one.Group), kgo.ConsumeTopics(one.Topic))...)
	if err != nil {
		return err
	}
	defer consumer.CloseAllowingRebalance()
	fetched := consumer.PollFetches(ctx)
	if err := fetched.Err0(); err != nil {
		return err
	}
	for _, problem := range fetched.Errors() {
		return problem.Err
	}
	if fetched.NumRecords() == 0 {
		return fmt.Errorf("no record, and no error")
	}
	return nil
}

func secured(one driving.Secured) ([]kgo.Opt, error) {
	config, err := one.TLS()
	if err != nil {
		return nil, err
	}
	options := []kgo.Opt{kgo.SeedBrokers(one.Address), kgo.DialTLSConfig(config)}
	login := scram.Auth{User: one.User, Pass: one.Password}
	switch one.Mechanism {
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: one.User, Pass: one.Password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(login.AsSha256Mechanism()))
	case "OAUTHBEARER":
		options = append(options, kgo.SASL(oauth.Auth{Token: one.Token}.AsMechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(login.AsSha512Mechanism()))
	}
	return options, nil
}
