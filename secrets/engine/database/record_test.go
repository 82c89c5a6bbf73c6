package database

import (
	"encoding/json"
	"testing"
)

// TestConfigRecord holds what is stored of a connection: the groups of its fields are no level of the record.
func TestConfigRecord(t *testing.T) {
	cfg := config{Name: "a", URL: "postgres://u@db/x", limits: limits{Open: 4, Idle: 2, Lifetime: 9}, Auth: "password",
		tlsFiles: tlsFiles{TLSCA: "ca", TLSCert: "cert", TLSKey: "key"}}
	got, err := json.Marshal(cfg)
	const want = `{"name":"a","connection_url":"postgres://u@db/x","max_open_connections":4,"max_idle_connections":2,` +
		`"max_connection_lifetime":9,"password_authentication":"password","tls_ca":"ca","tls_certificate":"cert",` +
		`"private_key":"key"}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v\nwant %s", got, err, want)
	}
}
