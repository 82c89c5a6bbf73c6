//go:build unix

package pgstore

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"corbel.dev/corbel/kit/errkind"
)

// TestLook: what Open would meet is told, and nothing is made.
func TestLook(t *testing.T) {
	url := schema(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	there := func() (yes bool) {
		if err := conn.QueryRow(t.Context(), "SELECT to_regclass('corbel_secrets') IS NOT NULL").Scan(&yes); err != nil {
			t.Fatal(err)
		}
		return yes
	}
	if said, err := Look(t.Context(), Config{URL: url}); err != nil || !strings.Contains(said, "fsync") || there() {
		t.Errorf("before the tables are made: %q, %v; they are there: %v", said, err, there())
	}
	s, err := Open(t.Context(), Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := Look(t.Context(), Config{URL: url}); err != nil || !there() {
		t.Errorf("of tables that are there: %v", err)
	}
	// A role that may log in and nothing else, and one that does not exist.
	_, name, _ := strings.Cut(url, "search_path=")
	if _, err := conn.Exec(t.Context(), "CREATE ROLE looker LOGIN; GRANT USAGE ON SCHEMA "+name+" TO looker"); err != nil {
		t.Fatal(err)
	}
	as := func(user, table string) error {
		_, err := Look(t.Context(), Config{URL: url + " user=" + user, Table: table})
		return err
	}
	for table, want := range map[string]string{"": "may not read and write",
		"another": "is missing and the user may not make it"} {
		if err := as("looker", table); !errkind.Is(err, errkind.Denied) || !strings.Contains(err.Error(), want) {
			t.Errorf("of a user without rights, table %q: %v", table, err)
		}
	}
	if err := as("nobody_there", ""); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("of a user who is not there: %v", err)
	}
	if _, err := Look(t.Context(), Config{URL: "postgres://127.0.0.1:1/x"}); !errkind.Is(err, errkind.Unavailable) {
		t.Errorf("of a server that is not there: %v", err)
	}
}
