//go:build unix

package database

import (
	"context"
	"crypto/md5"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/loud"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/engine/enginetest"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/pgstore/pgtest"
)

type body = map[string]any

var (
	shared     *pgtest.Server
	sharedErr  error
	sharedOnce sync.Once
)

func TestMain(m *testing.M) {
	code := m.Run()
	if shared != nil {
		shared.Remove()
	}
	os.Exit(code)
}

const creation = `CREATE ROLE "{{name}}" WITH LOGIN PASSWORD '{{password}}' VALID UNTIL '{{expiration}}'; GRANT ` +
	`SELECT ON ALL TABLES IN SCHEMA public TO "{{name}}"`

// newDesk is a desk with a configuration "pg" of a superuser of its own.
func newDesk(t *testing.T) (d *enginetest.Desk, url string) {
	t.Helper()
	if _, err := pgtest.Bin(); err != nil {
		loud.Skip(t, "%v", err)
	}
	sharedOnce.Do(func() {
		if shared, sharedErr = pgtest.New(); sharedErr == nil {
			sharedErr = demandPasswords(t.Context(), shared.URL(""))
		}
	})
	if sharedErr != nil {
		t.Fatal(sharedErr)
	}
	url = shared.URL("")
	root := fmt.Sprintf("root_%x", md5.Sum([]byte(t.Name())))[:20]
	runSQL(t, url, `DROP ROLE IF EXISTS `+root+`; CREATE ROLE `+root+
		` SUPERUSER LOGIN PASSWORD 'first'; CREATE TABLE IF NOT EXISTS things (x int)`)
	e := &Engine{TTLs: func() (time.Duration, time.Duration) { return time.Hour, 24 * time.Hour }}
	d = enginetest.New(t, e, "database/")
	t.Cleanup(func() { e.close("pg") })
	d.OK(secrets.Update, "config/pg", body{"plugin_name": plugin, "connection_url": strings.Replace(url, "user=corbel",
		"user={{username}} password={{password}}", 1),
		"username": root, "password": "first", "allowed_roles": "app,static*"})
	d.OK(secrets.Update, "roles/app", body{"db_name": "pg", "creation_statements": creation, "default_ttl": "1h",
		"max_ttl": "2h"})
	return d, url
}

// demandPasswords lets nobody in without one but the test's own superuser.
func demandPasswords(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var path string
	if err := conn.QueryRow(ctx, "SHOW hba_file").Scan(&path); err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte("local all corbel trust\nlocal all all scram-sha-256\n"), 0o600); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "SELECT pg_reload_conf()")
	return err
}

