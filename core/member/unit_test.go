package member

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"testing"
	"time"

	"corbel.dev/corbel/kit/clock"
	"pgregory.net/rapid"
)

func TestMetaRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.OneOf(rapid.SampledFrom(knownKeys[:]), rapid.StringN(0, 8, 16))
		values := rapid.OneOf(rapid.StringN(0, 8, 20),
			rapid.StringMatching(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`))
		tags := rapid.MapOfN(keys, values, 0, 10).Draw(t, "tags")
		epoch := rapid.Uint64().Draw(t, "epoch")
		b, err := encodeMeta(epoch, tags)
		if err != nil {
			t.Fatal(err)
		}
		gotEpoch, got, err := decodeMeta(b)
		if err != nil || gotEpoch != epoch || !maps.Equal(got, tags) {
			t.Fatalf("%d %v, %v; want %d %v", gotEpoch, got, err, epoch, tags)
		}
	})
}

// A server's tags must leave room for what later planes add.
func TestServerTagsAreSmall(t *testing.T) {
	b, err := encodeMeta(uint64(time.Now().UnixMilli()), map[string]string{
		"role": "consul", "dc": "dc1", "id": "3c95aeb5-4d5c-8c4d-3f1e-5d1f7a0b7a10", "port": "8300", "vsn": "2",
		"vsn_min": "2", "vsn_max": "3",
		"build": "1.21.4:abcdef01", "raft_vsn": "3", "expect": "3", "acls": "1", "grpc_port": "8502", "grpc_tls_port": "8503",
		"wan_join_port": "8302", "segment": "",
	})
	if err != nil || len(b) > 120 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

func FuzzMeta(f *testing.F) {
	b, _ := encodeMeta(7, map[string]string{"role": "consul", "own": "x", "id": "3c95aeb5-4d5c-8c4d-3f1e-5d1f7a0b7a10"})
	f.Add(b)
	f.Add([]byte{1})
	f.Add([]byte{1, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		epoch, tags, err := decodeMeta(b)
		if err != nil {
			return
		}
		again, err := encodeMeta(epoch, tags)
		if err != nil {
			return // codes and UUIDs written the long way may pass the limit
		}
		if e, got, err := decodeMeta(again); err != nil || e != epoch || !maps.Equal(got, tags) {
			t.Fatalf("%v became %v, %v", tags, got, err)
		}
	})
}

func FuzzMessages(f *testing.F) {
	f.Add(intent{"a", 1, true, false}.encode())
	f.Add(keyRequest{opUse, "k"}.encode())
	f.Add(keyReply{"no", []string{"k"}, "k"}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 {
			return
		}
		if i, err := decodeIntent(b[1:]); err == nil {
			if got, err := decodeIntent(i.encode()[1:]); err != nil || got != i {
				t.Fatalf("%v became %v, %v", i, got, err)
			}
		}
		if q, err := decodeKeyRequest(b); err == nil {
			if got, err := decodeKeyRequest(q.encode()); err != nil || got != q {
				t.Fatalf("%v became %v, %v", q, got, err)
			}
		}
		if a, err := decodeKeyReply(b); err == nil {
			if got, err := decodeKeyReply(a.encode()); err != nil || !reflect.DeepEqual(got, a) {
				t.Fatalf("%v became %v, %v", a, got, err)
			}
		}
	})
}

func FuzzHearsay(f *testing.F) {
	meta, _ := encodeMeta(1, nil)
	f.Add(encodeHearsay([]hearsay{{"a", "127.0.0.1", 1, meta, Left, true, time.Minute}, {name: "b", status: Failed}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := decodeHearsay(b)
		if err != nil {
			return
		}
		got, err := decodeHearsay(encodeHearsay(list))
		if err != nil || fmt.Sprint(got) != fmt.Sprint(list) {
			t.Fatalf("%v became %v, %v", list, got, err)
		}
	})
}

func FuzzFiles(f *testing.F) {
	f.Add([]byte(snapshotHead + "\n127.0.0.1:8301 a\n[::1]:1 b\n"))
	f.Add([]byte(`["AQEBAQEBAQEBAQEBAQEBAQ=="]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		parseSnapshot(b)
		if keys, err := parseKeyring(b); err == nil {
			for _, key := range keys {
				if len(key) != 16 && len(key) != 24 && len(key) != 32 {
					t.Fatalf("key of %d bytes", len(key))
				}
			}
		}
	})
}

