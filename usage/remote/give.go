package remote

import (
	"bufio"
	"context"
	"net"
	"strconv"
	"time"
)

// Pace says how fast and for how long a Give goes on.
type Pace struct {
	// BytesPerSecond bounds what is sent; Timeout bounds each answer.
	BytesPerSecond int
	Timeout        time.Duration
}

// Give hands chunks of a snapshot (cache.Dump) to another host over a connection of its own, with USAGE.RESTORE, until
// there is none, and returns how many keys went over. next makes a chunk; more says that another one follows.
func Give(ctx context.Context, nc net.Conn, user, password string, pace Pace, next func() (chunk []byte, more bool),
) (keys int, err error) {
	defer context.AfterFunc(ctx, func() { _ = nc.Close() })()
	in := bufio.NewReaderSize(nc, maxReplyLine)
	ask := func(words ...string) (Reply, error) {
		if err := nc.SetDeadline(time.Now().Add(pace.Timeout)); err != nil {
			return Reply{}, err
		}
		if _, err := nc.Write(AppendCommand(nil, words...)); err != nil {
			return Reply{}, err
		}
		r, err := ReadReply(in)
		if err == nil {
			err = r.Err()
		}
		return r, err
	}
	if password != "" {
		if _, err := ask("AUTH", user, password); err != nil {
			return 0, err
		}
	}
	if _, err := ask("CLIENT", "SETNAME", "corbel-handover"); err != nil {
		return 0, err
	}
	began, sent := time.Now(), 0
	for more := true; more; {
		var chunk []byte
		if chunk, more = next(); len(chunk) == 0 {
			continue
		}
		r, err := ask("USAGE.RESTORE", "*", strconv.Itoa(keys), string(chunk))
		if err != nil {
			return keys, err
		}
		keys, sent = int(r.Int), sent+len(chunk)
		due := time.Duration(float64(sent) / float64(pace.BytesPerSecond) * float64(time.Second))
		if wait := due - time.Since(began); wait > 0 {
			t := time.NewTimer(wait)
			select {
			case <-t.C:
			case <-ctx.Done():
				t.Stop()
			}
		}
		if ctx.Err() != nil {
			return keys, ctx.Err()
		}
	}
	return keys, nil
}
