package snapshots

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
	"corbel.dev/corbel/client/snapstore"
	"corbel.dev/corbel/kit/archive"
	"corbel.dev/corbel/kit/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// shelf is a target in memory that refuses the first puts.
type shelf struct {
	mu     sync.Mutex
	refuse int
	names  []string
	after  func(puts int) // called after each put that was taken
}

func (s *shelf) String() string { return "the shelf" }

func (s *shelf) Put(_ context.Context, name string, in io.ReadSeeker, size int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse > 0 {
		s.refuse--
		return errors.New("no room")
	}
	if _, err := in.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if _, err := archive.Read(in, io.Discard, size*100); err != nil {
		return err
	}
	s.names = append(s.names, name)
	if s.after != nil {
		s.after(len(s.names))
	}
	return nil
}

func (s *shelf) List(context.Context) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.names), nil
}

func (s *shelf) Delete(_ context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names = slices.DeleteFunc(s.names, func(n string) bool { return n == name })
	return nil
}

// newKeeper is a keeper before an agent that answers with text.
func newKeeper(t *testing.T, text []byte, targets ...snapstore.Target) (*keeper, *bytes.Buffer) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/snapshot" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(text) // a client that went away is the test's affair
	}))
	t.Cleanup(server.Close)
	cl, err := client.New(client.Config{Address: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	out := &bytes.Buffer{}
	o := &agentOptions{interval: time.Millisecond, retain: 2, lockKey: "l", maxFailures: 2, namePrefix: "consul",
		scratch: t.TempDir()}
	hold := func(ctx context.Context, _ *client.Client, key, _ string, say io.Writer,
		do func(context.Context) error) error {
		fmt.Fprintf(say, "took %s\n", key)
		return do(ctx)
	}
	return &keeper{o: o, d: &command.Dial{}, cl: cl, targets: targets, log: log.New(out, "", 0), hold: hold}, out
}

func snapshot(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := archive.Write(&out, &archive.Meta{Version: 1, ID: "1", Index: 7, Size: 5}, strings.NewReader("state"),
		time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestKeeps: snapshots come again and again, and only the newest stay.
func TestKeeps(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	puts := 0
	s := &shelf{}
	s.after = func(int) {
		if puts++; puts == 5 {
			cancel()
		}
	}
	k, out := newKeeper(t, snapshot(t), s)
	k.run(ctx)
	if puts != 5 || len(s.names) != 2 {
		t.Errorf("%d puts left %q, want 5 that leave 2\n%s", puts, s.names, out)
	}
	for _, want := range []string{"lock: took l", "Obtained leadership", "index 7", "Deleted old snapshot consul-",
		"ends"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, out)
		}
	}
}

// TestGivesLeadershipUp: failures in a row end the lead, which is won again later.
func TestGivesLeadershipUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := &shelf{refuse: 2, after: func(int) { cancel() }}
	k, out := newKeeper(t, snapshot(t), s)
	k.run(ctx)
	if got := strings.Count(out.String(), "Obtained leadership"); got != 2 || len(s.names) != 1 {
		t.Errorf("leadership was obtained %d times, want 2; kept %q\n%s", got, s.names, out)
	}
	if !strings.Contains(out.String(), "failure 2 in a row") || !strings.Contains(out.String(), "no room") {
		t.Errorf("the log does not tell the failures:\n%s", out)
	}
}

// TestDamageIsNotKept: what does not verify reaches no target.
func TestDamageIsNotKept(t *testing.T) {
	whole := snapshot(t)
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 1
	for name, text := range map[string][]byte{"empty": nil, "short": whole[:len(whole)-9], "flipped": flipped,
		"text": []byte("<html>")} {
		s := &shelf{}
		k, _ := newKeeper(t, text, s)
		if err := k.once(t.Context()); err == nil || len(s.names) != 0 {
			t.Errorf("%s: error %v, kept %q", name, err, s.names)
		}
	}
}

// TestOneTargetFails: the others get theirs, and the failure is told.
func TestOneTargetFails(t *testing.T) {
	bad, good := &shelf{refuse: 1}, &shelf{}
	k, _ := newKeeper(t, snapshot(t), bad, good)
	if err := k.once(t.Context()); err == nil || !strings.Contains(err.Error(), "the shelf: no room") {
		t.Errorf("the failure is told as %v", err)
	}
	if len(good.names) != 1 {
		t.Errorf("the other target has %q", good.names)
	}
}
