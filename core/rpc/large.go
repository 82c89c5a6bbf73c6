package rpc

import (
	"context"
	"errors"
	"io"
	"net/netip"

	"google.golang.org/grpc"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/limit"
)

// A request above pieceBytes comes in pieces: the receiver knows from the first one who asks for what, and each takes
// room in the budget before the next is read. Nobody inside the cluster makes a server keep what it has no room for.
const (
	pieceBytes = muxMaxRequest
	// mostAtOnce bounds one message to a server: a piece, or what shares a stream.
	mostAtOnce = 2 * muxChunkBytes
)

var largeDesc = grpc.StreamDesc{StreamName: "large", ClientStreams: true}

// sendRequest sends a request, in pieces where it is large, and says that it was all. io.EOF is no error: receiving
// tells why the server ended the stream.
func sendRequest(stream grpc.ClientStream, in *request) error {
	rest := in.payload
	cut := min(len(rest), pieceBytes)
	err := stream.SendMsg(&request{method: in.method, payload: rest[:cut]})
	for rest = rest[cut:]; len(rest) > 0 && err == nil; rest = rest[cut:] {
		cut = min(len(rest), pieceBytes)
		err = stream.SendMsg(&muxMessage{b: rest[:cut]})
	}
	if err == nil {
		err = stream.CloseSend()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// callLarge is a call whose request goes in pieces.
func callLarge(ctx context.Context, cc *grpc.ClientConn, in *request, out *reply, options []grpc.CallOption) error {
	ctx, cancel := context.WithCancel(ctx) // a stream that is not read to its end is ended
	defer cancel()
	stream, err := cc.NewStream(ctx, &largeDesc, pathLarge, options...)
	if err != nil {
		return err
	}
	if err := sendRequest(stream, in); err != nil {
		return err
	}
	return stream.RecvMsg(out)
}

// gather reads the pieces behind the first, and has the Hold cover them.
func (s *Server) gather(stream grpc.ServerStream, req *request, hold *limit.Hold) error {
	for {
		var piece muxMessage
		switch err := stream.RecvMsg(&piece); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return errkind.E(errkind.Unavailable, "rpc: "+req.method, err)
		}
		size := len(req.payload) + len(piece.b)
		if size > s.cfg.MaxMessageBytes {
			return errkind.Errorf(errkind.TooLarge, "rpc: the request is larger than max %d bytes", s.cfg.MaxMessageBytes)
		}
		if err := hold.Gather(size); err != nil {
			return err
		}
		req.payload = append(req.payload, piece.b...)
	}
}

// large answers a call whose request comes in pieces. Whom the method is not for is refused after the first.
func (s *Server) large(stream grpc.ServerStream) error {
	var req request
	if err := stream.RecvMsg(&req); err != nil {
		return err
	}
	ctx, caller, m := stream.Context(), Caller(stream.Context()), s.calls[req.method]
	hold := s.cfg.Bytes.Hold(netip.Addr{})
	defer hold.End()
	if m != nil && caller.May(m.roles) { // answer refuses the others
		if err := s.gather(stream, &req, &hold); err != nil {
			s.requests.Add(1)
			s.failures.Add(1)
			return stream.SendMsg(&reply{err: err})
		}
	}
	return stream.SendMsg(s.answer(ctx, caller, m, []byte(req.method), req.payload))
}
