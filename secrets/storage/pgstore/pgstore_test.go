//go:build unix

package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/loud"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/pgstore/pgtest"
	"corbel.dev/corbel/secrets/storage/storagetest"
)

func open(t testing.TB, url string, timeout time.Duration) *Store {
	t.Helper()
	var s *Store
	polltest.NoError(t, polltest.Deadline, func() (err error) { // a short timeout is too short for the first call
		s, err = Open(t.Context(), Config{URL: url, Timeout: timeout})
		return err
	}, "the store to be open")
	return s
}

func TestConformance(t *testing.T) {
	url := ""
	storagetest.Run(t, storagetest.Kit{Steps: 150,
		Open:   func(t *testing.T) storage.Backend { url = schema(t); return open(t, url, 0) },
		Reopen: func(t *testing.T) storage.Backend { return open(t, url, 0) },
		Second: func(t *testing.T) storage.Backend { return open(t, url, 0) },
	})
}

// connect opens a connection of the test's own, to get in the store's way.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func run(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

// TestFencedWhileUnderWay: a commit that waits inside the server while the fence is raised changes nothing.
func TestFencedWhileUnderWay(t *testing.T) {
	url := schema(t)
	old, other := open(t, url, 0), connect(t, url)
	defer old.Close()
	if err := old.Commit(t.Context(), 0, []storage.Op{storage.Put("k", []byte("first"))}); err != nil {
		t.Fatal(err)
	}
	run(t, other, "BEGIN")
	run(t, other, "UPDATE corbel_secrets_fence SET epoch = 5, turn = turn + 1")
	done := make(chan error, 1)
	go func() { done <- old.Commit(context.Background(), 0, []storage.Op{storage.Put("k", []byte("late"))}) }()
	watch := connect(t, url)
	polltest.Until(t, func() bool { return waiting(t, watch) == 1 }, "the commit to wait for the fence's row")
	run(t, other, "COMMIT")
	if err := polltest.Get(t, done, "the commit"); !errors.Is(err, storage.ErrFenced) {
		t.Errorf("the old writer's commit: %v", err)
	}
	if v, _, err := old.Get(t.Context(), "k"); err != nil || string(v) != "first" {
		t.Errorf("it wrote %q, %v", v, err)
	}
}

