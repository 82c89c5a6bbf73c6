package ws

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"testing"
)

// compareFrames has a Conn and a peer read the same bytes, and compares their messages and ends.
func compareFrames(t *testing.T, b []byte, piece int) {
	near, far := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, far) }() // ends with far
	go func() {
		_, _ = far.Write(b)
		_ = far.Close()
	}()
	l := (&Limits{MessageBytes: 1 << 10}).orDefaults()
	c := newConn(near, &l, false, nil)
	var want [][]byte
	var wantErr error
	for wantErr == nil {
		var m []byte
		if m, wantErr = c.Read(nil); wantErr == nil {
			want = append(want, m)
		}
	}
	_ = c.Close()

	sink, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	var got [][]byte
	h := &taker{take: func(_ context.Context, _ Link, m []byte) error { got = append(got, bytes.Clone(m)); return nil }}
	p := &peer{l: &poller{cfg: &LoopConfig{Limits: l}}, h: h, fd: int32(sink.Fd())}
	patience := newPatience(0, nil)
	for at := 0; at < len(b) && err == nil; at += piece {
		p.part = append(p.part, b[at:min(at+piece, len(b))]...)
		err = p.rest(&patience)
	}
	if err == nil {
		err = io.EOF
	}
	if len(got) != len(want) {
		t.Fatalf("%d messages, and Conn reads %d: %v, %v", len(got), len(want), err, wantErr)
	}
	for i := range got {
		if !bytes.Equal(got[i], want[i]) {
			t.Fatalf("message %d: % x, and Conn reads % x", i, got[i], want[i])
		}
	}
	if ended(err).Error() != wantErr.Error() && wantErr.Error() != ended(net.ErrClosed).Error() {
		t.Fatalf("%v, and Conn: %v", ended(err), wantErr)
	}
}
