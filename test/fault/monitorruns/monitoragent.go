package monitorruns

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/kit/ws"
	"corbel.dev/corbel/monitor"
	faultrun "corbel.dev/corbel/test/fault"
)

// beats are the keepalives of a run's agents.
type beats struct{ every, miss uint32 } // seconds

// scaled are as short as a busy machine allows; the contract's shortest are 5 s. usual are those of agents that are
// told nothing.
var (
	scaled = beats{1, 12}
	usual  = beats{20, 120}
)

// subject is an entity whose results one agent sends. Its runs are numbered: what a run executed at is its number.
type subject struct {
	name string
	sent []*sentRun // of this cycle
	next int64      // number of the next run
}

// sentRun is one result. taken is when a pong proved that a server had read it, zero when none did.
type sentRun struct {
	number int64
	status uint32
	to     *faultrun.Server
	taken  time.Time
	conn   int // which connection of the agent's
}

// sensor is an agent: a session with one of the servers over a real WebSocket, and another one as soon as that ends.
type sensor struct {
	name    string
	servers []*faultrun.Server
	beats   beats

	mu       sync.Mutex // guards below
	subjects []*subject
	left     int // results that each subject may still send
	rng      *rand.Rand
	pings    uint64
	proves   map[uint64][]*sentRun // what the pong of a ping proves
	at       *faultrun.Server      // nil without a session
	link     *ws.Conn              // the session's; nil without one
	conns    int
	asked    int       // check requests that came
	lost     time.Time // when the session ended
	back     []time.Duration
}

// send puts a message of a kind on the wire.
func sendEvent(c *ws.Conn, kind string, e *monitor.Event) error {
	return c.Write(append([]byte(kind+"\n"), tagproto.Append(nil, e)...))
}

func agentEntity(name, class string) *monitor.Entity {
	return &monitor.Entity{Meta: monitor.Meta{Name: name, Namespace: "default"}, Class: class,
		Subscriptions: []string{"entity:" + name}}
}

// dialAgent opens a session.
func dialAgent(ctx context.Context, s *faultrun.Server, name string, subscriptions string) (*ws.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	h := http.Header{"Sensu-Namespace": {"default"}, "Sensu-Agentname": {name}, "Sensu-Subscriptions": {subscriptions},
		"Accept": {"application/octet-stream"}}
	r := http.Request{Header: h}
	r.SetBasicAuth("agent", "P@ssw0rd!")
	c, _, err := ws.Dial(ctx, "ws://"+s.Agents+"/", h, nil, nil)
	return c, err
}

// beat sends a keepalive.
func beat(c *ws.Conn, name string, b beats) error {
	return sendEvent(c, "keepalive", &monitor.Event{Timestamp: time.Now().Unix(),
		Entity: agentEntity(name, monitor.ClassAgent), Meta: monitor.Meta{Namespace: "default"},
		Check: &monitor.Check{Meta: monitor.Meta{Name: monitor.KeepaliveCheck, Namespace: "default"}, Interval: b.every,
			Timeout: b.miss}})
}

// run keeps a session open until ctx ends.
func (a *sensor) run(ctx context.Context) {
	for n := int(a.rng.Uint32N(1000)); ctx.Err() == nil; n++ {
		s := a.servers[n%len(a.servers)]
		if c, err := dialAgent(ctx, s, a.name, ""); err == nil {
			a.session(ctx, s, c)
			_ = c.CloseWith(ws.CloseGoingAway, "")
		}
		_ = spawn.Sleep(ctx, 20*time.Millisecond)
	}
}

// session beats and sends what the load asks for until the connection ends.
func (a *sensor) session(ctx context.Context, s *faultrun.Server, c *ws.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	var reader sync.WaitGroup
	c.OnPong(a.pong)
	reader.Go(func() {
		defer cancel()
		for {
			message, err := c.Read(nil)
			if err != nil {
				return
			}
			if bytes.HasPrefix(message, []byte("check_request\n")) {
				a.mu.Lock()
				a.asked++
				a.mu.Unlock()
			}
		}
	})
	defer reader.Wait()
	defer c.Close()
	if beat(c, a.name, a.beats) != nil {
		return
	}
	a.begin(s, c)
	defer a.end()
	signs := time.NewTicker(time.Duration(a.beats.every) * time.Second)
	defer signs.Stop()
	var due <-chan time.Time
	if len(a.subjects) > 0 {
		results := time.NewTicker(12 * time.Millisecond)
		defer results.Stop()
		due = results.C
	}
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-signs.C:
			err = beat(c, a.name, a.beats)
		case <-due:
			err = a.sendResults(c)
		}
		if err != nil {
			return
		}
	}
}

func (a *sensor) begin(s *faultrun.Server, c *ws.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at, a.link, a.conns, a.proves = s, c, a.conns+1, map[uint64][]*sentRun{}
	if !a.lost.IsZero() {
		a.back = append(a.back, time.Since(a.lost))
	}
}

func (a *sensor) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at, a.link, a.lost = nil, nil, time.Now()
}

// sendResults sends a result of each subject, while the load lasts, and asks for the proof that they were read.
func (a *sensor) sendResults(c *ws.Conn) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.left > 0 {
		a.left--
		for _, s := range a.subjects {
			status := uint32(0)
			if a.rng.IntN(3) == 0 {
				status = a.rng.Uint32N(3)
			} else if n := len(s.sent); n > 0 {
				status = s.sent[n-1].status // statuses come in rows
			}
			s.next++
			s.sent = append(s.sent, &sentRun{number: s.next, status: status, to: a.at, conn: a.conns})
			if err := sendEvent(c, "event", a.result(s.name, s.next, status)); err != nil {
				return err
			}
		}
	}
	return a.prove(c)
}

// prove asks for the proof of what was sent.
func (a *sensor) prove(c *ws.Conn) error {
	var open []*sentRun
	for _, s := range a.subjects {
		for _, r := range s.sent {
			if r.taken.IsZero() && r.conn == a.conns {
				open = append(open, r)
			}
		}
	}
	if len(open) == 0 {
		return nil
	}
	a.pings++
	a.proves[a.pings] = open
	return c.Ping(binary.BigEndian.AppendUint64(nil, a.pings))
}

func (a *sensor) result(name string, number int64, status uint32) *monitor.Event {
	return &monitor.Event{Timestamp: number, Sequence: number, Entity: agentEntity(name, monitor.ClassAgent),
		Check: &monitor.Check{Meta: monitor.Meta{Name: "disk", Namespace: "default"}, Interval: 10, Status: status,
			Executed: number, Issued: number,
			Output: fmt.Sprintf("run %d", number)}}
}

// pong notes what a server has read.
func (a *sensor) pong(payload []byte) {
	if len(payload) != 8 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	n := binary.BigEndian.Uint64(payload)
	for _, r := range a.proves[n] {
		if r.taken.IsZero() {
			r.taken = time.Now()
		}
	}
	delete(a.proves, n)
}

// load lets each subject send n results from now on.
func (a *sensor) load(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.left = n
}

// quiet reports whether all is read that was sent with the present session.
func (a *sensor) quiet() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.at == nil {
		return errors.New(a.name + " has no session")
	}
	for _, s := range a.subjects {
		for _, r := range s.sent {
			if r.conn == a.conns && r.taken.IsZero() {
				return fmt.Errorf("%s: run %d of %s was not read yet", a.name, r.number, s.name)
			}
		}
	}
	return nil
}