// waiting counts the statements on the fence's row that wait for a lock.
func waiting(t *testing.T, conn *pgx.Conn) (n int) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND `+
		`query LIKE '%corbel_secrets%'`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestLostCommit: a commit that the store gave up while the server still had it never lands on top of a later one.
func TestLostCommit(t *testing.T) {
	url := schema(t)
	other, watch := connect(t, url), connect(t, url)
	s := open(t, url, 0)
	defer s.Close()
	put := func(v string) error {
		return s.Commit(context.Background(), 0, []storage.Op{storage.Put("k", []byte(v))})
	}
	if err := put("first"); err != nil {
		t.Fatal(err)
	}
	run(t, other, "BEGIN")
	run(t, other, "LOCK TABLE corbel_secrets_fence IN ACCESS EXCLUSIVE MODE")
	patience := s.cfg.Timeout
	s.cfg.Timeout = 2 * time.Second // nothing is under way that could read it
	if err := put("lost"); !errkind.Is(err, errkind.Unknown) && !errkind.Is(err, errkind.Unavailable) {
		t.Fatalf("a commit that never came back: %v", err)
	}
	s.cfg.Timeout = patience
	run(t, other, "COMMIT")
	polltest.NoError(t, polltest.Deadline, func() error { return put("later") }, "the store to go on")
	polltest.Until(t, func() bool { return waiting(t, watch) == 0 }, "the server to be done with all")
	if v, _, err := s.Get(t.Context(), "k"); err != nil || string(v) != "later" {
		t.Errorf("the value is %q, %v", v, err)
	}
}

// TestServerCrash: PostgreSQL goes down hard under writers and comes back; what was acknowledged is there, and the
// store goes on by itself.
func TestServerCrash(t *testing.T) {
	if _, err := pgtest.Bin(); err != nil {
		loud.Skip(t, "%v", err)
	}
	own, err := pgtest.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { own.Remove() })
	s := open(t, schemaOf(t, own), 10*time.Second)
	defer s.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var mu sync.Mutex
	acked := map[string]bool{}
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				key := fmt.Sprintf("w%d/%d", w, n)
				err := s.Commit(context.Background(), 0, []storage.Op{storage.Put(key, []byte("v"))})
				if err == nil {
					mu.Lock()
					acked[key] = true
					mu.Unlock()
				} else if kind := errkind.Of(err); kind != errkind.Unknown && kind != errkind.Unavailable {
					t.Errorf("%s: %v", key, err)
				}
			}
		})
	}
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(acked) }
	for range 2 {
		before := count()
		polltest.Until(t, func() bool { return count() > before+20 }, "commits")
		own.Stop(syscall.SIGQUIT)
		if err := own.Start(); err != nil {
			t.Fatal(err)
		}
	}
	before := count()
	polltest.Until(t, func() bool { return count() > before+20 }, "commits after the last crash")
	stop()
	writers.Wait()
	list, err := s.Scan(t.Context(), "", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, r := range list {
		there[r.Key] = true
	}
	for key := range acked {
		if !there[key] {
			t.Errorf("%s was acknowledged and is gone", key)
		}
	}
}

func TestAtLeast(t *testing.T) {
	texts := []string{"", "a", "a\x01", "a/", "a0", "aä", "aå", "b", "ß", "ÿ", "Ā", "\ud7ff", "\ue000", "\U0010ffff",
		"\U0010ffffz"}
	slices.Sort(texts)
	bounds := append([]string{"a\x00", "a\x00zzz", "a\xff", "a\xc3", "a\xc3\xc0", "\xed\xa0", "\xf4\x90", "\xff",
		"\U0010ffff\xff", "\xc2\xc0", "\x80"}, texts...)
	for _, bound := range bounds {
		got, some := atLeast(bound)
		if some && (got < bound || !utf8.ValidString(got) || strings.ContainsRune(got, 0)) {
			t.Errorf("atLeast(%q) = %q", bound, got)
		}
		for _, text := range texts {
			if (text >= bound) != (some && text >= got) {
				t.Errorf("atLeast(%q) = %q, %t: what of %q?", bound, got, some, text)
			}
		}
	}
}

func BenchmarkBackend(b *testing.B) {
	storagetest.Bench(b, func(b *testing.B) storage.Backend { return open(b, schema(b), 0) })
}

// TestSilentServer: a server that hangs costs one call its whole time; the others are refused at once and change
// nothing, and all goes on when it answers again.
func TestSilentServer(t *testing.T) {
	if _, err := pgtest.Bin(); err != nil {
		loud.Skip(t, "%v", err)
	}
	own, err := pgtest.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.Remove)
	s := open(t, schemaOf(t, own), 500*time.Millisecond)
	defer s.Close()
	if err := own.Freeze(); err != nil {
		t.Fatal(err)
	}
	defer own.Thaw()
	polltest.Until(t, func() bool {
		_, _, err := s.Get(t.Context(), "k")
		return errors.Is(err, errSilent)
	}, "calls to be refused")
	if err := s.Commit(t.Context(), 0, []storage.Op{storage.Put("k", []byte("v"))}); !errors.Is(err, errSilent) {
		t.Errorf("a commit: %v", err)
	}
	if err := own.Thaw(); err != nil {
		t.Fatal(err)
	}
	polltest.NoError(t, polltest.Deadline, func() error {
		return s.Commit(t.Context(), 0, []storage.Op{storage.Put("later", []byte("v"))})
	}, "the store to go on")
	if _, found, err := s.Get(t.Context(), "k"); found || err != nil {
		t.Errorf("what was refused is there: %v, %v", found, err)
	}
}

// CVE-2023-0620: names of tables went into statements as they were.
func TestCVE_2023_0620_TablesAreQuoted(t *testing.T) {
	url := schema(t)
	run(t, connect(t, url), `CREATE TABLE victim (x int)`)
	const table = `odd"; DROP TABLE victim; --`
	s, err := Open(t.Context(), Config{URL: url, Table: table})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Commit(t.Context(), 0, []storage.Op{storage.Put("k", []byte("v"))}); err != nil {
		t.Fatal(err)
	}
	if v, _, err := s.Get(t.Context(), "k"); err != nil || string(v) != "v" {
		t.Errorf("%q, %v", v, err)
	}
	if _, err := s.Locker(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	run(t, connect(t, url), `INSERT INTO victim VALUES (1)`)
}
