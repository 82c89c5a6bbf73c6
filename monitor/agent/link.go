package agent

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/kit/ws"
	"corbel.dev/corbel/monitor"
)

// The two forms of messages, by their names in headers.
const (
	formProtobuf = "application/octet-stream"
	formJSON     = "application/json"
)

// Kinds of messages.
const (
	kindKeepalive    = "keepalive"
	kindEvent        = "event"
	kindCheckRequest = "check_request"
	kindEntityConfig = "entity_config"
)

// link is an open connection to a backend.
type link struct {
	conn *ws.Conn
	json bool
	done chan struct{} // closed when the session ends
	// ready is set once checks are taken; the link becomes the agent's after the first keepalive, so that no event comes
	// before its entity.
	ready  atomic.Bool
	heard  atomic.Uint64 // what came from the backend, counted
	sent   chan struct{} // holds one when something was sent since watchSilence looked
	silent atomic.Bool   // the backend was given up because nothing came
	target string
	tls    *tls.Config

	mu     sync.Mutex // guards below
	asked  uint64     // pings that want to be confirmed
	proved uint64     // the newest of them that was
	wake   chan struct{}
}

// dial opens a link within a limit.
func (a *Agent) dial(ctx context.Context, target string, limit time.Duration) (*link, error) {
	t := &a.cfg.Timing
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r := &http.Request{Header: http.Header{
		"Sensu-Namespace": {a.cfg.Namespace}, "Sensu-Agentname": {a.cfg.Name},
		"Sensu-Subscriptions": {strings.Join(a.cfg.Subscriptions, ",")}, "Accept": {formProtobuf},
	}}
	if !a.cfg.ByCertificate {
		r.Header.Set("Sensu-User", a.cfg.User)
		r.SetBasicAuth(a.cfg.User, a.cfg.Password)
	}
	// The read deadline is set anew once a quarter of it has passed.
	limits := &ws.Limits{Idle: t.HeartbeatTimeout * 4 / 3, MessageBytes: 16 << 20}
	conn, answer, err := ws.Dial(ctx, target, r.Header, a.cfg.TLS, limits)
	if err != nil {
		return nil, err
	}
	l := &link{conn: conn, target: target, tls: a.cfg.TLS, done: make(chan struct{}), wake: make(chan struct{}),
		sent: make(chan struct{}, 1)}
	// Each form is to have a header line of its own; a backend that does not say so gets JSON.
	l.json = !slices.Contains(answer.Values("Accept"), formProtobuf)
	conn.OnPong(l.pong)
	return l, nil
}

// send sends a message whose body is protobuf of an Event, and waits until the socket took it.
func (l *link) send(kind string, body []byte) error {
	if l.json {
		e := new(monitor.Event)
		if err := tagproto.Unmarshal(body, e); err != nil {
			return errkind.E(errkind.Corrupt, "an event that was kept", err)
		}
		text, err := eventJSON(e)
		if err != nil {
			return errkind.E(errkind.Corrupt, "an event that was kept", err)
		}
		body = text
	}
	message := make([]byte, 0, len(kind)+1+len(body))
	message = append(append(append(message, kind...), '\n'), body...)
	l.spoke()
	if err := l.conn.Write(message); err != nil {
		return err
	}
	return l.conn.Flush()
}

// eventJSON writes an event with all of its entity's labels: the backend hides them from readers, and needs them
// itself.
func eventJSON(e *monitor.Event) ([]byte, error) {
	type plainEvent monitor.Event
	type plainEntity monitor.Entity
	return json.Marshal(struct {
		*plainEvent
		Entity *plainEntity `json:"entity,omitempty"`
	}{(*plainEvent)(e), (*plainEntity)(e.Entity)})
}

func (l *link) decode(body []byte, into any) error {
	if l.json {
		return json.Unmarshal(body, into)
	}
	return tagproto.Unmarshal(body, into)
}

var errLinkEnded = errors.New("the session ended")

