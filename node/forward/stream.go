package forward

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/node/spool"
)

// The RPCs that carry a request whose answer is a stream (a snapshot, a log, a
// watch), and the pieces of a body that is too large for one message.
const (
	MethodStream = "http.stream"
	MethodUpload = "http.upload"
	// MethodOffer asks, with a request's head, whether its body is wanted, before the first piece of it.
	MethodOffer = "http.offer"
)

// uploadPiece is how much of a body one call carries; a body up to that size goes with the request.
const uploadPiece = 1 << 20

// ForwardStream implements rows.Forwarder: it is Forward for answers of any
// length and bodies of any size. Nothing is tried twice, because the body is read only once.
func (f *Forwarder) ForwardStream(w http.ResponseWriter, r *http.Request, toLeader bool) error {
	j := rows.JourneyOf(r.Context())
	if j.Hops >= MaxHops {
		return errkind.New(errkind.Unavailable, "No cluster leader")
	}
	addr, err := f.target(toLeader, "")
	if err != nil {
		return err
	}
	next := rows.Journey{Hops: j.Hops + 1, Crossed: j.Crossed}
	upload, err := f.carrier().upload(w, r, addr, next)
	if errors.Is(err, errAnsweredBefore) {
		return nil
	}
	if err != nil {
		return err
	}
	req, err := Encode(r, next)
	if err != nil {
		return err
	}
	stream, err := f.cfg.Client.Stream(r.Context(), addr, MethodStream, pack.Bytes(pack.String(nil, upload), req))
	if err != nil {
		return err
	}
	defer stream.Close()
	return CopyStream(w, stream)
}

// errAnsweredBefore says that the request was answered by its head alone.
var errAnsweredBefore = errors.New("the body is not wanted")

// carrier sends bodies ahead to a server.
type carrier struct {
	client  *rpc.Client
	timeout time.Duration // of each piece
}

func (f *Forwarder) carrier() carrier { return carrier{f.cfg.Client, f.cfg.Call} }

// upload sends the body ahead when it is long, and returns what it can be asked for by. Whether it is wanted is asked
// first: who may not ask is told so, on w, and what follows was not sent anywhere.
func (c carrier) upload(w http.ResponseWriter, r *http.Request, addr string, j rows.Journey) (string, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return "", nil
	}
	if o, ok := r.Body.(*offered); ok { // only the head is here
		if _, err := c.offer(w, r, addr, j, true); err != nil {
			return "", err
		}
		o.wanted = true
		return "", errOffered
	}
	buf := make([]byte, uploadPiece)
	n, err := io.ReadFull(r.Body, buf)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		r.Body = io.NopCloser(bytes.NewReader(buf[:n]))
		return "", nil
	}
	if err != nil {
		return "", errkind.E(errkind.Invalid, "read the request body", err)
	}
	id, err := c.offer(w, r, addr, j, false)
	if err != nil {
		return "", err
	}
	for offset := uint64(0); ; {
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return "", errkind.E(errkind.Invalid, "read the request body", err)
		}
		if n > 0 {
			ctx, cancel := context.WithTimeout(r.Context(), c.timeout)
			piece := pack.Bytes(pack.Uint(pack.String(nil, id), offset), buf[:n])
			_, callErr := c.client.Call(ctx, addr, MethodUpload, piece)
			cancel()
			if callErr != nil {
				return "", callErr
			}
			offset += uint64(n)
		}
		if err != nil {
			r.Body = http.NoBody
			return id, nil
		}
		n, err = io.ReadFull(r.Body, buf)
	}
}

// offer asks a server whether it wants the body of a request, and returns the name that it gave to it; it makes no
// room when somebody else only asks for it. What the server answers otherwise is written to w; the error is
// errAnsweredBefore then.
func (c carrier) offer(w http.ResponseWriter, r *http.Request, addr string, j rows.Journey,
	onlyAsks bool) (string, error) {
	head := r.Clone(r.Context())
	head.Body = http.NoBody
	req, err := Encode(head, j)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(r.Context(), c.timeout)
	defer cancel()
	reply, err := c.client.Call(ctx, addr, MethodOffer, pack.Bytes(pack.Bool(nil, onlyAsks), req))
	if errkind.Is(err, errkind.NotFound) {
		return "", errkind.New(errkind.Unavailable, "the server is of an older version, which takes bodies before it "+
			"looks at the token: upgrade the servers first, or send the request to a server")
	}
	if err != nil {
		return "", err
	}
	rd := pack.Read(reply)
	wanted, id, answer := rd.Bool(), rd.String(), rd.Bytes()
	if rd.Err() != nil {
		return "", errkind.E(errkind.Internal, "forwarded answer", rd.Err())
	}
	if wanted {
		return id, nil
	}
	if err := writeReply(w, answer); err != nil {
		return "", err
	}
	return "", errAnsweredBefore
}

