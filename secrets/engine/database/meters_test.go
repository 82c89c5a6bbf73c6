//go:build unix

package database

import (
	"testing"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/telemetry"
)

// What is asked of databases is counted by its names, under those of all mounts and of the one, and so are failures.
func TestMetersOfDatabases(t *testing.T) {
	d, _ := newDesk(t)
	e, reg := d.Engine.(*Engine), telemetry.New(telemetry.Config{})
	e.Metrics, e.Name = reg, "db-of-app"
	counted := func(when string, want map[string]uint64) {
		t.Helper()
		for name, n := range want {
			for _, full := range []string{"database." + name, "database.db-of-app." + name} {
				if got := reg.Timing(full).Count(); got != n {
					t.Errorf("%s, %s counts %d, want %d", when, full, got, n)
				}
			}
		}
	}
	failed := func(name string) uint64 { return reg.Counter("database." + name + ".error").Value() }

	resp, err := d.Ask(secrets.Read, "creds/app", nil)
	if err != nil {
		t.Fatal(err)
	}
	made := engine.Lease{ID: "x", Internal: resp.Lease.Internal, Expires: d.Now()}
	counted("a user later", map[string]uint64{"NewUser": 1, "CreateUser": 1, "UpdateUser": 0, "Close": 0})
	if _, err := e.Renew(t.Context(), d.Store, made); err != nil {
		t.Fatal(err)
	}
	counted("renewed", map[string]uint64{"RenewUser": 1, "UpdateUser": 1})
	if _, err := e.Revoke(t.Context(), d.Store, made); err != nil {
		t.Fatal(err)
	}
	counted("revoked", map[string]uint64{"RevokeUser": 1, "DeleteUser": 1})
	d.OK(secrets.Update, "reset/pg", nil)
	d.OK(secrets.Update, "reset/pg", nil) // nothing is left to close
	counted("reset", map[string]uint64{"Close": 1, "Initialize": 0})
	d.OK(secrets.Update, "config/pg", body{"max_open_connections": 3})
	counted("configured anew", map[string]uint64{"Initialize": 1})
	d.OK(secrets.Update, "rotate-root/pg", nil)
	counted("with another password", map[string]uint64{"UpdateUser": 2, "RenewUser": 1})
	for _, name := range []string{"NewUser", "UpdateUser", "DeleteUser", "Initialize", "Close"} {
		if n := failed(name); n != 0 {
			t.Errorf("%d of %s failed", n, name)
		}
	}

	d.OK(secrets.Update, "roles/app", body{"creation_statements": "CREATE NONSENSE"})
	if _, err := d.Ask(secrets.Read, "creds/app", nil); err == nil {
		t.Fatal("nonsense made a user")
	}
	if _, err := d.Ask(secrets.Update, "config/other",
		body{"plugin_name": plugin, "connection_url": "host=/none user=nobody"}); err == nil {
		t.Fatal("a database that is not there was taken")
	}
	counted("refused", map[string]uint64{"NewUser": 2, "CreateUser": 2})
	if failed("Initialize") != 1 || failed("NewUser") != 1 || failed("CreateUser") != 1 ||
		failed("db-of-app.NewUser") != 1 {
		t.Errorf("what failed counts %d, %d, %d and %d", failed("Initialize"), failed("NewUser"), failed("CreateUser"),
			failed("db-of-app.NewUser"))
	}
}
