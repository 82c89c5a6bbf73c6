//go:build unix

package database

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/loud"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/testport"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/engine/enginetest"
	"corbel.dev/corbel/secrets/engine/record"
)

// redisDesk is a desk with a real Redis as the configuration "r".
func redisDesk(t *testing.T) (*enginetest.Desk, func(user, password string, words ...string) (any, error)) {
	t.Helper()
	bin, err := exec.LookPath("redis-server")
	if err != nil {
		loud.Skip(t, "%v", err)
	}
	ports, err := testport.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	port := ports[0]
	server := exec.CommandContext(context.WithoutCancel(t.Context()), bin, "--port", strconv.Itoa(port), "--bind",
		"127.0.0.1", "--save", "", "--dir", t.TempDir(), "--requirepass", "first")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	as := func(user, password string, words ...string) (any, error) {
		s, _, err := redis{}.connect(t.Context(), &config{place: place{Host: "127.0.0.1", Port: port}, User: user}, password)
		if err != nil {
			return nil, err
		}
		defer s.close(t.Context()) //nolint:errcheck // the test's own
		return s.(*redisSession).ask(t.Context(), words...)
	}
	polltest.Until(t, func() bool { _, err := as("default", "first", "PING"); return err == nil }, "redis answers")
	e := &Engine{TTLs: func() (time.Duration, time.Duration) { return time.Hour, 24 * time.Hour }}
	d := enginetest.New(t, e, "database/")
	t.Cleanup(func() { e.close("r") })
	d.OK(secrets.Update, "config/r", body{"plugin_name": redisPlugin, "host": "127.0.0.1", "port": port,
		"username": "default", "password": "first", "allowed_roles": "*"})
	return d, as
}

func TestRedis(t *testing.T) {
	d, as := redisDesk(t)
	if got := d.OK(secrets.Read, "config/r", nil); got["plugin_name"] != redisPlugin ||
		strings.Contains(fmt.Sprint(got), "first") {
		t.Errorf("%v", got)
	}
	d.OK(secrets.Update, "roles/app", body{"db_name": "r", "creation_statements": `["~app:*", "+set", "+get"]`})
	resp, err := d.Ask(secrets.Read, "creds/app", nil)
	if err != nil {
		t.Fatal(err)
	}
	made, err := record.ReadJSON[struct{ Username, Password string }](resp.Data)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := as(made.Username, made.Password, "SET", "app:1", "x"); got != "OK" {
		t.Errorf("what is allowed: %v, %v", got, err)
	}
	_, err = as(made.Username, made.Password, "SET", "other", "x")
	if err == nil || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("what is not allowed: %v", err)
	}
	l := engine.Lease{Internal: resp.Lease.Internal, Expires: d.Now().Add(time.Hour)}
	for range 2 { // again, as after a crash
		if _, err := d.Engine.(engine.Leaser).Revoke(t.Context(), d.Store, l); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := as(made.Username, made.Password, "PING"); err == nil {
		t.Error("the user is there after its lease")
	}
	d.OK(secrets.Update, "roles/bad", body{"db_name": "r", "creation_statements": `["+@nothing"]`})
	d.Refused(errkind.Invalid, "refused", secrets.Read, "creds/bad", nil)
	d.OK(secrets.Update, "roles/open", body{"db_name": "r", "creation_statements": `["nopass", "+@all"]`})
	d.Refused(errkind.Invalid, "the engine's to set", secrets.Read, "creds/open", nil)
	d.Refused(errkind.Invalid, "password", secrets.Update, "config/r", body{"host": "localhost"})
	d.Refused(errkind.Invalid, "plugin_name", secrets.Update, "config/r", body{"plugin_name": plugin})

	// A user of the server's own, whose password changes by the clock.
	if _, err := as("default", "first", "ACL", "SETUSER", "batch", "on", ">old", "~*", "+@all"); err != nil {
		t.Fatal(err)
	}
	d.OK(secrets.Update, "static-roles/batch", body{"db_name": "r", "username": "batch", "rotation_period": "1h"})
	now := d.OK(secrets.Read, "static-creds/batch", nil)
	if _, err := as("batch", "old", "PING"); err == nil {
		t.Error("the old password is still good")
	}
	if _, err := as("batch", now.Text("password"), "PING"); err != nil {
		t.Error(err)
	}
	d.OK(secrets.Update, "rotate-root/r", nil)
	if _, err := as("default", "first", "PING"); err == nil {
		t.Error("the root password is still good")
	}
	d.OK(secrets.Read, "creds/app", nil)
	if got := d.OK(secrets.Update, "reload/"+redisPlugin, nil); got["count"] != 1.0 {
		t.Errorf("%v", got)
	}
}

func FuzzRedisAnswer(f *testing.F) {
	for _, seed := range []string{"+OK\r\n", "-ERR x\r\n", "*2\r\n$1\r\na\r\n*-1\r\n", "$-1\r\n",
		strings.Repeat("*9\r\n", 6)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _ = readRedis(bufio.NewReader(bytes.NewReader(b)), 0)
	})
}