// errOffered ends the handling of a head whose body is wanted.
var errOffered = errors.New("only the head of the request is here")

// offered stands for a body that was not sent yet. Whoever reads it has judged the head.
type offered struct{ wanted bool }

// Read implements io.Reader.
func (o *offered) Read([]byte) (int, error) {
	o.wanted = true
	return 0, errOffered
}

// Close implements io.Closer.
func (o *offered) Close() error { return nil }

// ownerOf is whose a body is that was sent ahead: of the connection that began it, and of the request whose head was
// judged.
func ownerOf(ctx context.Context, r *http.Request) spool.Owner {
	return spool.Owner{Conn: rpc.Caller(ctx), Method: r.Method, URI: r.RequestURI, Token: rows.Secret(r)}
}

// serveOffer implements MethodOffer: the process's own API handles the head, and when it comes as far as to read
// the body, that gets a name and a place.
func serveOffer(api http.Handler, u *spool.Bodies) rpc.Handler {
	return func(ctx context.Context, p []byte) ([]byte, error) {
		rd := pack.Read(p)
		onlyAsks, head := rd.Bool(), rd.Bytes()
		if rd.Err() != nil {
			return nil, errkind.E(errkind.Invalid, "forwarded request", rd.Err())
		}
		r, err := decodePassedOn(ctx, head)
		if err != nil {
			return nil, err
		}
		body := &offered{}
		r.Body, r.ContentLength = body, -1
		w := httpx.NewRecorder()
		api.ServeHTTP(w, r)
		var id string
		if !body.wanted {
			return pack.Bytes(pack.String(pack.Bool(nil, false), ""), EncodeReply(w)), nil
		}
		if !onlyAsks {
			if id, err = u.Begin(ownerOf(ctx, r)); err != nil {
				return nil, err
			}
		}
		return pack.Bytes(pack.String(pack.Bool(nil, true), id), nil), nil
	}
}

// CopyStream writes the answer: its head, then its pieces. The error is answer.ErrCut when it broke once its head was
// written: whoever serves the client ends the connection then, so that nobody takes a part for the whole.
func CopyStream(w http.ResponseWriter, stream *rpc.Stream) error {
	head, err := stream.Recv()
	if err != nil {
		return err
	}
	status, header, err := readHeader(pack.Read(head))
	if err != nil {
		return err
	}
	maps.Copy(w.Header(), header)
	w.WriteHeader(status)
	flusher, _ := w.(http.Flusher)
	for {
		piece, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return answer.ErrCut
		}
		if _, err := w.Write(piece); err != nil {
			return nil // the client left
		}
		if flusher != nil {
			flusher.Flush()
		}
	}
}

// serveStreamed answers a request of ForwardStream with the process's own API.
func serveStreamed(api http.Handler, u *spool.Bodies) rpc.StreamHandler {
	return func(ctx context.Context, p []byte, send func([]byte) error) error {
		rd := pack.Read(p)
		id, req := rd.String(), rd.Bytes()
		if rd.Err() != nil {
			return errkind.E(errkind.Invalid, "forwarded request", rd.Err())
		}
		r, err := decodePassedOn(ctx, req)
		if err != nil {
			return err
		}
		if id != "" {
			body, size, err := u.Take(id, ownerOf(ctx, r))
			if err != nil {
				return err
			}
			defer body.Close()
			r.Body, r.ContentLength = body, size
		}
		w := NewStreamWriter(send)
		if err := httpx.ServeWhole(api, w, r); err != nil {
			return err
		}
		return w.End()
	}
}

// StreamWriter sends an answer on as it is written.
type StreamWriter struct {
	header http.Header
	send   func([]byte) error
	begun  bool
	buf    []byte
	err    error
}

// NewStreamWriter returns one that hands what is written to send.
func NewStreamWriter(send func([]byte) error) *StreamWriter {
	return &StreamWriter{header: http.Header{}, send: send}
}

// Header implements http.ResponseWriter.
func (w *StreamWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *StreamWriter) WriteHeader(status int) {
	if w.begun {
		return
	}
	w.begun = true
	w.err = w.send(appendHeader(pack.Uint(nil, uint64(status)), w.header))
}

// Write implements http.ResponseWriter.
func (w *StreamWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	w.buf = append(w.buf, p...)
	if len(w.buf) >= 64<<10 {
		w.Flush()
	}
	if w.err != nil {
		return 0, w.err
	}
	return len(p), nil
}

// Flush implements http.Flusher.
func (w *StreamWriter) Flush() {
	w.WriteHeader(http.StatusOK)
	if w.err == nil && len(w.buf) > 0 {
		w.err = w.send(w.buf)
	}
	w.buf = nil // what was sent may still be on its way
}

// End sends what is left, and returns what went wrong on the way.
func (w *StreamWriter) End() error {
	w.Flush()
	return w.err
}
