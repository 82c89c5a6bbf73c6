package node

import (
	"bytes"
	"context"
	"io"
	"net/http"
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
	reply, err := w.ask(ctx, dc, methodHTTP, req, r.Method == http.MethodGet || r.Method == http.MethodHead)
	if err != nil {
		return nil, err
	}
	status, header, body, err := decodeReply(reply)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)), Request: r}, nil
}
