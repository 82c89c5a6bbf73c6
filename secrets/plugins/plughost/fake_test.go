//go:build unix

package plughost

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"corbel.dev/corbel/secrets/plugins/message"
)

// TestMain is the plug-in where this binary is run as one.
func TestMain(m *testing.M) {
	if os.Getenv(cookieName) != "" {
		fake()
		return
	}
	os.Exit(m.Run())
}

// fake serves a backend that does what its paths say. It is a process of its own, made of the library that plug-ins are
// made of, and of no server's code.
func fake() {
	switch os.Getenv("FAKE") {
	case "noise":
		fmt.Println("no plug-in at all")
		return
	case "silent":
		if err := silent(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return
	}
	fmt.Fprintln(os.Stderr, `{"@level":"warn","@message":"the fake begins","error":"none"}`)
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  plugin.HandshakeConfig{MagicCookieKey: cookieName, MagicCookieValue: cookieValue},
		VersionedPlugins: map[int]plugin.PluginSet{protocol: {backend: &fakePlugin{}}},
		GRPCServer: func(options []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(options, grpc.ForceServerCodec(both{}), grpc.UnknownServiceHandler(served.handle),
				grpc.MaxRecvMsgSize(maxMessage))...)
		},
	})
}

// silent says that it runs to the test alone, and waits, with a process of its own: while one of the two lives the
// connection is open.
func silent() error {
	conn, err := net.Dial("unix", os.Getenv("FAKE_AT"))
	if err != nil {
		return err
	}
	file, err := conn.(*net.UnixConn).File()
	if err != nil {
		return err
	}
	child := exec.Command("sleep", "600")
	child.Stdin = file
	if err := child.Start(); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("up")); err != nil {
		return err
	}
	return child.Wait()
}

// both is the codec of a server that has generated messages and ours.
type both struct{ codec }

func (b both) Marshal(v any) ([]byte, error) {
	if m, ok := v.(proto.Message); ok {
		return proto.Marshal(m)
	}
	return b.codec.Marshal(v)
}

func (b both) Unmarshal(data []byte, v any) error {
	if m, ok := v.(proto.Message); ok {
		return proto.Unmarshal(data, m)
	}
	return b.codec.Unmarshal(data, v)
}

type fakePlugin struct {
	plugin.NetRPCUnsupportedPlugin
}

func (*fakePlugin) GRPCServer(broker *plugin.GRPCBroker, _ *grpc.Server) error {
	served.broker = broker
	return nil
}

func (*fakePlugin) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, nil
}

var served fakeBackend

type fakeBackend struct {
	broker *plugin.GRPCBroker
	conn   *grpc.ClientConn
}

func (f *fakeBackend) handle(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	var in raw
	if err := stream.RecvMsg(&in); err != nil {
		return err
	}
	out, err := f.answer(stream.Context(), method, in)
	if err != nil {
		return err
	}
	return stream.SendMsg(out)
}

func (f *fakeBackend) answer(ctx context.Context, method string, in raw) (any, error) {
	switch method {
	case message.Setup:
		var args message.SetupArgs
		if err := message.Unmarshal(in, &args); err != nil {
			return nil, err
		}
		conn, err := f.broker.Dial(args.Broker)
		f.conn = conn
		return &message.SetupReply{}, err
	case message.Type:
		return &message.TypeReply{Type: message.TypeSecret}, nil
	case message.SpecialPaths:
		return &message.PathsReply{Paths: &message.Paths{Unauthenticated: []string{"open/*"}}}, nil
	case message.HandleExistenceCheck:
		return &message.ExistenceReply{}, nil
	case message.HandleRequest:
		var args message.RequestArgs
		if err := message.Unmarshal(in, &args); err != nil {
			return nil, err
		}
		return f.request(ctx, args.Request)
	}
	return &message.Empty{}, nil
}

// request does what the path says: env, hang, die, large, or a record of the storage.
func (f *fakeBackend) request(ctx context.Context, r *message.Request) (*message.RequestReply, error) {
	data := map[string]any{}
	switch r.Path {
	case "env":
		data["env"] = os.Environ()
	case "hang":
		select {} // it does not heed its context either
	case "slow":
		<-ctx.Done()
	case "die":
		os.Exit(3)
	case "large":
		data["text"] = strings.Repeat("x", maxMessage)
	case "shout":
		for i := range 1_000 {
			fmt.Fprintln(os.Stderr, "line", i, strings.Repeat("y", 10_000))
		}
	default:
		return f.record(ctx, r)
	}
	text, err := json.Marshal(data)
	return &message.RequestReply{Response: &message.Response{Data: string(text)}}, err
}

func (f *fakeBackend) record(ctx context.Context, r *message.Request) (*message.RequestReply, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	call := func(method string, in, out any) error {
		return f.conn.Invoke(ctx, method, in, out, grpc.ForceCodec(codec{}))
	}
	if r.Operation != "read" {
		var done message.StorageDone
		err := call(message.StoragePut, &message.StorageWrite{Entry: &message.StorageEntry{Key: r.Path,
			Value: []byte(r.Data)}}, &done)
		if done.Err != "" {
			return &message.RequestReply{Err: &message.Error{Text: done.Err}}, err
		}
		return &message.RequestReply{}, err
	}
	var got message.StorageValue
	if err := call(message.StorageGet, &message.StorageKey{Key: r.Path}, &got); err != nil {
		return nil, err
	}
	if got.Entry == nil {
		return &message.RequestReply{}, nil
	}
	return &message.RequestReply{Response: &message.Response{Data: string(got.Entry.Value)}}, nil
}
