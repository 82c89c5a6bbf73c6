// Package forward passes whole HTTP requests to the process that can answer them: to the leader, to any server, or to a
// server of another datacenter. So every endpoint has one implementation, and an encoded answer travels untouched.
//
// A request that certainly reached no server is tried again; a write whose outcome is unknown never is.
package forward

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/core/hedge"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/node/spool"
	"corbel.dev/corbel/telemetry"
)

// MethodHTTP is the RPC that carries one whole HTTP request to a server.
const MethodHTTP = "http"

// MaxHops bounds how often one request is passed on: from a client agent to a server, from
// there to another datacenter, to its leader, and once more when the leader just changed.
const MaxHops = 4

// maxForwardBytes bounds a forwarded body; the API's own limits are far below.
const maxForwardBytes = 32 << 20

// forwardedHeaders are the request headers that mean something to the API.
var forwardedHeaders = []string{"X-Consul-Token", "Authorization", "Accept-Encoding", "Accept",
	"Content-Type", "Cache-Control", "Traceparent"}

// Terms ends calls to a former leader.
type Terms interface {
	// Of returns a context that ends when the leader at addr leads no more.
	Of(addr string) context.Context
	// Vacant is since when no leader is known.
	Vacant() time.Time
}

// Config describes a Forwarder.
type Config struct {
	Client *rpc.Client
	// Leader returns the leader's RPC address, "" when none is known.
	Leader func() string
	// Terms is nil on a client agent.
	Terms Terms
	// Others are all living servers.
	Others *hedge.Servers
	// Changes is closed at the next change of who leads or who is there; nil: nobody tells.
	Changes func() <-chan struct{}
	// Ending reports that this process ends: it knows of no further leader, and waits for none; nil: it never does.
	Ending func() bool
	// Hold is how long a request may wait for a leader (performance.rpc_hold_timeout), counted from
	// when there was none any more: a cluster that has long lost its quorum refuses at once.
	Hold time.Duration
	Limits
}

// Limits bound calls.
type Limits struct {
	Call  time.Duration // of a request that does not block
	Block time.Duration // of one that does
}

// Forwarder passes requests on within this datacenter. It implements rows.Forwarder.
type Forwarder struct{ cfg Config }

// New returns a forwarder.
func New(cfg Config) *Forwarder { return &Forwarder{cfg} }

