package nodecalls

import (
	"context"
	"io"
	"log/slog"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/jobs/noderpc"
)

func monitorAsk(call nomadrows.MonitorCall) []byte {
	return noderpc.Bytes(&noderpc.MonitorAsk{Level: int(call.Level), JSON: call.JSON})
}

// Monitor follows the log of the process at addr, by a method that FollowLog answers there, as a stream of Frames.
func Monitor(ctx context.Context, c *rpc.Client, addr, method string, call nomadrows.MonitorCall) (io.ReadCloser,
	error) {
	return open(ctx, c, addr, method, monitorAsk(call))
}

// FollowLog answers a stream that follows this process's log: a MonitorAsk, then Chunks until the caller goes. Who is
// too slow loses lines; nothing else waits for them.
func FollowLog(logs nomadrows.Logs) rpc.StreamHandler {
	return func(ctx context.Context, req []byte, send func([]byte) error) error {
		ask, err := noderpc.Read[noderpc.MonitorAsk](req)
		if err != nil {
			return err
		}
		return logs.Follow(ctx, slog.Level(ask.Level), ask.JSON, chunks{send}, func() {})
	}
}

// chunks sends what is written, in pieces that may be sent.
type chunks struct{ send func([]byte) error }

// Write implements io.Writer.
func (c chunks) Write(p []byte) (n int, err error) {
	for n < len(p) {
		piece := p[n:min(len(p), n+noderpc.MaxChunkBytes)]
		if err := c.send(noderpc.Bytes(&noderpc.Chunk{Data: piece})); err != nil {
			return n, err
		}
		n += len(piece)
	}
	return n, nil
}
