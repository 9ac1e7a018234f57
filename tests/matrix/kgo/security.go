package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// security returns the options for TLS and SASL that the variable CLIENT_SECURITY asks for, which has no secrets in the
// list of processes. Without it, there are none.
func security() []kgo.Opt {
	text := os.Getenv("CLIENT_SECURITY")
	if text == "" {
		return nil
	}
	var asked struct {
		CA        string `json:"ca"`
		Mechanism string `json:"mechanism"`
		User      string `json:"user"`
		Password  string `json:"password"`
		Token     string `json:"token"`
	}
	if err := json.Unmarshal([]byte(text), &asked); err != nil {
		panic(err)
	}
	pem, err := os.ReadFile(asked.CA)
	if err != nil {
		panic(err)
	}
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(pem)
	secret := scram.Auth{User: asked.User, Pass: asked.Password}
	mechanism := map[string]sasl.Mechanism{
		"PLAIN":         plain.Auth{User: asked.User, Pass: asked.Password}.AsMechanism(),
		"SCRAM-SHA-256": secret.AsSha256Mechanism(),
		"SCRAM-SHA-512": secret.AsSha512Mechanism(),
		"OAUTHBEARER":   oauth.Auth{Token: asked.Token}.AsMechanism(),
	}[asked.Mechanism]
	return []kgo.Opt{kgo.DialTLSConfig(&tls.Config{RootCAs: authorities}), kgo.SASL(mechanism)}
}
