//go:build unix

package pgevents

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"corbel.dev/corbel/kit/loud"
	"corbel.dev/corbel/secrets/storage/pgstore/pgtest"
)

var (
	shared     *pgtest.Server
	sharedErr  error
	sharedOnce sync.Once
	schemas    atomic.Int64
)

func TestMain(m *testing.M) {
	code := m.Run()
	if shared != nil {
		shared.Remove()
	}
	os.Exit(code)
}

// schema gives a DSN whose tables are in a fresh schema of the shared server.
func schema(t testing.TB) string {
	t.Helper()
	if _, err := pgtest.Bin(); err != nil {
		loud.Skip(t, "%v", err)
	}
	sharedOnce.Do(func() { shared, sharedErr = pgtest.New() })
	if sharedErr != nil {
		t.Fatal(sharedErr)
	}
	conn, err := pgx.Connect(t.Context(), shared.URL(""))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	name := fmt.Sprint("events", schemas.Add(1))
	if _, err := conn.Exec(t.Context(), "CREATE SCHEMA "+name); err != nil {
		t.Fatal(err)
	}
	return shared.URL(name)
}