// handClock is moved by the test.
type handClock struct {
	clock.Real
	now time.Time
}

func (c *handClock) Now() time.Time { return c.now }

func testMemberList(c *handClock) *memberList {
	cfg := Config{Name: "self", Clock: c, ReconnectTimeout: 72 * time.Hour, TombstoneTimeout: 24 * time.Hour}
	return newMemberList(cfg)
}

func arrive(r *memberList, name string, epoch uint64) {
	meta, _ := encodeMeta(epoch, nil)
	r.arrived(Member{Name: name}, meta, epoch)
}

func TestMemberListStories(t *testing.T) {
	type step struct {
		do   string
		want Status
	}
	meta := func(epoch uint64) []byte { b, _ := encodeMeta(epoch, nil); return b }
	for name, story := range map[string][]step{
		"fails":                         {{"alive 1", Alive}, {"gone", Failed}, {"wait 71h", Failed}, {"wait 2h", 0}},
		"leaves":                        {{"alive 1", Alive}, {"leave 1", Leaving}, {"gone", Left}, {"wait 25h", 0}},
		"leave heard late":              {{"alive 1", Alive}, {"gone", Failed}, {"leave 1", Left}},
		"leave heard before the member": {{"leave 1", 0}, {"alive 1", Leaving}, {"gone", Left}},
		"leave of the former process":   {{"alive 2", Alive}, {"leave 1", Alive}, {"gone", Failed}},
		"returns after leaving": {{"alive 1", Alive}, {"leave 1", Leaving}, {"gone", Left}, {"alive 2", Alive},
			{"leave 1", Alive}, {"gone", Failed}},
		"forced while failed":      {{"alive 1", Alive}, {"gone", Failed}, {"force 1", Left}},
		"forced while alive":       {{"alive 1", Alive}, {"force 1", Alive}, {"gone", Left}},
		"forced long before":       {{"alive 1", Alive}, {"force 1", Alive}, {"wait 1h", Alive}, {"gone", Failed}},
		"pruned":                   {{"alive 1", Alive}, {"gone", Failed}, {"prune 1", 0}, {"hear failed 1", 0}},
		"pruned and back":          {{"alive 1", Alive}, {"gone", Failed}, {"prune 1", 0}, {"alive 2", Alive}},
		"hearsay about a stranger": {{"hear failed 1", Failed}, {"hear left 1", Left}, {"alive 2", Alive}},
		"hearsay does not kill":    {{"alive 1", Alive}, {"hear failed 1", Alive}, {"hear left 1", Alive}},
		"hearsay of its own leave": {{"alive 1", Alive}, {"hear own 1", Leaving}, {"gone", Left}},
		"hearsay of an older life": {{"alive 2", Alive}, {"hear own 1", Alive}, {"gone", Failed},
			{"hear left 1", Failed}},
		"hearsay older than it is kept": {{"hear old 1", 0}},
		"the same process again":        {{"alive 1", Alive}, {"gone", Failed}, {"alive 1", Alive}},
		"nobody goes twice":             {{"alive 1", Alive}, {"leave 1", Leaving}, {"gone", Left}, {"gone", Left}},
		"a stranger goes":               {{"gone", 0}},
	} {
		t.Run(name, func(t *testing.T) {
			c := &handClock{now: time.Unix(1e9, 0)}
			r := testMemberList(c)
			for i, s := range story {
				var verb, rest string
				var epoch uint64
				fmt.Sscan(s.do, &verb, &rest)
				fmt.Sscan(rest, &epoch)
				switch verb {
				case "alive":
					arrive(r, "m", epoch)
				case "gone":
					r.gone("m")
				case "leave", "force", "prune":
					r.depart(intent{"m", epoch, verb != "leave", verb == "prune"})
				case "wait":
					d, err := time.ParseDuration(rest)
					if err != nil {
						t.Fatal(err)
					}
					c.now = c.now.Add(d)
					r.reap()
				case "hear":
					fmt.Sscan(s.do, &verb, &rest, &epoch)
					h := hearsay{name: "m", meta: meta(epoch), status: Left, own: rest == "own"}
					if rest == "failed" {
						h.status = Failed
					}
					if rest == "old" {
						h.age = 80 * time.Hour
					}
					r.hear(h)
				default:
					t.Fatal(s.do)
				}
				m, _ := r.get("m")
				if m.Status != s.want {
					t.Fatalf("step %d, %s: %s, want %s", i, s.do, m.Status, s.want)
				}
			}
		})
	}
}