// Forward implements rows.Forwarder. A request that certainly reached no
// server is tried again, elsewhere if there is a choice, until hold is over; one
// whose outcome is unknown is tried again only when it reads.
func (f *Forwarder) Forward(w http.ResponseWriter, r *http.Request, toLeader bool) error {
	j := rows.JourneyOf(r.Context())
	if j.Hops >= MaxHops {
		return errkind.New(errkind.Unavailable, "No cluster leader")
	}
	req, err := Encode(r, rows.Journey{Hops: j.Hops + 1, Crossed: j.Crossed})
	if err != nil {
		return err
	}
	timeout := f.cfg.Call
	if blocks(r) {
		timeout = f.cfg.Block
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	reply, err := f.send(ctx, req, order{toLeader, r.Method == http.MethodGet || r.Method == http.MethodHead, blocks(r)})
	if err != nil {
		return err
	}
	return writeHeldReply(w, r, reply)
}

// order says how a request may travel: to the leader alone or to any server, whether it may be asked twice, and
// whether it expects to wait.
type order struct{ toLeader, reads, waits bool }

func (f *Forwarder) send(ctx context.Context, req []byte, o order) ([]byte, error) {
	last := ""
	giveUp := time.Now().Add(f.cfg.Hold)
	wait := backoff.Backoff{Min: 20 * time.Millisecond, Max: 500 * time.Millisecond}
	for {
		var changed <-chan struct{}
		if f.cfg.Changes != nil {
			changed = f.cfg.Changes() // before the look at who leads
		}
		addr, err := f.target(o.toLeader, last)
		if err == nil {
			var reply []byte
			begin := time.Now()
			if reply, err = f.call(ctx, addr, o, req); err == nil {
				return reply, nil
			}
			last = addr
			giveUp = giveUp.Add(time.Since(begin)) // hold is for waiting, not for a query that was parked
		} else if o.toLeader && f.cfg.Terms != nil {
			giveUp = earlier(giveUp, f.cfg.Terms.Vacant().Add(f.cfg.Hold))
		}
		again := errkind.Is(err, errkind.Unavailable) || errkind.Is(err, errkind.NotLeader) ||
			o.reads && errkind.Is(err, errkind.Unknown)
		again = again && !errors.Is(err, limit.ErrBytes) // who has no room is not sent the same body again: its client waits
		if !o.reads && errkind.Is(err, errkind.Unknown) {
			return nil, uncertain(addr, err)
		}
		ends := f.cfg.Ending != nil && f.cfg.Ending() && addr == ""
		if !again || ends || ctx.Err() != nil || time.Now().After(giveUp) {
			return nil, err
		}
		t := time.NewTimer(min(wait.Next(), time.Until(giveUp)+time.Millisecond))
		select {
		case <-t.C:
		case <-changed:
			t.Stop()
		case <-ctx.Done():
			t.Stop()
			return nil, err
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

var errLeadershipEnded = errkind.New(errkind.Unknown, "the leader changed before it answered: outcome unknown")

// uncertain tells the client of a write what it can do. A write is not sent again on its behalf: the first may be
// carried out late, by a server that was frozen, and would then undo what others wrote after the second.
func uncertain(addr string, err error) error {
	if errors.Is(err, errLeadershipEnded) {
		return err
	}
	return errkind.Errorf(errkind.Unknown, "outcome unknown: no answer from the server at %s (%v). The write may have "+
		"been carried out: read before you send it again", addr, err)
}

// answerTime is how long the answer to a write may come after the end of the term in which it was sent: a leader that
// lost its place with a write on its way learns from the next one what became of it (core/group outcome.go). That
// takes a few elections, and the news of the next leader may overtake its answers. One that is frozen or cut off is
// given up long before, when it gives no sign of life (core/rpc pulse.go).
const answerTime = 6 * time.Second

// call sends the request; one to the leader ends with its term.
func (f *Forwarder) call(ctx context.Context, addr string, o order, req []byte) ([]byte, error) {
	call := f.cfg.Client.Call
	if o.waits {
		call = f.cfg.Client.Wait
	} else if o.reads && !o.toLeader {
		call = f.cfg.Others.Read
	}
	if f.cfg.Terms == nil || !o.toLeader {
		return call(ctx, addr, MethodHTTP, req)
	}
	leads := f.cfg.Terms.Of(addr)
	callCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(leads, func() {
		if !o.reads {
			select {
			case <-time.After(answerTime):
			case <-callCtx.Done():
			}
		}
		cancel()
	})
	defer stop()
	reply, err := call(callCtx, addr, MethodHTTP, req)
	if err != nil && leads.Err() != nil && ctx.Err() == nil && !notDone(err) {
		return nil, errLeadershipEnded
	}
	return reply, err
}

// notDone reports whether an error says that the request was certainly not carried out.
func notDone(err error) bool {
	return errkind.Is(err, errkind.NotLeader) || errkind.Is(err, errkind.Unavailable)
}

// target is whom to send to, rather not the one who just failed.
func (f *Forwarder) target(toLeader bool, last string) (string, error) {
	if toLeader {
		if addr := f.cfg.Leader(); addr != "" {
			return addr, nil
		}
		return "", errkind.New(errkind.Unavailable, "No cluster leader")
	}
	return f.cfg.Others.Pick(last)
}

// Encode makes a request ready for its way: MethodHTTP takes it.
func Encode(r *http.Request, j rows.Journey) ([]byte, error) {
	var body []byte
	if r.Body != nil {
		var err error
		var large *httpx.TooLarge
		switch body, err = httpx.ReadBody(r, nil, maxForwardBytes); {
		case errors.As(err, &large):
			return nil, errkind.Errorf(errkind.TooLarge, "Request body(%d bytes) too large, max size: %d bytes",
				max(r.ContentLength, maxForwardBytes+1), maxForwardBytes)
		case errors.Is(err, limit.ErrBytes):
			return nil, err
		case err != nil:
			return nil, errkind.E(errkind.Invalid, "read the request body", err)
		}
	}
	b, mark := pack.Begin(make([]byte, 0, 512+len(body)))
	b = pack.Uint(b, uint64(j.Hops))
	b = pack.String(b, r.Method)
	b = pack.String(b, r.URL.RequestURI())
	b = pack.String(b, r.RemoteAddr)
	b = pack.Bytes(b, body)
	for _, name := range forwardedHeaders {
		value := r.Header.Get(name)
		if name == "Traceparent" {
			value = telemetry.PassedOn(r.Context(), value)
		}
		b = pack.String(b, value)
	}
	return pack.End(pack.Bool(b, j.Crossed), mark), nil
}

func decodeRequest(ctx context.Context, p []byte) (*http.Request, error) {
	rd := pack.Read(p).Record()
	hops := int(min(rd.Uint(), MaxHops))
	method, uri, remote, body := rd.String(), rd.String(), rd.String(), rd.Bytes()
	headers := make([]string, len(forwardedHeaders))
	for i := range headers {
		headers[i] = rd.String()
	}
	j := rows.Journey{Hops: hops, Crossed: rd.Bool()}
	if rd.Err() != nil {
		return nil, errkind.E(errkind.Invalid, "forwarded request", rd.Err())
	}
	r, err := http.NewRequestWithContext(rows.Forwarded(ctx, j), method, "/",
		bytes.NewReader(body))
	if err != nil {
		return nil, errkind.E(errkind.Invalid, "forwarded request", err)
	}
	if r.URL, err = url.ParseRequestURI(uri); err != nil {
		return nil, errkind.E(errkind.Invalid, "forwarded request", err)
	}
	r.RequestURI, r.RemoteAddr = uri, remote
	for i, name := range forwardedHeaders {
		if headers[i] != "" {
			r.Header.Set(name, headers[i])
		}
	}
	return r, nil
}

// decodePassedOn is decodeRequest for a request that another process passes on.
func decodePassedOn(ctx context.Context, p []byte) (*http.Request, error) {
	r, err := decodeRequest(ctx, p)
	if err == nil {
		r.RemoteAddr = CameFrom(r.RemoteAddr, rpc.Caller(ctx), rpc.Peer(ctx))
	}
	return r, err
}

// CameFrom is where a request comes from that somebody at an address passes on. A server of this datacenter has seen
// its client, or believed another server. One of another datacenter is believed too, but for clients of its own host,
// which are not of this one. An agent proves nothing of its clients: what it passes on comes from the agent.
func CameFrom(said string, by *wire.Peer, addr string) string {
	switch {
	case by.May(wire.Servers):
		return said
	case by.May(wire.AllServers):
		client, err := netip.ParseAddrPort(said)
		if err == nil && !client.Addr().Unmap().IsLoopback() && !client.Addr().IsUnspecified() {
			return said
		}
	}
	return addr
}

// blocks tells whether a request may wait for something to change.
func blocks(r *http.Request) bool {
	query := r.URL.Query()
	return query.Has("index") || query.Has("since")
}

var errParting = errkind.New(errkind.Unavailable, "this server stops: ask another one")

// Answers are what answers requests that are passed on to this process.
type Answers struct {
	API http.Handler
	// Streamed answers requests whose answer is a stream.
	Streamed http.Handler
	Uploads  *spool.Bodies
	// Parting ends when queries that wait are to be answered; Ending says that the process ends.
	Parting context.Context
	Ending  *atomic.Bool
}

// Register has srv answer requests of those roles.
func (a Answers) Register(srv *rpc.Server, roles wire.Roles) {
	srv.Handle(roles, MethodHTTP, serve(a.API, a.Parting, a.Ending))
	srv.HandleStream(roles, MethodStream, serveStreamed(a.Streamed, a.Uploads))
	srv.Handle(roles, MethodOffer, serveOffer(a.API, a.Uploads))
	srv.Handle(roles, MethodUpload, a.Uploads.Piece)
}

// errNobodyLeads is for who passed a request on that went round among servers which each took another for the leader.
var errNobodyLeads = errkind.New(errkind.NotLeader, "No cluster leader")

// serve answers a forwarded request with the process's own API. Once parting ends, queries that wait are
// answered as if their time was over; reads that a process that ends could not answer, and writes that found no leader
// there, are for another server. A request
// that went round while the leader changed goes back to who passed it on, to wait for the next leader.
func serve(api http.Handler, parting context.Context, ending *atomic.Bool) rpc.Handler {
	return func(ctx context.Context, p []byte) ([]byte, error) {
		r, err := decodePassedOn(ctx, p)
		if err != nil {
			return nil, err
		}
		w := httpx.NewRecorder()
		reads := r.Method == http.MethodGet
		if reads && blocks(r) {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			defer context.AfterFunc(parting, cancel)()
			r = r.WithContext(ctx)
		}
		api.ServeHTTP(w, r)
		switch failed := w.Status >= http.StatusInternalServerError; {
		case failed && ending.Load() && (reads || string(w.Body) == errkind.Text(errNobodyLeads)):
			return nil, errParting
		case failed && rows.JourneyOf(r.Context()).Hops >= MaxHops && string(w.Body) == errkind.Text(errNobodyLeads):
			return nil, errNobodyLeads
		}
		return EncodeReply(w), nil
	}
}

// EncodeReply makes an answer ready for the way back.
func EncodeReply(w *httpx.Recorder) []byte {
	w.WriteHeader(http.StatusOK)
	b, mark := pack.Begin(make([]byte, 0, 256+len(w.Body)))
	b = appendHeader(pack.Uint(b, uint64(w.Status)), w.Head)
	return pack.End(pack.Bytes(b, w.Body), mark)
}

func appendHeader(b []byte, h http.Header) []byte {
	count := 0
	for _, values := range h {
		count += len(values)
	}
	b = pack.Uint(b, uint64(count))
	for name, values := range h {
		for _, v := range values {
			b = pack.String(pack.String(b, name), v)
		}
	}
	return b
}

// DecodeReply reads what EncodeReply made.
func DecodeReply(p []byte) (status int, header http.Header, body []byte, err error) {
	rd := pack.Read(p).Record()
	status, header, err = readHeader(rd)
	body = rd.Bytes()
	if err = errors.Join(err, rd.Err()); err != nil {
		return 0, nil, nil, errkind.E(errkind.Internal, "forwarded answer", err)
	}
	return status, header, body, nil
}

func writeReply(w http.ResponseWriter, p []byte) error {
	status, header, body, err := DecodeReply(p)
	if err != nil {
		return err
	}
	maps.Copy(w.Header(), header)
	w.WriteHeader(status)
	httpx.WriteBounded(w, body)
	return nil
}

// writeHeldReply is writeReply to a client: what it does not take at once has its place in the budget until it does.
func writeHeldReply(w http.ResponseWriter, r *http.Request, reply []byte) error {
	hold, err := httpx.HoldAnswer(r, len(reply))
	if err != nil {
		return err
	}
	defer hold.End()
	return writeReply(w, reply)
}

// readHeader reads what a forwarded answer begins with.
func readHeader(rd *pack.Reader) (status int, header http.Header, err error) {
	status, header = int(rd.Uint()), http.Header{}
	for range rd.Count() {
		name := rd.String()
		header[name] = append(header[name], rd.String())
	}
	if rd.Err() != nil || status < 100 || status > 999 {
		return 0, nil, errkind.E(errkind.Internal, "forwarded answer", errors.Join(rd.Err(), errors.New("damaged")))
	}
	return status, header, nil
}
