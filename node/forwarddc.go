package node

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"corbel.dev/corbel/kit/pack"
)

// ForwardDC sends a whole HTTP request to a server of another datacenter and returns its answer,
// whose body is in memory: it need not be closed. ctx bounds it; without an earlier deadline
// it gets limits.rpc_client_timeout, or with `index` in its query the longest blocking time.
//
// One server after the other is asked, up to three, as long as it certainly did nothing; a GET also
// when its outcome is unknown. A request that came from another datacenter already goes no
// further. The error, of kind Unavailable, reads "No path to datacenter" when nobody there can be reached.
func (w *wan) ForwardDC(ctx context.Context, dc string, r *http.Request) (*http.Response, error) {
	j := journeyOf(ctx)
	if j.crossed || j.hops >= maxHops {
		return nil, errNoPath
	}
	req, err := encodeRequest(r, journey{hops: j.hops + 1, crossed: true})
	if err != nil {
		return nil, err
	}
	timeout := w.callTimeout
	if r.URL.Query().Has("index") {
		timeout = w.blockTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	reply, err := w.ask(ctx, dc, methodHTTP, req, r.Method == http.MethodGet || r.Method == http.MethodHead, blocks(r))
	if err != nil {
		return nil, err
	}
	status, header, body, err := decodeReply(reply)
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
func (w *wan) ForwardDCStream(rw http.ResponseWriter, dc string, r *http.Request) error {
	j := journeyOf(r.Context())
	if j.crossed || j.hops >= maxHops {
		return errNoPath
	}
	w.b.Metrics.Counter("rpc.cross-dc", "datacenter", dc).Add(1)
	for _, p := range w.choices(dc) {
		// The ping tells apart what is not there from what broke on the way: a body is read only once.
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		_, err := w.rpc.Call(ctx, p.addr, methodPing, nil)
		cancel()
		if err != nil {
			p.doubt()
			continue
		}
		return w.stream(rw, p, r, journey{hops: j.hops + 1, crossed: true})
	}
	return errNoPath
}

// patience is how long a server may take to show that it is there, before another one is asked.
const patience = 2 * time.Second

// stream sends a request down one path and copies the answer.
func (w *wan) stream(rw http.ResponseWriter, p *wanPath, r *http.Request, j journey) error {
	broken := p.broken()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	stop := context.AfterFunc(broken, cancel)
	defer stop()
	f := &forwarder{client: w.rpc, callTimeout: w.callTimeout}
	r = r.WithContext(ctx)
	upload, err := f.upload(rw, r, p.addr, j)
	if errors.Is(err, errAnsweredBefore) {
		return nil
	}
	if err != nil {
		return err
	}
	req, err := encodeRequest(r, j)
	if err != nil {
		return err
	}
	stream, err := w.rpc.Stream(ctx, p.addr, methodHTTPStream, pack.Bytes(pack.String(nil, upload), req))
	if err != nil {
		return err
	}
	defer stream.Close()
	return copyStream(rw, stream)
}