// Whatever happens, the count of the living is that of the list, intents stay
// bounded, and news is not news twice.
func TestMemberListInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &handClock{now: time.Unix(1e9, 0)}
		r := testMemberList(c)
		names := rapid.SampledFrom([]string{"a", "b", "c"})
		epochs := rapid.Uint64Range(1, 3)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			name, epoch := names.Draw(t, "name"), epochs.Draw(t, "epoch")
			before := r.changes()
			sorted := fmt.Sprint(r.list())
			switch rapid.IntRange(0, 4).Draw(t, "do") {
			case 0:
				arrive(r, name, epoch)
			case 1:
				r.gone(name)
			case 2:
				i := intent{name, epoch, rapid.Bool().Draw(t, "force"), rapid.Bool().Draw(t, "prune")}
				r.depart(i)
				if r.depart(i) {
					t.Fatalf("%v is news twice", i)
				}
			case 3:
				meta, _ := encodeMeta(epoch, nil)
				r.hear(hearsay{name: name, meta: meta, status: Status(rapid.IntRange(2, 4).Draw(t, "status")),
					own: rapid.Bool().Draw(t, "own")})
			case 4:
				c.now = c.now.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "hours")) * time.Hour)
				r.reap()
			}
			alive := 0
			for _, m := range r.list() {
				if m.Status == Alive {
					alive++
				}
			}
			if alive != r.alive {
				t.Fatalf("%d alive, counted %d", alive, r.alive)
			}
			if fmt.Sprint(r.list()) != sorted {
				select {
				case <-before:
				default:
					t.Fatal("a change that nobody was told of")
				}
			}
		}
	})
}

func TestIntentsAreBounded(t *testing.T) {
	r := testMemberList(&handClock{now: time.Unix(1e9, 0)})
	for i := range maxIntents + 100 {
		r.depart(intent{name: fmt.Sprint(i), epoch: 1})
	}
	if len(r.intents) != maxIntents {
		t.Errorf("%d intents", len(r.intents))
	}
}

func TestSnapshotRoundTrip(t *testing.T) {
	b := encodeSnapshot([]Member{{Name: "a", Addr: "10.0.0.1", Port: 1, Status: Alive},
		{Name: "b", Addr: "::1", Port: 2, Status: Alive},
		{Name: "c", Addr: "10.0.0.2", Port: 3, Status: Failed}, {Name: "self", Addr: "10.0.0.3", Port: 3, Status: Alive}},
		"self")
	if got := fmt.Sprint(parseSnapshot(b)); got != "[10.0.0.1:1 [::1]:2]" {
		t.Error(got)
	}
	if got := parseSnapshot(bytes.TrimPrefix(b, []byte("corbel"))); got != nil {
		t.Errorf("foreign file: %v", got)
	}
}
