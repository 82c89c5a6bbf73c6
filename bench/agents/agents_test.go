package agents

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

func config() Config {
	return Config{Targets: []string{"127.0.0.1:8081"}, Count: 10, Checks: 3, Subscriptions: 2, Interval: 10, Keepalive: 20,
		User: "agent", Password: "secret", SampleHandler: "sink"}
}

// TestAnEventHasWhatWasPutIn reads an event back field by field.
func TestAnEventHasWhatWasPutIn(t *testing.T) {
	cfg := config()
	for _, ns := range namespaces {
		form := checkTemplate(&cfg, ns, 2)
		frame := form.put([]byte("before"), Name(7), 1_700_000_001, 1_700_000_001_000_000_009, 1_700_000_000,
			300)[len("before"):]
		if n := int(binary.BigEndian.Uint16(frame[2:])); frame[0] != 0x82 || frame[1] != 0xfe || n != len(frame)-8 {
			t.Fatalf("frame % x of %d bytes", frame[:8], len(frame))
		}
		body, ok := bytes.CutPrefix(frame[8:], []byte("event\n"))
		if !ok {
			t.Fatalf("frame begins with %q", frame[8:20])
		}
		check, sent, err := field(body, 3, 1)
		if err != nil || sent != 1_700_000_001 {
			t.Fatalf("timestamp %d, %v", sent, err)
		}
		if _, seq, err := field(body, 3, 7); err != nil || seq != 300 {
			t.Fatalf("sequence %d, %v", seq, err)
		}
		meta, issued, err := field(check, 38, 25)
		if err != nil || issued != 1_700_000_000 {
			t.Fatalf("issued %d, %v", issued, err)
		}
		if name, _, _ := field(meta, 1, 0); string(name) != CheckName(2) {
			t.Fatalf("check %q", name)
		}
		if space, _, _ := field(meta, 2, 0); string(space) != ns {
			t.Fatalf("namespace %q", space)
		}
		if handler, _, _ := field(check, 3, 0); (string(handler) == "sink") != (ns == SampleNamespace) {
			t.Fatalf("handler %q in %s", handler, ns)
		}
		if output, _, _ := field(check, 26, 0); !strings.Contains(string(output), "sent=01700000001000000009\n") {
			t.Fatalf("output %q", output)
		}
		entity, _, _ := field(body, 2, 0)
		if meta, _, _ = field(entity, 14, 0); !bytes.Contains(meta, []byte("bench-000007")) ||
			bytes.Contains(body, []byte(nameMark)) {
			t.Fatalf("entity's metadata %q", meta)
		}
		if len(frame) < 600 || len(frame) > 2000 {
			t.Fatalf("%d bytes are no usual event", len(frame))
		}
	}
}

func serverFrame(payload string) []byte {
	b := []byte{0x82, byte(len(payload))}
	if len(payload) > 125 {
		b = binary.BigEndian.AppendUint16([]byte{0x82, 126}, uint16(len(payload)))
	}
	return append(b, payload...)
}

func checkRequest(name string, issued uint64) string {
	var b pb
	b.message(1, func(c *pb) { c.text(1, CheckCommand); c.meta(26, name, "default") })
	b.number(4, issued)
	return "check_request\n" + string(b)
}

// TestASession plays a server's side byte by byte: however what it sends is cut, the agent answers the same.
func TestASession(t *testing.T) {
	f, err := New(config())
	if err != nil {
		t.Fatal(err)
	}
	said := []byte("HTTP/1.1 101 Switching Protocols\r\nAccept: application/octet-stream\r\n\r\n")
	said = append(said, serverFrame(checkRequest(CheckName(1), 5))...) // too early: dropped, as agents do
	said = append(said, serverFrame("entity_config\n")...)
	said = append(said, serverFrame(checkRequest(CheckName(1), 5))...)
	said = append(said, 0x89, 2, 'h', 'i')
	said = append(said, serverFrame(checkRequest("somebody-elses", 5))...)
	said = append(said, serverFrame(checkRequest(CheckName(1), 15))...)
	s := &session{id: 3, name: Name(3), seqs: make([]uint32, 3)}
	var l looks
	for held := []byte(nil); len(said) > 0; said = said[1:] {
		held = append(held, said[0])
		used, err := f.read(s, held, &l)
		if err != nil {
			t.Fatal(err)
		}
		held = held[used:]
	}
	if c := f.Counts(); c.Sessions != 1 || c.Requests != 4 || c.Events != 2 || s.seqs[1] != 2 || c.Held != 0 {
		t.Fatalf("%+v, numbers %v", c, s.seqs)
	}
	if !bytes.Contains(s.out, []byte{0x8a, 0x82, 0, 0, 0, 0, 'h', 'i'}) {
		t.Error("no pong")
	}
	f.quiet.Store(true)
	if _, err := f.read(s, serverFrame(checkRequest(CheckName(1), 25)), &l); err != nil || f.Counts().Events != 2 {
		t.Errorf("a quiet agent answered: %v", err)
	}
	for _, bad := range []string{"\x88\x00", "\x82\x80abcd", "\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff",
		string(serverFrame("check_request\n\xff\xff"))} {
		if _, err := f.read(s, []byte(bad), &l); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// FuzzMessages has a server send anything: nothing is read beyond what came.
func FuzzMessages(f *testing.F) {
	f.Add(serverFrame(checkRequest(CheckName(0), 7)))
	f.Add([]byte{0x89, 1, 'x', 0x88, 0})
	f.Add([]byte(protowire.AppendTag(nil, 1, protowire.BytesType)))
	f.Fuzz(func(t *testing.T, b []byte) {
		fleet, err := New(config())
		if err != nil {
			t.Fatal(err)
		}
		s := &session{id: 3, name: Name(3), state: stateReady, seqs: make([]uint32, 3)}
		if used, _ := fleet.read(s, b, &looks{}); used < 0 || used > len(b) {
			t.Fatalf("%d of %d bytes", used, len(b))
		}
	})
}

func TestHeldBack(t *testing.T) {
	f, err := New(config())
	if err != nil {
		t.Fatal(err)
	}
	s := &session{name: Name(0), seqs: make([]uint32, 3)}
	for range 1000 {
		f.answer(s, 0, 1, time.Now())
	}
	if c := f.Counts(); c.Held == 0 || c.Held+c.Events != 1000 || len(s.out) > 2*holdBytes {
		t.Fatalf("%+v, %d bytes wait", c, len(s.out))
	}
}

func TestTurns(t *testing.T) {
	var q turns
	a, b := &session{opens: 1}, &session{opens: 1}
	now := time.Unix(100, 0)
	q.add(a, now)
	q.add(b, now)
	q.add(a, now.Add(time.Second))
	a.opens++ // it was closed and opened: its turns are void
	q.add(a, now.Add(2*time.Second))
	if q.due(now) != b || q.due(now) != nil {
		t.Fatal("b's turn is the only one")
	}
	if q.due(now.Add(time.Second)) != nil || q.due(now.Add(2*time.Second)) != a || q.due(now.Add(time.Hour)) != nil {
		t.Fatal("a has a turn after two seconds")
	}
}

func TestBadConfig(t *testing.T) {
	for _, change := range []func(*Config){
		func(c *Config) { c.Targets = nil }, func(c *Config) { c.Targets = []string{"localhost:8081"} },
		func(c *Config) { c.Count = 0 },
		func(c *Config) { c.First = 999_999 }, func(c *Config) { c.Subscriptions = 0 },
	} {
		cfg := config()
		change(&cfg)
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
}
