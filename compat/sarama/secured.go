package main

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"time"

	"compat/driving"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

// exchange produces a record and consumes one.
func exchange(ctx context.Context, one driving.Secured) error {
	settings, err := securedConfig(one)
	if err != nil {
		return err
	}
	producer, err := sarama.NewSyncProducer([]string{one.Address}, settings)
	if err != nil {
		return err
	}
	defer producer.Close()
	if _, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: one.Topic, Value: sarama.StringEncoder("secured")}); err != nil {
		return err
	}
	group, err := sarama.NewConsumerGroup([]string{one.Address}, one.Group, settings)
	if err != nil {
		return err
	}
	defer group.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		for problem := range group.Errors() {
			cancel(problem)
		}
	}()
	err = group.Consume(ctx, []string{one.Topic}, first{cancel})
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errConsumed):
		return nil
	case cause != nil:
		return cause
	case err == nil:
		return errors.New("no record, and no error")
	}
	return err
}

var errConsumed = errors.New("a record is consumed")

// first ends the session at the first record.
type first struct{ end context.CancelCauseFunc }

func (f first) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (f first) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (f first) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for range claim.Messages() {
		f.end(errConsumed)
		break
	}
	return nil
}

func securedConfig(one driving.Secured) (*sarama.Config, error) {
	made := sarama.NewConfig()
	made.Producer.Return.Successes = true
	made.Consumer.Return.Errors = true
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	made.Metadata.Retry.Max = 0
	made.Consumer.Group.Rebalance.Retry.Backoff = 10 * time.Millisecond
	tls, err := one.TLS()
	if err != nil {
		return nil, err
	}
	made.Net.TLS.Enable, made.Net.TLS.Config = true, tls
	if one.Mechanism == "" {
		return made, nil
	}
	made.Net.SASL.Enable = true
	made.Net.SASL.Mechanism = sarama.SASLMechanism(one.Mechanism)
	made.Net.SASL.User, made.Net.SASL.Password = one.User, one.Password
	if one.Token != "" {
		made.Net.SASL.TokenProvider = token(one.Token)
		return made, nil
	}
	hash := scram.HashGeneratorFcn(sha512.New)
	if one.Mechanism == sarama.SASLTypeSCRAMSHA256 {
		hash = sha256.New
	}
	made.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: hash} }
	return made, nil
}

// token is always the same.
type token string

func (t token) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(t)}, nil
}

// scramClient is what sarama leaves to the application, as in its examples.
type scramClient struct {
	hash         scram.HashGeneratorFcn
	conversation *scram.ClientConversation
}

func (s *scramClient) Begin(user, password, authorization string) error {
	client, err := s.hash.NewClient(user, password, authorization)
	if err == nil {
		s.conversation = client.NewConversation()
	}
	return err
}

func (s *scramClient) Step(challenge string) (string, error) { return s.conversation.Step(challenge) }
func (s *scramClient) Done() bool                            { return s.conversation.Done() }
