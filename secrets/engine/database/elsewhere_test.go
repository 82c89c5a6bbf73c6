package database

import (
	"testing"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine/enginetest"
)

// TestPasswordGoesNowhereElse: who may write a configuration need not know its password, and does not get it by
// naming another host.
func TestPasswordGoesNowhereElse(t *testing.T) {
	d := enginetest.New(t, &Engine{}, "database/")
	const good = "postgres://{{username}}:{{password}}@db.example/x?sslmode=verify-full"
	d.OK(secrets.Update, "config/a", map[string]any{"plugin_name": plugin, "connection_url": good, "username": "u",
		"password": "secret", "verify_connection": false})
	for what, change := range map[string]map[string]any{
		"another host": {"connection_url": "postgres://{{username}}:{{password}}@evil.example/x?sslmode=verify-full"},
		"another port": {"connection_url": "postgres://{{username}}:{{password}}@db.example:5433/x?sslmode=verify-full"},
		"one host more": {"connection_url": "postgres://{{username}}:{{password}}@db.example," +
			"evil.example/x?sslmode=verify-full"},
		"a host in the query":  {"connection_url": good + "&host=evil.example"},
		"without TLS":          {"connection_url": "postgres://{{username}}:{{password}}@db.example/x?sslmode=disable"},
		"any certificate":      {"connection_url": "postgres://{{username}}:{{password}}@db.example/x?sslmode=require"},
		"a fallback":           {"connection_url": "postgres://{{username}}:{{password}}@db.example/x?sslmode=prefer"},
		"a host in a name":     {"username": "u@evil.example/", "disable_escaping": true},
		"the password as host": {"connection_url": "postgres://{{username}}@{{password}}.evil.example/x?sslmode=verify-full"},
	} {
		change["verify_connection"] = false
		t.Log(what)
		d.Refused(errkind.Invalid, "password", secrets.Update, "config/a", change)
	}
	for _, change := range []map[string]any{
		{"connection_url": "postgres://{{username}}:{{password}}@db.example/other?sslmode=verify-full&application_name=a"},
		{"max_open_connections": 8, "username": "other"},
		{"connection_url": "postgres://{{username}}:{{password}}@new.example/x", "password": "another"},
	} {
		change["verify_connection"] = false
		d.OK(secrets.Update, "config/a", change)
	}
}

// TestConnectionsOfOtherCertificates: connections that were made with other certificates are not used any more.
func TestConnectionsOfOtherCertificates(t *testing.T) {
	cfg := config{Name: "a", URL: "postgres://u@db.example/x", limits: limits{Open: 1}}
	var s links
	first := s.pool(&cfg)
	for _, change := range []func(*config){func(c *config) { c.TLSCA = "x" }, func(c *config) { c.TLSCert = "x" },
		func(c *config) { c.TLSKey = "x" }} {
		other := cfg
		change(&other)
		if s.pool(&other) == first {
			t.Error("the same connections")
		}
		first = s.pool(&cfg)
	}
}
