package driving

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"
)

const securedPatience = 30 * time.Second // for a case

// Secured is a case on a secured listener: compat/security/cases.py has its fields. Those that are not needed are empty.
type Secured struct {
	Name, Address, Topic, Group, Mechanism, User, Password, CA, Certificate, Key, Token string
}

// TLS is the configuration of TLS, without the name of the broker.
func (s Secured) TLS() (*tls.Config, error) {
	authority, err := os.ReadFile(s.CA)
	if err != nil {
		return nil, err
	}
	made := &tls.Config{RootCAs: x509.NewCertPool()}
	if !made.RootCAs.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("%s has no certificate", s.CA)
	}
	if s.Certificate != "" {
		own, err := tls.LoadX509KeyPair(s.Certificate, s.Key)
		if err != nil {
			return nil, err
		}
		made.Certificates = []tls.Certificate{own}
	}
	return made, nil
}

// DriveSecured tries the cases of the file that the environment names, and prints a line of JSON for each; false without such a file.
// `exchange` produces a record and consumes one as a member of the group, or returns the client's own error.
func DriveSecured(name, module string, exchange func(context.Context, Secured) error) bool {
	file := os.Getenv("COMPAT_SECURITY")
	if file == "" {
		return false
	}
	text, err := os.ReadFile(file)
	var cases []Secured
	if err = errors.Join(err, json.Unmarshal(text, &cases)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	say(map[string]any{"client": name, "version": version(module)})
	for _, one := range cases {
		ctx, cancel := context.WithTimeout(context.Background(), securedPatience)
		report(one.Name, exchange(ctx, one))
		cancel()
	}
	return true
}
