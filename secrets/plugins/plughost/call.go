package plughost

import (
	"context"
	"fmt"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/plugins/message"
)

// maxMessage bounds a message in either direction: what storages take at most in one commit.
const maxMessage = 32 << 20

// maxStreams bounds how many calls a plug-in makes at once.
const maxStreams = 256

// codec has messages of package message, and bytes as they are, in the place of generated ones.
type codec struct{}

// raw is a message that nobody has read yet.
type raw []byte

// Name implements encoding.Codec: to the other side these are protocol buffers as any.
func (codec) Name() string { return "proto" }

// Marshal implements encoding.Codec.
func (codec) Marshal(v any) ([]byte, error) { return message.Marshal(v) }

// Unmarshal implements encoding.Codec.
func (codec) Unmarshal(data []byte, v any) error {
	if into, ok := v.(*raw); ok {
		*into = append(raw{}, data...)
		return nil
	}
	return message.Unmarshal(data, v)
}

// Call implements plugins.Process.
func (p *process) Call(ctx context.Context, method string, in, out any) error {
	ctx = metadata.AppendToOutgoingContext(ctx, message.MultiplexKey, p.launch.UUID)
	err := p.conn.Invoke(ctx, method, in, out, grpc.ForceCodec(codec{}), grpc.MaxCallRecvMsgSize(maxMessage),
		grpc.MaxCallSendMsgSize(maxMessage))
	if err == nil {
		return nil
	}
	text := fmt.Errorf("the plug-in: %s", status.Convert(err).Message())
	switch status.Code(err) {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return errkind.E(errkind.Unavailable, "", text)
	case codes.ResourceExhausted:
		return errkind.E(errkind.TooLarge, "", text)
	}
	return errkind.E(errkind.Internal, "", text)
}

// serve answers what the plug-in asks of the server, until the server is stopped.
func (p *process) serve(broker *plugin.GRPCBroker, conn *grpc.ClientConn) {
	p.conn, p.broker, p.server = conn, broker.NextId(), make(chan *grpc.Server, 1)
	p.serving.Go(func() {
		broker.AcceptAndServe(p.broker, func(options []grpc.ServerOption) *grpc.Server {
			server := grpc.NewServer(append(options, grpc.ForceServerCodec(codec{}), grpc.MaxRecvMsgSize(maxMessage),
				grpc.MaxSendMsgSize(maxMessage), grpc.MaxConcurrentStreams(maxStreams),
				grpc.WaitForHandlers(true), grpc.UnknownServiceHandler(p.answer))...)
			p.server <- server
			return server
		})
	})
}

// answer answers one call of the plug-in's.
func (p *process) answer(_ any, stream grpc.ServerStream) error {
	method, ok := grpc.MethodFromServerStream(stream)
	if !ok {
		return status.Error(codes.Internal, "no method")
	}
	var in raw
	if err := stream.RecvMsg(&in); err != nil {
		return err
	}
	out, err := p.launch.Serve(stream.Context(), method, in)
	switch {
	case err == nil:
		return stream.SendMsg(out)
	case errkind.Is(err, errkind.NotFound):
		return status.Error(codes.Unimplemented, err.Error())
	}
	return status.Error(codes.Unknown, err.Error())
}
