package uiapi

import (
	"bytes"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"corbel.dev/corbel/kit/clock"
)

// shelf keeps records in memory, as a disk does over a restart.
type shelf struct {
	records map[string][]byte
	puts    int
}

func (k *shelf) Load() map[string][]byte { return maps.Clone(k.records) }
func (k *shelf) Put(key string, record []byte) {
	k.puts++
	k.records[key] = bytes.Clone(record)
}
func (k *shelf) Drop(key string) { delete(k.records, key) }

func with(cookies ...*http.Cookie) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "https://x/ui/api/me", nil)
	for _, c := range cookies {
		r.AddCookie(c)
	}
	return r
}

// TestSessionsOutliveTheServer: a session goes on at the next start, for the browser that has its cookie, until its
// time or its person ends it; and what is kept says nothing to whoever reads the disk.
func TestSessionsOutliveTheServer(t *testing.T) {
	c, disk := clock.NewFake(time.Unix(1e9, 0)), &shelf{records: map[string][]byte{}}
	ann := Person{Name: "ann", Catalog: "catalog-token", Secrets: "hvs.secrets-token", Monitor: "session", Made: true,
		Remote: "10.0.0.1:99"}
	s := NewSessions(c, disk)
	mine, other := s.Begin(with(), ann), s.Begin(with(), Person{Name: "bob"})
	for name, record := range disk.records {
		for _, secret := range []string{"catalog-token", "hvs.", "ann", "session", mine.Value, other.Value} {
			if bytes.Contains(record, []byte(secret)) {
				t.Errorf("the record %s shows %q", name, secret)
			}
		}
		if _, err := open(name, record); err == nil {
			t.Error("a record opens with its own name")
		}
	}
	c.Advance(time.Hour)
	s = NewSessions(c, disk)
	if p, end, ok := s.Of(with(mine)); !ok || p != ann || end == nil {
		t.Fatalf("after a restart: %+v, %v", p, ok)
	}
	if _, _, ok := s.Of(with(&http.Cookie{Name: Cookie, Value: "made up"})); ok {
		t.Error("a cookie that somebody made up")
	}
	s.End(with(other)) // by the cookie alone, unopened
	s = NewSessions(c, disk)
	if _, _, ok := s.Of(with(other)); ok || len(disk.records) != 1 {
		t.Errorf("a session that ended goes on; %d records", len(disk.records))
	}
	// Its times are those of before: what was used an hour ago ends in seven, and all of it in 23.
	c.Advance(idleTime - time.Minute)
	if _, _, ok := NewSessions(c, disk).Of(with(mine)); !ok {
		t.Error("it ended before its time")
	}
	for range 20 {
		s = NewSessions(c, disk)
		s.Of(with(mine))
		c.Advance(time.Hour)
	}
	if _, _, ok := NewSessions(c, disk).Of(with(mine)); ok || len(disk.records) != 0 {
		t.Errorf("restarts make a session live longer; %d records", len(disk.records))
	}
}

// TestRecordsThatAreWrong: what was changed on the disk opens nothing, and is removed.
func TestRecordsThatAreWrong(t *testing.T) {
	c := clock.NewFake(time.Unix(1e9, 0))
	good := &shelf{records: map[string][]byte{}}
	mine := NewSessions(c, good).Begin(with(), Person{Name: "ann", Catalog: "token"})
	theirs := NewSessions(c, &shelf{records: map[string][]byte{}}).Begin(with(), Person{Name: "root"})
	name := nameOf(hash(mine.Value))
	later := bytes.Clone(good.records[name])
	later[16]++ // it was used later than it was
	for what, records := range map[string]map[string][]byte{
		"changed times":     {name: later},
		"cut":               {name: good.records[name][:20]},
		"empty":             {name: nil},
		"another version":   {name: append([]byte{9}, good.records[name][1:]...)},
		"another's":         {name: seal(theirs.Value, &Person{Name: "root"}, c.Now(), c.Now())},
		"begun in a future": {name: seal(mine.Value, &Person{Name: "root"}, c.Now().Add(time.Hour), c.Now())},
		"no name":           {"x": good.records[name]},
	} {
		disk := &shelf{records: records}
		if p, _, ok := NewSessions(c, disk).Of(with(mine)); ok || len(disk.records) > 0 {
			t.Errorf("%s: %+v, %v; %d records are left", what, p, ok, len(disk.records))
		}
	}
}

// TestRecordsAreWrittenSeldom: a request writes nothing but once in a while.
func TestRecordsAreWrittenSeldom(t *testing.T) {
	c, disk := clock.NewFake(time.Unix(1e9, 0)), &shelf{records: map[string][]byte{}}
	s := NewSessions(c, disk)
	mine := s.Begin(with(), Person{Name: "ann"})
	for range 120 {
		c.Advance(time.Minute)
		s.Of(with(mine))
	}
	if disk.puts != 1+12 {
		t.Errorf("two hours of requests wrote %d records", disk.puts)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add("id", seal("id", &Person{Name: "a"}, time.Unix(1, 0), time.Unix(2, 0)))
	f.Fuzz(func(t *testing.T, id string, record []byte) {
		_, began, _, ok := readRecord(nameOf(hash(id)), record)
		p, err := open(id, record)
		if err != nil {
			return
		}
		again := seal(id, p, began, began)
		if !ok || again == nil {
			t.Errorf("%v, %+v", ok, p)
		}
	})
}
