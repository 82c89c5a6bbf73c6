//go:build unix

package database

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/loud"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/testport"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/engine/enginetest"
	"corbel.dev/corbel/secrets/engine/record"
)

const mysqlURL = "{{username}}:{{password}}@tcp(127.0.0.1:%d)/"

// mariaDB starts a real server with a root who has no password, and gives its port.
func mariaDB(t *testing.T) int {
	t.Helper()
	bin, err := exec.LookPath("mariadbd")
	if err != nil {
		bin, err = exec.LookPath("/usr/sbin/mariadbd")
	}
	if err != nil {
		loud.Skip(t, "no mariadbd: %v", err)
	}
	dir, err := os.MkdirTemp("/tmp", "corbel-maria-") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	data := filepath.Join(dir, "data")
	var as []string
	if os.Getuid() == 0 {
		as = []string{"--user=root"}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*polltest.Deadline)
	defer cancel()
	made := exec.CommandContext(ctx, "mariadb-install-db", append([]string{"--no-defaults", "--datadir=" + data,
		"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"}, as...)...)
	if out, err := made.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ports, err := testport.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	var tail spawn.Tail
	server := exec.CommandContext(context.WithoutCancel(t.Context()), bin, append([]string{"--no-defaults",
		"--datadir=" + data, "--socket=" + filepath.Join(dir, "s"), "--port=" + strconv.Itoa(ports[0]),
		"--bind-address=127.0.0.1", "--skip-name-resolve", "--innodb-buffer-pool-size=8M", "--skip-log-bin",
		"--innodb-flush-log-at-trx-commit=0"}, as...)...)
	server.Stdout, server.Stderr = &tail, &tail
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
		if t.Failed() {
			t.Logf("mariadbd: %s", tail.String())
		}
	})
	polltest.Until(t, func() bool { return asMySQL(t, ports[0], "root", "") == nil }, "mariadbd takes connections")
	return ports[0]
}

// asMySQL executes statements as a user.
func asMySQL(t *testing.T, port int, user, password string, statements ...string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), polltest.Deadline)
	defer cancel()
	s, _, err := mysqlKind{}.connect(ctx, &config{URL: fmt.Sprintf(mysqlURL, port), User: user}, password)
	if err != nil {
		return err
	}
	defer s.close(ctx) //nolint:errcheck // the test's own
	return s.(*mysqlSession).run(ctx, statements, values{})
}

func TestMySQL(t *testing.T) {
	port := mariaDB(t)
	err := asMySQL(t, port, "root", "", "CREATE DATABASE app; CREATE TABLE app.things (x INT)",
		"CREATE USER 'vault'@'%' IDENTIFIED BY 'first'; GRANT ALL ON *.* TO 'vault'@'%' WITH GRANT OPTION",
		"CREATE USER 'batch'@'127.0.0.1' IDENTIFIED BY 'old'; CREATE USER 'batch'@'%' IDENTIFIED BY 'old'")
	if err != nil {
		t.Fatal(err)
	}
	e := &Engine{TTLs: func() (time.Duration, time.Duration) { return time.Hour, 24 * time.Hour }}
	d := enginetest.New(t, e, "database/")
	t.Cleanup(func() { e.close("m") })
	config := body{"plugin_name": mysqlPlugin, "connection_url": fmt.Sprintf(mysqlURL, port), "username": "vault",
		"password": "first", "allowed_roles": "*"}
	wrong := map[string]any{}
	for k, v := range config {
		wrong[k] = v
	}
	wrong["password"] = "wrong-word"
	d.Refused(errkind.Invalid, "1045", secrets.Update, "config/m", wrong)
	d.OK(secrets.Update, "config/m", config)
	if got := d.OK(secrets.Read, "config/m", nil); got["plugin_name"] != mysqlPlugin ||
		strings.Contains(fmt.Sprint(got), "first") {
		t.Errorf("%v", got)
	}

	d.OK(secrets.Update, "roles/app", body{"db_name": "m", "creation_statements": "CREATE USER '{{name}}'@'%' " +
		"IDENTIFIED BY '{{password}}'; GRANT SELECT ON app.* TO '{{name}}'@'%';"})
	resp, err := d.Ask(secrets.Read, "creds/app", nil)
	if err != nil {
		t.Fatal(err)
	}
	made, err := record.ReadJSON[struct{ Username, Password string }](resp.Data)
	if err != nil {
		t.Fatal(err)
	}
	if len(made.Username) > 32 {
		t.Errorf("%q is too long for a server", made.Username)
	}
	if err := asMySQL(t, port, made.Username, made.Password, "SELECT * FROM app.things"); err != nil {
		t.Errorf("what is allowed: %v", err)
	}
	if err := asMySQL(t, port, made.Username, made.Password, "DROP TABLE app.things"); err == nil {
		t.Error("what is not allowed was done")
	}
	l := engine.Lease{Internal: resp.Lease.Internal, Expires: d.Now().Add(time.Hour)}
	if _, err := e.Renew(t.Context(), d.Store, l); err != nil {
		t.Error(err)
	}
	for range 2 { // again, as after a crash
		if _, err := e.Revoke(t.Context(), d.Store, l); err != nil {
			t.Fatal(err)
		}
	}
	if asMySQL(t, port, made.Username, made.Password) == nil {
		t.Error("the user is there after its lease")
	}

	// Statements that the server does not take, or that fail half-way, and errors without the password.
	d.OK(secrets.Update, "roles/bad", body{"db_name": "m", "creation_statements": "CREATE USER '{{name}}'@'%' " +
		"IDENTIFIED BY '{{password}}'; GRANT SELECT ON nowhere.* TOO '{{name}}'@'%'"})
	d.Refused(errkind.Invalid, "error 1064", secrets.Read, "creds/bad", nil)
	d.Refused(errkind.Invalid, "password", secrets.Update, "config/m",
		body{"connection_url": "{{username}}:{{password}}@tcp(127.0.0.2:1)/", "verify_connection": false})

	// A user of the server's own, with two hosts, whose password changes by the clock.
	d.OK(secrets.Update, "static-roles/batch", body{"db_name": "m", "username": "batch", "rotation_period": "1h"})
	now := d.OK(secrets.Read, "static-creds/batch", nil)
	if asMySQL(t, port, "batch", "old") == nil {
		t.Error("the old password is still good")
	}
	if err := asMySQL(t, port, "batch", now.Text("password")); err != nil {
		t.Error(err)
	}
	d.Refused(errkind.Invalid, "has no role", secrets.Update, "static-roles/none",
		body{"db_name": "m", "username": "none", "rotation_period": "1h"})

	d.OK(secrets.Update, "rotate-root/m", nil)
	if asMySQL(t, port, "vault", "first") == nil {
		t.Error("the root password is still good")
	}
	d.OK(secrets.Read, "creds/app", nil)
	if got := d.OK(secrets.Update, "reload/"+mysqlPlugin, nil); got["count"] != 1.0 {
		t.Errorf("%v", got)
	}
}

