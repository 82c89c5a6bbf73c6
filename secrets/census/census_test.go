package census

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables/tablestest"
	"corbel.dev/corbel/secrets/token"
)

// What is live is counted by the mount and role that made it and by whose it is, with how much it grew, and told again
// for a while.
func TestAttribution(t *testing.T) {
	d := tablestest.New(t)
	o := New(Rules{}, d.Gate, d.Store, d.Flying, d.Now, slog.New(slog.DiscardHandler), func() string { return "c" }, nil)
	d.Mount("db/", "database", nil)
	hash := ""
	for range 2 {
		one := &token.Token{Origin: token.Origin{Path: "auth/token/create"}, Policies: []string{"app"},
			Lifetime: secrets.Lifetime{TTL: time.Hour}, Role: "web", Entity: "e1"}
		one.Begin(d.Time, one.TTL, d.Gate.TTLs)
		if err := d.Store.Commit(t.Context(), d.Gate.Load().Book.Make(token.NewID(), one)); err != nil {
			t.Fatal(err)
		}
		hash = one.Hash
	}
	add := func(leases ...string) {
		t.Helper()
		var ops []storage.Op
		for _, id := range leases {
			ops = append(ops, storage.Mark(token.LeasePrefix+id), storage.Mark(token.LeasesOf+hash+"/"+id[len(id)-1:]))
		}
		if err := d.Store.Commit(t.Context(), ops); err != nil {
			t.Fatal(err)
		}
	}
	add("db/creds/app/1")
	want := func(what, text string) {
		t.Helper()
		r, err := d.Ask(t.Context(), o.Rows(), secrets.Read, "leases/attribution", "")
		if err != nil {
			t.Fatal(err)
		}
		if string(r.Data) != text {
			t.Errorf("%s: %s", what, r.Data)
		}
	}
	role := func(mount, kind, role string, tokens, leases, grew int) string {
		return fmt.Sprintf(`{"mount":%q,"type":%q,"role":%q,"tokens":%d,"leases":%d,"grew":%d}`, mount, kind, role, tokens,
			leases, grew)
	}
	want("live", `{"as_of":"2026-01-01T00:00:00Z","by_entity":[{"entity":"e1","name":"","namespace":"","tokens":2,"leases":1,"grew":0}],`+
		`"by_role":[`+role("auth/token/", "token", "web", 2, 0, 0)+`,`+role("db/", "database", "creds/app", 0, 1, 0)+
		`],"entities":1,"grown_since":"2026-01-01T00:00:00Z","leases":1,"roles":2,"tokens":2}`)
	add("db/creds/app/2", "db/creds/app/3")
	d.Time = d.Time.Add(time.Minute)
	want("grown", `{"as_of":"2026-01-01T00:01:00Z","by_entity":[{"entity":"e1","name":"","namespace":"","tokens":2,"leases":3,"grew":2}],`+
		`"by_role":[`+role("db/", "database", "creds/app", 0, 3, 2)+`,`+role("auth/token/", "token", "web", 2, 0, 0)+
		`],"entities":1,"grown_since":"2026-01-01T00:00:00Z","leases":3,"roles":2,"tokens":2}`)
	d.Time = d.Time.Add(2 * time.Hour)
	want("after their end", `{"as_of":"2026-01-01T02:01:00Z","by_entity":[],"by_role":[`+
		role("db/", "database", "creds/app", 0, 3, 2)+
		`],"entities":0,"grown_since":"2026-01-01T00:00:00Z","leases":3,"roles":1,"tokens":0}`)
	d.Time = d.Time.Add(time.Hour)
	want("later", `{"as_of":"2026-01-01T03:01:00Z","by_entity":[],"by_role":[`+
		role("db/", "database", "creds/app", 0, 3, 0)+
		`],"entities":0,"grown_since":"2026-01-01T02:01:00Z","leases":3,"roles":1,"tokens":0}`)
}

// Leases are counted with the tokens that they were made with, wherever pages of their index end.
func TestMadeWith(t *testing.T) {
	d := tablestest.New(t)
	book := d.Gate.Load().Book
	want, hashes := map[string]int{}, []string{}
	var ops []storage.Op
	for i := range 40 {
		hash := book.Name(fmt.Sprint("t", i), []string{"", "", "abc123"}[i%3])
		want[hash], hashes = i%7, append(hashes, hash)
		for n := range i % 7 {
			ops = append(ops, storage.Mark(token.LeasesOf+hash+"/"+book.Hash(fmt.Sprint(i, n))))
		}
	}
	if err := d.Store.Commit(t.Context(), ops); err != nil {
		t.Fatal(err)
	}
	slices.Sort(hashes)
	for atOnce := 1; atOnce < 12; atOnce++ {
		m := madeWith{records: d.Store, atOnce: atOnce}
		for i, hash := range hashes {
			if i%5 == 4 {
				continue // a token of nobody
			}
			if n, err := m.count(t.Context(), hash); err != nil || n != want[hash] {
				t.Errorf("%d at once: %s made %d leases, not %d: %v", atOnce, hash, n, want[hash], err)
			}
		}
	}
}

// Labels of one name are bounded, and so are the series that are told.
func TestCountsAreBounded(t *testing.T) {
	c := &census{By: map[string]map[string]int{}}
	for i := range usageNames + 10 {
		c.add("n", 1, "label", time.Duration(i).String())
	}
	c.add("n", 5, "label", time.Duration(7).String())
	if n := len(c.By["n"]); n != usageNames {
		t.Errorf("%d label sets are remembered", n)
	}
	if list := c.points("n", 3); len(list) != 3 || list[0].Value != 6 {
		t.Errorf("told: %+v", list)
	}
}