func runSQL(t *testing.T, url, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), polltest.Deadline) // cleanups call it too
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.PgConn().Exec(ctx, text).ReadAll(); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// roles are the roles in the server that dynamic names begin like.
func roles(t *testing.T, url string) []string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	rows, err := conn.Query(t.Context(), `SELECT rolname FROM pg_roles WHERE rolname LIKE 'v-%' ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// works reports whether a user can read.
func works(t *testing.T, url, user, password string) error {
	t.Helper()
	pc, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	pc.User, pc.Password = user, password
	conn, err := pgx.ConnectConfig(t.Context(), pc)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	_, err = conn.Exec(t.Context(), "SELECT * FROM things")
	return err
}

func TestCreds(t *testing.T) {
	d, url := newDesk(t)
	resp, err := d.Ask(secrets.Read, "creds/app", nil)
	if err != nil || resp.Lease == nil || resp.Lease.TTL != time.Hour || resp.Lease.MaxTTL != 2*time.Hour ||
		!resp.Lease.Renewable {
		t.Fatalf("%+v, %v", resp, err)
	}
	list := roles(t, url)
	if len(list) != 1 || !strings.HasPrefix(list[0], "v--app-") || len(list[0]) > 63 ||
		!strings.Contains(string(resp.Data), list[0]) {
		t.Fatalf("the roles are %q, the answer %s", list, resp.Data)
	}
	var got struct{ Username, Password string }
	if err := json.Unmarshal(resp.Data, &got); err != nil {
		t.Fatal(err)
	}
	polltest.Until(t, func() bool { return works(t, url, got.Username, "wrong") != nil }, "passwords are asked for")
	if err := works(t, url, got.Username, got.Password); err != nil {
		t.Error(err)
	}
	if left, err := d.Store.List(t.Context(), walPrefix, "", 0); err != nil || len(left) != 0 {
		t.Errorf("%v is left, %v", left, err)
	}
	e := d.Engine.(*Engine)
	l := engine.Lease{Internal: resp.Lease.Internal, Expires: d.Now().Add(90 * time.Minute)}
	if _, err := e.Renew(t.Context(), d.Store, l); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := e.Revoke(t.Context(), d.Store, l); err != nil {
			t.Fatal(err)
		}
	}
	if list := roles(t, url); len(list) != 0 {
		t.Errorf("after revocation: %q", list)
	}
}

func TestRefusals(t *testing.T) {
	d, url := newDesk(t)
	d.Refused(errkind.Invalid, "unknown role", secrets.Read, "creds/none", nil)
	d.OK(secrets.Update, "roles/other", body{"db_name": "pg", "creation_statements": creation})
	d.Refused(errkind.Denied, "not an allowed role", secrets.Read, "creds/other", nil)
	d.OK(secrets.Update, "roles/app", body{"db_name": "pg",
		"creation_statements": []string{`CREATE ROLE "{{name}}" LOGIN PASSWORD '{{password}}'`,
			`GRANT nonsense TO "{{name}}"`}})
	d.Refused(errkind.Invalid, "SQLSTATE 42704", secrets.Read, "creds/app", nil)
	if list := roles(t, url); len(list) != 0 {
		t.Errorf("half a role was made: %q", list)
	}
	for _, b := range []body{{}, {"db_name": "pg"}, {"db_name": "pg", "creation_statements": "x", "default_ttl": "2h",
		"max_ttl": "1h"}, {"db_name": "pg", "creation_statements": "x", "credential_type": "rsa_private_key"}} {
		d.Refused(errkind.Invalid, "", secrets.Update, "roles/bad", b)
	}
	good := body{"plugin_name": plugin, "connection_url": url}
	for name, v := range map[string]any{"plugin_name": "mysql-database-plugin", "connection_url": "",
		"max_open_connections": 1000, "password_authentication": "md5", "password_policy": "x"} {
		b := body{}
		for k, v := range good {
			b[k] = v
		}
		b[name] = v
		d.Refused(errkind.Invalid, "", secrets.Update, "config/bad", b)
	}
	d.Refused(errkind.Invalid, "error verifying connection", secrets.Update, "config/bad",
		body{"plugin_name": plugin, "connection_url": "host=/nowhere port=1 user=x password=hidden dbname=y"})
	d.OK(secrets.Update, "config/later", body{"plugin_name": plugin,
		"connection_url": "postgres://me:hidden@127.0.0.1:1/db", "verify_connection": false})
	if c := d.OK(secrets.Read, "config/later", nil); strings.Contains(fmt.Sprint(c), "hidden") {
		t.Errorf("the password shows: %v", c)
	}
	d.OK(secrets.Update, "roles/app", body{"db_name": "later"})
	d.OK(secrets.Update, "config/later", body{"allowed_roles": "*", "verify_connection": false})
	d.Refused(errkind.Unavailable, "cannot be reached", secrets.Read, "creds/app", nil)
	if c := d.OK(secrets.Read, "config/pg", nil); strings.Contains(fmt.Sprint(c), "first") ||
		c["connection_details"].(map[string]any)["max_open_connections"] != 4.0 {
		t.Errorf("the configuration: %v", c)
	}
	if l := d.OK(secrets.List, "roles/", nil); fmt.Sprint(l["keys"]) != "[app other]" {
		t.Errorf("roles: %v", l)
	}
}

// A crash after the role was made and before its lease was stored: what was written first drops it.
func TestCrashBetweenRoleAndLease(t *testing.T) {
	d, url := newDesk(t)
	ask := func() *secrets.Response { // as the keeper does, but for the last commit
		r := &secrets.Request{Op: secrets.Read, Rest: "creds/app", Now: d.Now()}
		first, err := d.Engine.Handle(t.Context(), d.Store, r)
		if err != nil {
			t.Fatal(err)
		}
		if len(roles(t, url)) > 0 {
			t.Fatal("a role was made before it was written down")
		}
		if err := d.Store.Commit(t.Context(), 0, first.Ops); err != nil {
			t.Fatal(err)
		}
		return first
	}
	if _, err := ask().Then.(step)(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.Engine = &Engine{TTLs: d.Engine.(*Engine).TTLs} // after the restart
	t.Cleanup(func() { d.Engine.(*Engine).close("pg") })
	d.Tend()
	if list := roles(t, url); len(list) != 1 {
		t.Fatalf("an entry that may be of a request under way was acted on: %q", list)
	}
	d.Wait(walWait + time.Second)
	d.Tend()
	if list := roles(t, url); len(list) != 0 {
		t.Errorf("left behind: %q", list)
	}
	ask() // a crash before the role was made
	d.Wait(walWait + time.Second)
	d.Tend()
	if left, err := d.Store.List(t.Context(), walPrefix, "", 0); err != nil || len(left) != 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// The database crashes under requests: whatever role was made has a lease or an entry, and goes.
func TestDatabaseCrash(t *testing.T) {
	if _, err := pgtest.Bin(); err != nil {
		loud.Skip(t, "%v", err)
	}
	own, err := pgtest.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.Remove)
	runSQL(t, own.URL(""), "CREATE TABLE things (x int)")
	e := &Engine{TTLs: func() (time.Duration, time.Duration) { return time.Hour, time.Hour }}
	d := enginetest.New(t, e, "database/")
	t.Cleanup(func() { e.close("pg") })
	d.OK(secrets.Update, "config/pg", body{"plugin_name": plugin, "connection_url": own.URL(""), "allowed_roles": "*"})
	d.OK(secrets.Update, "roles/app", body{"db_name": "pg", "creation_statements": creation})
	var mu sync.Mutex
	var leases [][]byte
	refused := 0
	ctx, stop := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for ctx.Err() == nil {
				resp, err := d.Ask(secrets.Read, "creds/app", nil)
				mu.Lock()
				if err == nil {
					leases = append(leases, resp.Lease.Internal)
				} else if refused++; !errkind.Is(err, errkind.Unavailable) && !errkind.Is(err, errkind.Invalid) {
					t.Errorf("a failure of kind %v: %v", errkind.Of(err), err)
				}
				mu.Unlock()
			}
		})
	}
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(leases) }
	for range 2 {
		before := count()
		polltest.Until(t, func() bool { return count() > before+2 }, "roles are made")
		own.Stop(syscall.SIGQUIT)
		if err := own.Start(); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	workers.Wait()
	for _, internal := range leases {
		if _, err := e.Revoke(t.Context(), d.Store, engine.Lease{Internal: internal}); err != nil {
			t.Fatal(err)
		}
	}
	d.Wait(2 * walMost)
	d.Tend()
	if list := roles(t, own.URL("")); len(list) != 0 {
		t.Errorf("of %d with a lease and %d refused are left: %q", len(leases), refused, list)
	}
}

// A password that the server is given hashed is the password all the same.
func TestScram(t *testing.T) {
	d, url := newDesk(t)
	d.OK(secrets.Update, "config/pg", body{"password_authentication": "scram-sha-256"})
	got := d.OK(secrets.Read, "creds/app", nil)
	if err := works(t, url, got.Text("username"), got.Text("password")); err != nil {
		t.Error(err)
	}
	runSQL(t, url, `DROP OWNED BY "`+got.Text("username")+`"; DROP ROLE "`+got.Text("username")+`"`)
}

func TestRotateRoot(t *testing.T) {
	d, url := newDesk(t)
	before, err := (&call{Context: t.Context(), e: d.Engine.(*Engine), view: d.Store}).config("pg")
	if err != nil {
		t.Fatal(err)
	}
	d.OK(secrets.Update, "rotate-root/pg", nil)
	after, err := (&call{Context: t.Context(), e: d.Engine.(*Engine), view: d.Store}).config("pg")
	if err != nil || after.Password == before.Password || after.Pending != "" {
		t.Fatalf("%+v, %v", after, err)
	}
	d.OK(secrets.Read, "creds/app", nil)
	polltest.Until(t, func() bool { return works(t, url, before.User, before.Password) != nil },
		"the former password opens nothing")
	if err := works(t, url, after.User, after.Password); err != nil {
		t.Error(err)
	}
	// A crash after the password was set: both are tried.
	first, err := d.Engine.Handle(t.Context(), d.Store, &secrets.Request{Op: secrets.Update, Rest: "rotate-root/pg",
		Now: d.Now()})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Store.Commit(t.Context(), 0, first.Ops); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Then.(step)(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.OK(secrets.Read, "creds/app", nil)
	d.OK(secrets.Update, "rotate-root/pg", nil)
	d.OK(secrets.Update, "reset/pg", nil)
	d.OK(secrets.Read, "creds/app", nil)
	for _, name := range roles(t, url) {
		runSQL(t, url, `DROP OWNED BY "`+name+`"; DROP ROLE "`+name+`"`)
	}
}

func TestStatic(t *testing.T) {
	d, url := newDesk(t)
	d.Refused(errkind.Invalid, "has no role", secrets.Update, "static-roles/static1",
		body{"db_name": "pg", "username": "nobody_here", "rotation_period": "1h"})
	runSQL(t, url, `DROP ROLE IF EXISTS fixed; CREATE ROLE fixed LOGIN; GRANT SELECT ON things TO fixed`)
	t.Cleanup(func() { runSQL(t, url, `DROP OWNED BY fixed; DROP ROLE fixed`) })
	d.Refused(errkind.Invalid, "5 seconds", secrets.Update, "static-roles/static1",
		body{"db_name": "pg", "username": "fixed"})
	d.OK(secrets.Update, "static-roles/static1", body{"db_name": "pg", "username": "fixed", "rotation_period": "1h"})
	one := d.OK(secrets.Read, "static-creds/static1", nil)
	if one.Text("username") != "fixed" || len(one.Text("password")) != 20 || one["ttl"] != 3600.0 ||
		one["rotation_period"] != 3600.0 {
		t.Errorf("%v", one)
	}
	if err := works(t, url, "fixed", one.Text("password")); err != nil {
		t.Error(err)
	}
	d.Tend()
	d.Wait(time.Hour + time.Second)
	d.Tend()
	two := d.OK(secrets.Read, "static-creds/static1", nil)
	d.OK(secrets.Update, "rotate-role/static1", nil)
	three := d.OK(secrets.Read, "static-creds/static1", nil)
	if one.Text("password") == two.Text("password") || two.Text("password") == three.Text("password") {
		t.Error("the password stays")
	}
	if err := works(t, url, "fixed", three.Text("password")); err != nil {
		t.Error(err)
	}
	d.Refused(errkind.Invalid, "cannot update static account username", secrets.Update, "static-roles/static1",
		body{"username": "other"})
	// What was not set is looked at soon, also after the role was written meanwhile.
	d.OK(secrets.Update, "static-roles/static1", body{"rotation_statements": "SELECT 1/0"})
	d.Refused(errkind.Invalid, "division by zero", secrets.Update, "rotate-role/static1", nil)
	d.OK(secrets.Update, "static-roles/static1", body{"rotation_statements": "", "rotation_period": "720h"})
	d.Wait(walWait + time.Second)
	d.Tend()
	if four := d.OK(secrets.Read, "static-creds/static1", nil); four.Text("password") == three.Text("password") {
		t.Error("the pending password is not set")
	} else if err := works(t, url, "fixed", four.Text("password")); err != nil {
		t.Error(err)
	}
	d.OK(secrets.Delete, "static-roles/static1", nil)
	d.Refused(errkind.NotFound, "", secrets.Read, "static-roles/static1", nil)
	if left, err := d.Store.Scan(t.Context(), rotatePrefix, storage.After(rotatePrefix), 0); err != nil || len(left) != 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

func TestNames(t *testing.T) {
	now := time.Unix(1700000000, 0)
	if name := newUser(`a"; DROP--x`, "röle/1", now, nameBytes); len(name) > 63 || strings.ContainsAny(name, "\"'; /") ||
		!strings.HasPrefix(name, "v-a---DROP-r-le-1-") || !strings.HasSuffix(name, "-1700000000") {
		t.Errorf("%q", name)
	}
	for range 100 {
		if p := newPassword(); len(p) != 20 || strings.ContainsAny(p, "\"'\\; ") {
			t.Errorf("%q", p)
		}
	}
	stored, err := (&config{Auth: "scram-sha-256"}).stored("x")
	if err != nil || !strings.HasPrefix(stored, "SCRAM-SHA-256$4096:") {
		t.Errorf("%q, %v", stored, err)
	}
}

func FuzzStatements(f *testing.F) {
	f.Add(creation, "u", "p")
	f.Add("{{name}}{{{{name}}}}", `a"b`, "'")
	f.Fuzz(func(t *testing.T, statement, user, password string) {
		out, err := values{user: user, password: password, until: time.Unix(0, 0)}.expand(statement)
		if unsafe := strings.ContainsAny(user+password, "\"'\\;\x00\r\n"); unsafe != (err != nil) {
			t.Errorf("%q %q: %v", user, password, err)
		}
		if err == nil && !strings.Contains(statement, "{{") && out != statement {
			t.Errorf("%q became %q", statement, out)
		}
	})
}
