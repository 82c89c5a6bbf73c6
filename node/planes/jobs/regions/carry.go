package regions

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/node/forward"
)

// carried are the headers of a request that mean something to the API.
var carried = []string{"X-Nomad-Token", "X-Consul-Token", "Authorization", "Content-Type", "Accept", "Accept-Encoding"}

// longest is how long a blocking query may take beyond any other request: the API holds it for less.
const longest = 10 * time.Minute

// Forward implements nomadrows.Regions. A request is sent once: what becomes of a write without an answer is not known.
func (g *Regions) Forward(w http.ResponseWriter, r *http.Request, to nomadrows.Elsewhere, lasting bool) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if !lasting {
		limit := g.cfg.Call
		if r.URL.Query().Has("index") {
			limit += longest
		}
		var end context.CancelFunc
		ctx, end = context.WithTimeout(ctx, limit)
		defer end()
	}
	path, err := g.reach(ctx, to.Region)
	if err != nil {
		return err
	}
	defer context.AfterFunc(path.Broken(), cancel)() // a network that was cut leaves connections open and silent
	stream, err := g.cfg.Paths.Client.Stream(ctx, path.Addr, MethodHTTP, encode(r, to))
	if err != nil {
		return noAnswer(to.Region, err)
	}
	defer stream.Close()
	if flusher, ok := w.(http.Flusher); ok && lasting {
		w = begun{w, flusher}
	}
	err = forward.CopyStream(w, stream)
	if errors.Is(err, answer.ErrCut) {
		panic(http.ErrAbortHandler) // nobody takes a part for the whole
	}
	return noAnswer(to.Region, err)
}

// begun tells the client of a stream that it began, before there is anything in it.
type begun struct {
	http.ResponseWriter
	http.Flusher
}

// WriteHeader implements http.ResponseWriter.
func (w begun) WriteHeader(status int) {
	w.ResponseWriter.WriteHeader(status)
	w.Flush()
}

// noAnswer says that a region took a request and did not answer it.
func noAnswer(region string, err error) error {
	if err == nil {
		return nil
	}
	return errkind.Errorf(errkind.Unavailable, "region %q gave no answer, and whether it did what was asked is not "+
		"known: %s", region, errkind.Text(err))
}

func encode(r *http.Request, to nomadrows.Elsewhere) []byte {
	b, mark := pack.Begin(make([]byte, 0, 512+len(to.Body)))
	b = pack.String(b, to.Region)
	b = pack.String(b, r.Method)
	b = pack.String(b, r.URL.RequestURI())
	b = pack.String(b, r.RemoteAddr)
	b = pack.Bytes(b, to.Body)
	b = pack.Uint(b, uint64(len(carried)))
	for _, name := range carried {
		b = pack.String(pack.String(b, name), r.Header.Get(name))
	}
	return pack.End(b, mark)
}

// decode is the request that another region's server passes on, and the region that it takes this one for.
func decode(ctx context.Context, p []byte) (*http.Request, string, error) {
	in := pack.Read(p).Record()
	region, method, uri, remote, body := in.String(), in.String(), in.String(), in.String(), in.Bytes()
	header := http.Header{nomadrows.Crossed: {"1"}}
	for range in.Count() {
		if name, value := in.String(), in.String(); value != "" {
			header.Set(name, value)
		}
	}
	if in.Err() != nil {
		return nil, "", errkind.E(errkind.Invalid, MethodHTTP, in.Err())
	}
	r, err := http.NewRequestWithContext(ctx, method, "/", bytes.NewReader(body))
	if err != nil {
		return nil, "", errkind.E(errkind.Invalid, MethodHTTP, err)
	}
	if r.URL, err = url.ParseRequestURI(uri); err != nil {
		return nil, "", errkind.E(errkind.Invalid, MethodHTTP, err)
	}
	r.Header, r.RequestURI, r.RemoteAddr = header, uri, forward.CameFrom(remote, rpc.Caller(ctx), rpc.Peer(ctx))
	return r, region, nil
}

// Serve implements MethodHTTP: this region's API answers, and judges the token.
func (g *Regions) Serve(ctx context.Context, p []byte, send func([]byte) error) error {
	r, region, err := decode(ctx, p)
	if err != nil {
		return err
	}
	if region != g.cfg.Region {
		return errkind.New(errkind.Unavailable, nomadrows.NoPath)
	}
	w := pieces{forward.NewStreamWriter(send)}
	if err := httpx.ServeWhole(g.cfg.API(), w, r); err != nil {
		return err
	}
	return w.End()
}

// piece is how much of an answer one message carries.
const piece = 256 << 10

// pieces sends an answer that is written at once in several messages.
type pieces struct{ *forward.StreamWriter }

// Write implements http.ResponseWriter.
func (w pieces) Write(p []byte) (n int, err error) {
	for len(p) > piece && err == nil {
		var did int
		did, err = w.StreamWriter.Write(p[:piece])
		n, p = n+did, p[piece:]
	}
	if err != nil {
		return n, err
	}
	did, err := w.StreamWriter.Write(p)
	return n + did, err
}
