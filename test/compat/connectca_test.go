package compat

import (
	"crypto/x509"
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
)

func TestConnectCA(t *testing.T) {
	c := consul(t).Connect()
	var roots *api.CARootList
	eventually(t, "the first root", func() (err error) {
		if roots, _, err = c.CARoots(nil); err == nil && len(roots.Roots) == 0 {
			err = errors.New("no root yet")
		}
		return err
	})
	if roots.ActiveRootID == "" || roots.TrustDomain == "" ||
		!x509.NewCertPool().AppendCertsFromPEM([]byte(roots.Roots[0].RootCertPEM)) {
		t.Errorf("roots %+v", roots)
	}
	conf, _, err := c.CAGetConfig(nil)
	must(t, err)
	parsed, err := api.ParseConsulCAConfig(conf.Config)
	must(t, err)
	want := api.ConsulCAProviderConfig{IntermediateCertTTL: 8760 * time.Hour}
	want.LeafCertTTL, want.RootCertTTL = 72*time.Hour, 87600*time.Hour
	if *parsed != want || conf.Provider != "consul" {
		t.Errorf("fresh configuration %+v", parsed)
	}
	conf.Config["test_state"] = map[string]string{"foo": "bar"}
	conf.Config["LeafCertTTL"] = "24h"
	conf.Config["PrivateKeyBits"] = 384
	_, err = c.CASetConfig(conf, nil)
	must(t, err)
	conf, _, err = c.CAGetConfig(nil)
	must(t, err)
	if parsed, err = api.ParseConsulCAConfig(conf.Config); err != nil || parsed.LeafCertTTL != 24*time.Hour ||
		conf.State["foo"] != "bar" {
		t.Errorf("after a change %+v, %+v: %v", parsed, conf, err)
	}
	after, _, err := c.CARoots(nil)
	must(t, err)
	agent, _, err := consul(t).Agent().ConnectCARoots(nil)
	must(t, err)
	if len(after.Roots) != len(roots.Roots)+1 || after.ActiveRootID == roots.ActiveRootID ||
		agent.ActiveRootID != after.ActiveRootID {
		t.Errorf("after the rotation %+v, by the agent %+v", after, agent)
	}
}
