package main

import (
	"context"
	"time"

	"compat/driving"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

// exchange produces a record and consumes one.
func exchange(ctx context.Context, one driving.Secured) error {
	config, err := one.TLS()
	if err != nil {
		return err
	}
	login, err := mechanism(one)
	if err != nil {
		return err
	}
	writer := &kafka.Writer{
		Addr: kafka.TCP(one.Address), Topic: one.Topic, BatchTimeout: 5 * time.Millisecond, RequiredAcks: kafka.RequireAll,
		Transport: &kafka.Transport{TLS: config, SASL: login}, MaxAttempts: 1,
	}
	defer writer.Close()
	if err := writer.WriteMessages(ctx, kafka.Message{Value: []byte("secured")}); err != nil {
		return err
	}
	return consume(ctx, one, &kafka.Dialer{TLS: config, SASLMechanism: login, Timeout: 10 * time.Second})
}

// consume a record. A reader logs errors and goes on: the first one counts.
func consume(ctx context.Context, one driving.Secured, dialer *kafka.Dialer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{one.Address}, Topic: one.Topic, GroupID: one.Group, StartOffset: kafka.FirstOffset, Dialer: dialer,
		MaxWait: 200 * time.Millisecond, // closing waits for the last fetch
		ErrorLogger: kafka.LoggerFunc(func(text string, values ...interface{}) {
			for _, value := range values {
				if err, ok := value.(error); ok {
					cancel(err)
				}
			}
		}),
	})
	defer reader.Close()
	if _, err := reader.ReadMessage(ctx); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	return nil
}

func mechanism(one driving.Secured) (sasl.Mechanism, error) {
	switch one.Mechanism {
	case "PLAIN":
		return plain.Mechanism{Username: one.User, Password: one.Password}, nil
	case "SCRAM-SHA-256":
		return scram.Mechanism(scram.SHA256, one.User, one.Password)
	case "SCRAM-SHA-512":
		return scram.Mechanism(scram.SHA512, one.User, one.Password)
	}
	if one.Mechanism != "" {
		return nil, driving.Lacks("it has no " + one.Mechanism)
	}
	return nil, nil
}
