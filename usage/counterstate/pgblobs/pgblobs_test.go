//go:build unix

package pgblobs

import (
	"context"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/loud"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/postgres"
	"corbel.dev/corbel/usage/counterstate"
	"corbel.dev/corbel/usage/counterstate/blobstest"
)

// TestBlobs is the kit against a real PostgreSQL.
func TestBlobs(t *testing.T) {
	if _, err := postgres.Bin(); err != nil {
		loud.Skip(t, "%v", err)
	}
	dsn := start(t)
	open := func(t *testing.T) counterstate.Blobs {
		t.Helper()
		var b *Blobs
		polltest.NoError(t, time.Minute, func() (err error) {
			b, err = Open(t.Context(), Config{DSN: dsn})
			return err
		}, "PostgreSQL")
		t.Cleanup(b.Close)
		return b
	}
	blobstest.Run(t, open, open)
	t.Run("windows", func(t *testing.T) { windows(t, dsn) })
}

// TestWrong: no error shows a password, and a server that is not there is an error in time.
func TestWrong(t *testing.T) {
	for dsn, kind := range map[string]errkind.Kind{"postgres://u:s3cret@%zz": errkind.Invalid,
		"postgres://u:s3cret@127.0.0.1:1/x?connect_timeout=2": errkind.Unavailable} {
		if _, err := Open(context.Background(), Config{DSN: dsn}); !errkind.Is(err, kind) ||
			strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%v", err)
		}
	}
}

// start starts a PostgreSQL of its own, and returns where it is.
func start(t *testing.T) (dsn string) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "corbel-pg-") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	cmd, err := postgres.Make(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	p, err := spawn.Run(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.End(syscall.SIGINT, time.Minute) })
	return postgres.URL(dir)
}
