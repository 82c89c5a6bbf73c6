package respapi

import (
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
)

// rights are what a test's judge says of passwords; what is not there is let in.
type rights struct {
	mu    sync.Mutex
	says  map[string]error
	asked map[string]int
}

func (r *rights) say(password string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.says[password] = err
}

func (r *rights) still(_, password string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked[password]++
	return r.says[password]
}

// look has the server judge all clients once.
func (r *rig) look() {
	r.t.Helper()
	const timers = 2 // of the sweep, and of this
	ready := func() bool { return r.hand.Timers() == timers }
	polltest.Until(r.t, ready, "the server to wait")
	r.hand.Advance(judgeEvery)
	polltest.Until(r.t, ready, "the server to have judged")
}

var errTaken = errkind.New(errkind.Denied, "taken")

func TestRightsAreTaken(t *testing.T) {
	judge := &rights{says: map[string]error{}, asked: map[string]int{}}
	r := start(t, Config{Authenticate: func(_, p string) bool { return p != "" }, Still: judge.still})
	login := func(password string) *peer {
		p := r.dial()
		r.play(p, "AUTH "+password+" => +OK")
		return p
	}
	stays := map[string]*peer{}
	for _, password := range []string{"kept", "doubted", "unknown", "again", "again"} {
		stays[password] = login(password)
	}
	quiet, busy := login("taken"), login("taken")
	ended := make(chan error, 1)
	go func() { // sends without pause, and reads
		go func() {
			for {
				if _, err := io.WriteString(busy, strings.Repeat(encode("INCR", "n"), 100)); err != nil {
					return
				}
			}
		}()
		_, err := io.Copy(io.Discard, busy.in)
		ended <- err
	}()
	stranger := r.dial()

	judge.say("taken", errTaken)
	judge.say("doubted", errTaken)
	judge.say("unknown", errkind.New(errkind.Unavailable, "no server answers"))
	judge.say("again", errTaken)
	r.look()
	r.play(quiet, "PING => +PONG") // one refusal may be a mistake
	judge.say("doubted", nil)
	r.play(stays["again"], "AUTH other => +OK")
	r.look()
	if _, err := quiet.in.ReadByte(); err == nil {
		t.Error("the quiet client was sent something, not cut")
	}
	<-ended
	polltest.Until(t, func() bool { return len(r.all()) == len(stays)+1 }, "those whose right is taken to be gone")
	judge.say("doubted", errTaken)
	for range 3 {
		r.look()
		judge.say("doubted", nil)
	}
	for _, password := range slices.Sorted(maps.Keys(stays)) {
		r.play(stays[password], "PING => +PONG")
	}
	r.play(stranger, "PING => -NOAUTH Authentication required.")
	judge.mu.Lock()
	defer judge.mu.Unlock()
	if n := judge.asked[""]; n != 0 {
		t.Errorf("a stranger was judged %d times", n)
	}
	if judge.asked["taken"] != 2 || judge.asked["kept"] != 5 {
		t.Errorf("not judged once for all clients with the same password: %v", judge.asked)
	}
}

// TestCutIsAStranger: what a client has sent before it is cut is not done.
func TestCutIsAStranger(t *testing.T) {
	r := start(t, Config{Authenticate: func(_, p string) bool { return p == "" }})
	r.play(r.dial(), "PING => +PONG") // it needs no password, which is judged all the same
	c := r.all()[0]
	c.cut(credentials{"default", "old"}) // by which it is not in
	if !c.known() {
		t.Fatal("cut by what it did not show")
	}
	c.cut(credentials{})
	if _, problem := c.find([][]byte{[]byte("PING")}); !strings.HasPrefix(problem, "NOAUTH") {
		t.Errorf("a client that is cut gets %q", problem)
	}
	polltest.Within(t, time.Minute, func() bool { return len(r.all()) == 0 }, "the client to be gone")
}