// confirm waits until the backend has read all that was sent before: it answers pings in the order of what it reads.
func (l *link) confirm(ctx context.Context) error {
	l.mu.Lock()
	l.asked++
	want := l.asked
	l.mu.Unlock()
	l.spoke()
	if err := l.conn.Ping(binary.BigEndian.AppendUint64(nil, want)); err != nil {
		return err
	}
	for {
		l.mu.Lock()
		wake, proved := l.wake, l.proved
		l.mu.Unlock()
		if proved >= want {
			return nil
		}
		select {
		case <-wake:
		case <-l.done:
			return errLinkEnded
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *link) pong(payload []byte) {
	l.heard.Add(1)
	if len(payload) != 8 {
		return // a heartbeat's
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := binary.BigEndian.Uint64(payload); n > l.proved && n <= l.asked {
		l.proved = n
		close(l.wake)
		l.wake = make(chan struct{})
	}
}

// session connects and serves one session; it returns how long that lasted.
func (a *Agent) session(ctx context.Context, target string, limit time.Duration) (lasted time.Duration, err error) {
	a.cfg.Log.Info("connecting to a backend", "url", target)
	l, err := a.dial(ctx, target, limit)
	if err != nil {
		return 0, err
	}
	a.counts.sessions.Add(1)
	a.cfg.Log.Info("connected to a backend", "url", target, "json", l.json)
	a.runner.newSession()
	begin := time.Now()
	configured := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(l.done)
		err = a.read(l, configured)
	})
	reader.Go(l.watchSilence)
	why := a.beat(ctx, l, configured)
	a.setLink(nil)
	_ = l.conn.CloseWith(ws.CloseGoingAway, why) // the peer may be gone
	reader.Wait()
	var closed *ws.CloseError
	if why == whyMaxSession || errors.As(err, &closed) && closed.Clean() {
		err = nil
	}
	return time.Since(begin), err
}

// read takes the backend's messages until the connection ends. configured is closed once the entity's configuration
// came.
func (a *Agent) read(l *link, configured chan struct{}) error {
	known := false
	for {
		in, err := l.conn.Read(nil)
		if l.silent.Load() {
			return errSilent
		}
		if err != nil {
			return err
		}
		l.heard.Add(1)
		kind, body, ok := bytes.Cut(in, []byte{'\n'})
		if !ok {
			a.cfg.Log.Warn("dropped a message without a type")
			continue
		}
		switch string(kind) {
		case kindEntityConfig:
			c := new(monitor.EntityConfig)
			if err := l.decode(body, c); err != nil {
				a.cfg.Log.Error("cannot decode an entity's configuration", "error", err)
				continue
			}
			a.entity.configure(c)
			if !known {
				known = true
				close(configured)
			}
		case kindCheckRequest:
			r := new(monitor.CheckRequest)
			if err := l.decode(body, r); err != nil || r.Config == nil {
				a.cfg.Log.Error("cannot decode a check request", "error", err)
				continue
			}
			if l.ready.Load() {
				a.runner.take(r)
			}
		default:
			a.cfg.Log.Warn("dropped a message of an unknown type", "type", string(kind[:min(len(kind), 64)]))
		}
	}
}

// Why a session is ended by the agent.
const (
	whyStop       = "the agent is stopping"
	whyMaxSession = "the session lasted long enough"
)

// beat waits for the entity's configuration, makes the link the agent's, and sends keepalives and pings until the
// session is to end.
func (a *Agent) beat(ctx context.Context, l *link, configured <-chan struct{}) string {
	settle := time.NewTimer(a.cfg.Timing.Settle)
	defer settle.Stop()
	select {
	case <-configured:
	case <-settle.C:
		a.cfg.Log.Warn("the backend sent no entity configuration; continuing without it", "waited", a.cfg.Timing.Settle)
	case <-l.done:
		return ""
	case <-ctx.Done():
		return whyStop
	}
	l.ready.Store(true)
	err := a.sendKeepalive(l)
	if err == nil {
		a.setLink(l)
	}
	var most <-chan time.Time
	if m := a.cfg.Timing.MaxSession; m > 0 {
		timer := time.NewTimer(m/2 + rand.N(m/2+1))
		defer timer.Stop()
		most = timer.C
	}
	keepalive := time.NewTicker(time.Duration(a.cfg.Keepalive.Interval) * time.Second)
	defer keepalive.Stop()
	ping := time.NewTicker(a.cfg.Timing.HeartbeatInterval)
	defer ping.Stop()
	for err == nil {
		select {
		case <-keepalive.C:
			err = a.sendKeepalive(l)
		case <-ping.C:
			err = l.conn.Ping(nil)
		case <-most:
			return whyMaxSession
		case <-l.done:
			return ""
		case <-ctx.Done():
			return whyStop
		}
	}
	a.cfg.Log.Warn("cannot send a keepalive", "error", err)
	return ""
}

func (a *Agent) sendKeepalive(l *link) error {
	k := &a.cfg.Keepalive
	e := &monitor.Event{
		Timestamp: a.cfg.Now().Unix(), Entity: a.entity.get(), Sequence: a.runner.sequence(monitor.KeepaliveCheck),
		Pipelines: k.Pipelines, ID: newID(),
		Meta: monitor.Meta{Namespace: a.cfg.Namespace, Labels: k.Labels, Annotations: k.Annotations},
		Check: &monitor.Check{Meta: monitor.Meta{Name: monitor.KeepaliveCheck, Namespace: a.cfg.Namespace},
			Interval: k.Interval, Timeout: k.Warning, TTL: int64(k.Critical)},
	}
	return l.send(kindKeepalive, tagproto.Append(nil, e))
}
