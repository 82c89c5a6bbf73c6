package token

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/storage/memstore"
)

func shelf(t *testing.T) (*Book, func([]secrets.Op)) {
	store := memstore.New()
	return &Book{Reader: store, Salt: NewSalt()}, func(ops []secrets.Op) {
		t.Helper()
		if err := store.Commit(t.Context(), 0, ops); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRecords(t *testing.T) {
	ctx := context.Background()
	book, commit := shelf(t)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var ids []string
	make := func(parent string) *Token {
		tok := &Token{Policies: []string{"default"}, Origin: Origin{Parent: parent, Path: "auth/x/login"}}
		tok.Begin(now, time.Hour, Limits{Default: time.Hour, Max: time.Hour})
		ids = append(ids, NewID())
		commit(book.Make(ids[len(ids)-1], tok))
		return tok
	}
	parent := make("")
	child, other := make(parent.Hash), make(parent.Hash)
	if got, err := book.Find(ctx, book.Hash(ids[0])); err != nil || !reflect.DeepEqual(got, parent) {
		t.Fatalf("Find: %+v, %v; want %+v", got, err, parent)
	}
	if got, err := book.ByAccessor(ctx, child.Accessor); err != nil || got == nil || got.Hash != child.Hash {
		t.Fatalf("ByAccessor: %+v, %v", got, err)
	}
	for _, accessor := range []string{"", "../x", strings.Repeat("/", 24), strings.Repeat("é", 12)} {
		if got, err := book.ByAccessor(ctx, accessor); err != nil || got != nil {
			t.Errorf("ByAccessor of %q: %+v, %v", accessor, got, err)
		}
	}
	if hash, ok := OfLease(child.LeaseID()); !ok || hash != child.Hash {
		t.Errorf("OfLease of %q: %q, %t", child.LeaseID(), hash, ok)
	}
	commit(EndChild(parent.Hash, other.Hash, other.Path))
	ops, err := book.EndAlone(ctx, parent)
	if err != nil {
		t.Fatal(err)
	}
	commit(ops)
	orphan, err := book.Find(ctx, child.Hash)
	if err != nil || orphan == nil || orphan.Parent != "" {
		t.Fatalf("a child of a token that ended alone: %+v, %v", orphan, err)
	}
	records, _ := book.Reader.Scan(ctx, "", "", 0)
	want := []string{"sys/expire/at/ of the one that ended below another", "sys/expire/at/", "sys/lease/id/",
		"sys/token/id/"}
	if len(records) != len(want) {
		t.Errorf("%d records are left of one token, want %v: %v", len(records), want, records)
	}
	for _, r := range records {
		for _, id := range ids {
			if strings.Contains(r.Key, id) || bytes.Contains(r.Value, []byte(id)) {
				t.Errorf("%s holds an id", r.Key)
			}
		}
	}
}

// A token comes back as it was stored, whatever its fields: one that the codec does not know fails here.
func TestCodec(t *testing.T) {
	full := &Token{Meta: map[string]string{"a": "b", "c": ""}}
	v := reflect.ValueOf(full).Elem()
	for i, field := range reflect.VisibleFields(v.Type()) {
		if field.Anonymous {
			continue
		}
		switch f := v.FieldByIndex(field.Index).Addr().Interface().(type) {
		case *string:
			*f = field.Name
		case *[]string:
			*f = []string{"one", "two"}
		case *[]byte:
			*f = []byte("bytes")
		case *time.Time:
			*f = time.Unix(int64(i), 17).UTC()
		case *time.Duration:
			*f = time.Duration(i) * time.Hour
		case *bool:
			*f = true
		case *int:
			*f = -1
		case *map[string]string:
		default:
			t.Fatalf("field %s: say here what a value of its type is", field.Name)
		}
	}
	full.Batch = false // which is stored nowhere
	got, err := decode(full.encode())
	if err != nil {
		t.Fatal(err)
	}
	got.Hash, got.Accessor = full.Hash, full.Accessor // the record's name
	if !reflect.DeepEqual(got, full) {
		t.Errorf("came back as\n%+v, was\n%+v", got, full)
	}
	if got, err := decode((&Token{}).encode()); err != nil || !reflect.DeepEqual(got, &Token{}) {
		t.Errorf("an empty one: %+v, %v", got, err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add((&Token{}).encode())
	f.Add((&Token{Origin: Origin{Path: "auth/x"}, Policies: []string{"a", "b"}, Meta: map[string]string{"k": "v"},
		Times: Times{Created: time.Unix(1, 2)}, Uses: 3, CIDRs: []string{"10.0.0.0/8"}}).encode())
	f.Add([]byte{recordVersion, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, raw []byte) {
		tok, err := decode(raw)
		if err != nil {
			return
		}
		again, err := decode(tok.encode())
		if err != nil || !reflect.DeepEqual(again, tok) {
			t.Errorf("%+v became %+v, %v", tok, again, err)
		}
	})
}

// No text but what was sealed is a batch token.
func FuzzReadBatch(f *testing.F) {
	plain, err := (&Token{Origin: Origin{Path: "auth/x"}, Policies: []string{"a"}, Times: Times{Created: time.Unix(1,
		2).UTC()},
		Lifetime: secrets.Lifetime{TTL: time.Hour}}).Text("", func(plain []byte) ([]byte, error) { return plain, nil })
	if err != nil {
		f.Fatal(err)
	}
	f.Add(plain)
	f.Add("hvb.")
	f.Add("hvs.x")
	f.Fuzz(func(t *testing.T, id string) {
		tok, err := ReadBatch(id, func(record []byte) ([]byte, error) { return record, nil })
		if err != nil || (tok != nil && !IsBatch(id)) {
			t.Errorf("%q: %+v, %v", id, tok, err)
		}
	})
}

func TestHash(t *testing.T) {
	a, b := &Book{Salt: NewSalt()}, &Book{Salt: NewSalt()}
	seen := map[string]string{}
	for i := range 2000 {
		id := strings.Repeat("x", i%300) + fmt.Sprint(i)
		h := a.Hash(id)
		if !isHash(h) || h != a.Hash(id) || h == b.Hash(id) || seen[h] != "" {
			t.Fatalf("Hash(%q) = %q", id, h)
		}
		seen[h] = id
	}
	long := strings.Repeat("y", 64)
	if n := testing.AllocsPerRun(100, func() { a.Hash(long) }); n > 1 && !raced { // the race detector empties pools
		t.Errorf("Hash makes %v allocations", n)
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
		{"the mount's maximum", Token{}, 5 * h, Limits{Default: h, Max: 2 * h}, 2 * h, true},
		{"the role's maximum", Token{Lifetime: secrets.Lifetime{MaxTTL: h}}, 5 * h, system, h, true},
		{"explicit maximum", Token{Lifetime: secrets.Lifetime{ExplicitMax: h}}, 0, system, h, true},
		{"a period passes the maximum", Token{Lifetime: secrets.Lifetime{Period: 1000 * h}}, h, system, 1000 * h, false},
		{"but not the explicit one", Token{Lifetime: secrets.Lifetime{Period: 1000 * h, ExplicitMax: h}}, 0, system, h, true},
		{"root", Token{Policies: []string{"root"}}, 0, system, 0, false},
		{"root with a TTL", Token{Policies: []string{"root"}}, h, system, h, false},
	} {
		tok := test.tok
		capped := tok.Begin(now, test.asked, test.limits)
		if tok.TTL != test.want || capped != test.capped || tok.Left(now) != test.want ||
			(test.want > 0 && !tok.Expired(now.Add(test.want))) || tok.Expired(now.Add(test.want-1)) {
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
		{"again", Token{Lifetime: secrets.Lifetime{Renewable: true}}, h, h / 2, 0, h + h/2, ""},
		{"by an increment", Token{Lifetime: secrets.Lifetime{Renewable: true}}, h, h / 2, 5 * h, 5*h + h/2, ""},
		{"to the maximum", Token{Lifetime: secrets.Lifetime{Renewable: true}}, h, h / 2, 9999 * h, 768 * h, ""},
		{"shorter when asked", Token{Lifetime: secrets.Lifetime{Renewable: true}}, 5 * h, h, h, 2 * h, ""},
		{"explicit maximum", Token{Lifetime: secrets.Lifetime{Renewable: true, ExplicitMax: 2 * h}}, 2 * h, h, 5 * h, 2 * h,
			""},
		{"by the period", Token{Lifetime: secrets.Lifetime{Renewable: true, Period: 900 * h}}, 0, 800 * h, h, 1700 * h, ""},
		{"not renewable", Token{}, h, h / 2, 0, 0, "lease is not renewable"},
		{"too late", Token{Lifetime: secrets.Lifetime{Renewable: true}}, h, h, 0, 0, "lease expired"},
		{"root", Token{Lifetime: secrets.Lifetime{Renewable: true}, Policies: []string{"root"}}, 0, h, 0, 0,
			"lease is not renewable"},
	} {
		tok := test.tok
		tok.Begin(now, test.asked, system)
		_, err := tok.Renew(now.Add(test.after), test.increment, system)
		if (test.err != "") != (err != nil) ||
			(err != nil && (err.Error() != test.err || !errkind.Is(err, errkind.Invalid))) ||
			(err == nil && tok.Expires.Sub(now) != test.want) {
			t.Errorf("%s: ends after %v, %v; want %v, %q", test.name, tok.Expires.Sub(now), err, test.want, test.err)
		}
	}
}
