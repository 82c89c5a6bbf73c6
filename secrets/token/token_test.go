package token

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/storage/memstore"
)

func shelf(t *testing.T) (*Book, func([]secrets.Op, error)) {
	store := memstore.New()
	return &Book{Reader: store, Salt: NewSalt()}, func(ops []secrets.Op, err error) {
		t.Helper()
		if err == nil {
			err = store.Commit(t.Context(), 0, ops)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestTree(t *testing.T) {
	ctx := context.Background()
	book, commit := shelf(t)
	make := func(parent string) (string, *Token) {
		id, tok := NewID(), &Token{Accessor: NewAccessor(), Policies: []string{"default"}, Parent: parent}
		commit(book.Make(id, tok))
		return id, tok
	}
	rootID, root := make("")
	var ids []string
	for range 5 {
		id, mid := make(root.Hash)
		ids = append(ids, id)
		for range 3 {
			leaf, _ := make(mid.Hash)
			ids = append(ids, leaf)
		}
	}
	_, stranger := make("")
	if got, err := book.Find(ctx, book.Hash(rootID)); err != nil || got == nil || got.Accessor != root.Accessor {
		t.Fatalf("Find: %+v, %v", got, err)
	}
	if got, err := book.ByAccessor(ctx, root.Accessor); err != nil || got == nil || got.Hash != root.Hash {
		t.Fatalf("ByAccessor: %+v, %v", got, err)
	}
	first, err := book.Find(ctx, book.Hash(ids[0]))
	if err != nil {
		t.Fatal(err)
	}
	commit(book.EndAlone(ctx, first))
	orphan, err := book.Find(ctx, book.Hash(ids[1]))
	if err != nil || orphan == nil || orphan.Parent != "" {
		t.Fatalf("a child of a token that ended alone: %+v, %v", orphan, err)
	}
	ops, ended, err := book.End(ctx, root)
	commit(ops, err)
	if len(ended) != 1+4*4 || ended[len(ended)-1] != root.Hash {
		t.Errorf("%d tokens ended, the last %s", len(ended), ended[len(ended)-1])
	}
	list, _, err := book.Accessors(ctx, "", 0)
	if err != nil || len(list) != 4 { // three orphans and the stranger
		t.Errorf("accessors left: %v, %v", list, err)
	}
	records, _ := book.Reader.Scan(ctx, "", "", 0)
	if len(records) != 4*2 {
		t.Errorf("%d records are left of four tokens", len(records))
	}
	for _, r := range records {
		for _, id := range append(ids, rootID) {
			if strings.Contains(r.Key, id) || bytes.Contains(r.Value, []byte(id)) {
				t.Errorf("%s holds an id", r.Key)
			}
		}
	}
	if got, _ := book.Find(ctx, stranger.Hash); got == nil {
		t.Error("a stranger ended too")
	}
}

func TestNewID(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		id := NewID()
		if seen[id] || len(id) != 32 || !strings.HasPrefix(id, "hvs.") {
			t.Fatalf("drew %q", id)
		}
		seen[id] = true
	}
}

func TestLife(t *testing.T) {
	const h = time.Hour
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	system := Limits{Default: 768 * h, Max: 768 * h}
	for _, test := range []struct {
		name   string
		tok    Token
		asked  time.Duration
		limits Limits
		want   time.Duration // 0: never
		capped bool
	}{
		{"default", Token{}, 0, system, 768 * h, false},
		{"asked for", Token{}, h, system, h, false},
		{"the mount's maximum", Token{}, 5 * h, Limits{h, 2 * h}, 2 * h, true},
		{"the role's maximum", Token{MaxTTL: h}, 5 * h, system, h, true},
		{"explicit maximum", Token{ExplicitMax: h}, 0, system, h, true},
		{"a period passes the maximum", Token{Period: 1000 * h}, h, system, 1000 * h, false},
		{"but not the explicit one", Token{Period: 1000 * h, ExplicitMax: h}, 0, system, h, true},
		{"root", Token{Policies: []string{"root"}}, 0, system, 0, false},
		{"root with a TTL", Token{Policies: []string{"root"}}, h, system, h, false},
	} {
		tok := test.tok
		capped := tok.Begin(now, test.asked, test.limits)
		if tok.TTL != test.want || capped != test.capped || tok.Left(now) != test.want || (test.want > 0 && !tok.Expired(now.Add(test.want))) || tok.Expired(now.Add(test.want-1)) {
			t.Errorf("%s: lives %v, capped %t", test.name, tok.TTL, capped)
		}
	}
	for _, test := range []struct {
		name             string
		tok              Token
		asked            time.Duration
		after, increment time.Duration
		want             time.Duration // from the beginning
		err              string
	}{
		{"again", Token{Renewable: true}, h, h / 2, 0, h + h/2, ""},
		{"by an increment", Token{Renewable: true}, h, h / 2, 5 * h, 5*h + h/2, ""},
		{"to the maximum", Token{Renewable: true}, h, h / 2, 9999 * h, 768 * h, ""},
		{"shorter when asked", Token{Renewable: true}, 5 * h, h, h, 2 * h, ""},
		{"explicit maximum", Token{Renewable: true, ExplicitMax: 2 * h}, 2 * h, h, 5 * h, 2 * h, ""},
		{"by the period", Token{Renewable: true, Period: 900 * h}, 0, 800 * h, h, 1700 * h, ""},
		{"not renewable", Token{}, h, h / 2, 0, 0, "lease is not renewable"},
		{"too late", Token{Renewable: true}, h, h, 0, 0, "lease expired"},
		{"root", Token{Renewable: true, Policies: []string{"root"}}, 0, h, 0, 0, "lease is not renewable"},
	} {
		tok := test.tok
		tok.Begin(now, test.asked, system)
		_, err := tok.Renew(now.Add(test.after), test.increment, system)
		if (test.err != "") != (err != nil) || (err != nil && (err.Error() != test.err || !errkind.Is(err, errkind.Invalid))) || (err == nil && tok.Expires.Sub(now) != test.want) {
			t.Errorf("%s: ends after %v, %v; want %v, %q", test.name, tok.Expires.Sub(now), err, test.want, test.err)
		}
	}
}

func BenchmarkEnd(b *testing.B) {
	store := memstore.New()
	book := &Book{Reader: store, Salt: NewSalt()}
	parent := &Token{Accessor: NewAccessor()}
	ops, _ := book.Make(NewID(), parent)
	for range 10_000 {
		more, _ := book.Make(NewID(), &Token{Accessor: NewAccessor(), Parent: parent.Hash})
		ops = append(ops, more...)
	}
	if err := store.Commit(b.Context(), 0, ops); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, ended, err := book.End(b.Context(), parent); err != nil || len(ended) != 10_001 {
			b.Fatal(fmt.Sprint(len(ended)), err)
		}
	}
}