// TestMySQLRefuses are configurations that cannot be, or would give the password away.
func TestMySQLRefuses(t *testing.T) {
	d := enginetest.New(t, &Engine{}, "database/")
	good := "{{username}}:{{password}}@tcp(db.example:3306)/?tls=true"
	for what, change := range map[string]body{
		"connection_url cannot be empty": {"connection_url": ""},
		"connection_url cannot be read":  {"connection_url": "mysql://db.example"},
		"stand before the @ alone":       {"connection_url": "u:{{password}}@tcp({{username}}:1)/"},
		"is missing":                     {"username": ""},
		"neither tcp nor unix":           {"connection_url": "{{username}}:{{password}}@quic(db.example)/"},
		"allowOldPasswords":              {"connection_url": good + "&allowOldPasswords=true"},
		"tls_ca":                         {"tls_ca": "no certificate"},
		"tls_certificate_key":            {"tls_certificate_key": "no key"},
		"max_open_connections":           {"max_open_connections": 100000},
	} {
		b := body{"plugin_name": mysqlPlugin, "connection_url": good, "username": "u", "password": "secret",
			"verify_connection": false}
		for k, v := range change {
			b[k] = v
		}
		d.Refused(errkind.Invalid, what, secrets.Update, "config/a", b)
	}
	d.OK(secrets.Update, "config/a", body{"plugin_name": mysqlPlugin, "connection_url": good, "username": "u",
		"password": "secret", "verify_connection": false})
	for what, change := range map[string]body{
		"another host":    {"connection_url": "{{username}}:{{password}}@tcp(evil.example:3306)/?tls=true"},
		"another port":    {"connection_url": "{{username}}:{{password}}@tcp(db.example:3307)/?tls=true"},
		"without TLS":     {"connection_url": "{{username}}:{{password}}@tcp(db.example:3306)/"},
		"any certificate": {"tls_skip_verify": true},
		"another name":    {"tls_server_name": "evil.example"},
		"a fallback":      {"connection_url": "{{username}}:{{password}}@tcp(db.example:3306)/?tls=preferred"},
		"in plain":        {"connection_url": good + "&allowCleartextPasswords=true"},
	} {
		change["verify_connection"] = false
		t.Log(what)
		d.Refused(errkind.Invalid, "password", secrets.Update, "config/a", change)
	}
	d.OK(secrets.Update, "config/a", body{"max_open_connections": 8, "verify_connection": false})
}

func TestApart(t *testing.T) {
	for text, want := range map[string][]string{
		"":             nil,
		" ; ;":         nil,
		"a; b":         {"a", "b"},
		`a ';'; b`:     {`a ';'`, "b"},
		`a '\';'; b;`:  {`a '\';'`, "b"},
		"`;\\`; \"x;":  {"`;\\`", "\"x;"},
		`ends in a '\`: {`ends in a '\`},
	} {
		if got := apart(text); !slices.Equal(got, want) {
			t.Errorf("%q: %q, not %q", text, got, want)
		}
	}
}

// TestMute: no error shows a password, nor the beginning of one where the server cut it off.
func TestMute(t *testing.T) {
	v := values{password: "aB3-secret"}
	for text, want := range map[string]string{
		"about aB3-secret":                     "about *****",
		"near 'BY aB3-secret' at line 1":       "near 'BY *****' at line 1",
		"near 'IDENTIFIED BY aB3-' at line 12": "near 'IDENTIFIED BY *****' at line 12",
		"near 'x' at line 1":                   "near 'x' at line 1",
	} {
		err := mute(v, &mysql.MySQLError{Number: mysqlSyntax, Message: text})
		var got *mysql.MySQLError
		if !errors.As(err, &got) || got.Message != want {
			t.Errorf("%q: %v", text, err)
		}
	}
}
