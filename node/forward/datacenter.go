package forward

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"

	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/core/wan"
	"corbel.dev/corbel/kit/pack"
)

// Datacenters passes requests on to other datacenters.
type Datacenters struct {
	Paths *wan.Paths
	Limits
}

// ForwardDC sends a whole HTTP request to a server of another datacenter and returns its answer,
// whose body is in memory: it need not be closed. ctx bounds it; without an earlier deadline
// it gets limits.rpc_client_timeout, or with `index` in its query the longest blocking time.
//
// One server after the other is asked, up to three, as long as it certainly did nothing; a GET also
// when its outcome is unknown. A request that came from another datacenter already goes no
// further. The error, of kind Unavailable, reads "No path to datacenter" when nobody there can be reached.
func (d Datacenters) ForwardDC(ctx context.Context, dc string, r *http.Request) (*http.Response, error) {
	j := rows.JourneyOf(ctx)
	if j.Crossed || j.Hops >= MaxHops {
		return nil, wan.ErrNoPath
	}
	req, err := Encode(r, rows.Journey{Hops: j.Hops + 1, Crossed: true})
	if err != nil {
		return nil, err
	}
	timeout := d.Call
	if r.URL.Query().Has("index") {
		timeout = d.Block
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	reply, err := d.Paths.Ask(ctx, dc, MethodHTTP, req, reads, blocks(r))
	if err != nil {
		return nil, err
	}
	status, header, body, err := DecodeReply(reply)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: header, Proto: "HTTP/1.1",
		ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)), Request: r}, nil
}

// ForwardDCStream is ForwardDC for answers of any length and bodies of any size: the answer is written to
// rw as it comes. Another server is asked only as long as nothing was sent to one. It lasts as long as
// the request, or until the path is judged broken.
func (d Datacenters) ForwardDCStream(rw http.ResponseWriter, dc string, r *http.Request) error {
	j := rows.JourneyOf(r.Context())
	if j.Crossed || j.Hops >= MaxHops {
		return wan.ErrNoPath
	}
	p, err := d.Paths.Reach(r.Context(), dc) // a body is read only once
	if err != nil {
		return err
	}
	return d.stream(rw, p, r, rows.Journey{Hops: j.Hops + 1, Crossed: true})
}

// stream sends a request down one path and copies the answer.
func (d Datacenters) stream(rw http.ResponseWriter, p *wan.Path, r *http.Request, j rows.Journey) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	stop := context.AfterFunc(p.Broken(), cancel)
	defer stop()
	r = r.WithContext(ctx)
	upload, err := carrier{d.Paths.Client, d.Call}.upload(rw, r, p.Addr, j)
	if errors.Is(err, errAnsweredBefore) {
		return nil
	}
	if err != nil {
		return err
	}
	req, err := Encode(r, j)
	if err != nil {
		return err
	}
	stream, err := d.Paths.Client.Stream(ctx, p.Addr, MethodStream, pack.Bytes(pack.String(nil, upload), req))
	if err != nil {
		return err
	}
	defer stream.Close()
	return CopyStream(rw, stream)
}
