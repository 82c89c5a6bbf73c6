package logs

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
)

// blockedWriter takes nothing until it is opened.
type blockedWriter struct {
	open chan struct{}
	mu   sync.Mutex
	buf  bytes.Buffer
}

func (w *blockedWriter) Write(p []byte) (int, error) {
	<-w.open
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.Write(p)
}

func TestLoggingNeverWaitsAndCountsDrops(t *testing.T) {
	w := &blockedWriter{open: make(chan struct{})}
	l := New(w, slog.LevelInfo, false)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	log := l.Logger()
	const lines = logQueueLines + 1000
	for i := range lines { // returns although nothing is written
		log.Info("line", "n", i)
	}
	if l.Dropped() == 0 {
		t.Fatal("nothing was dropped")
	}
	close(w.open)
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(w.buf.String(), "log lines were dropped") {
		t.Fatal("the drop was not told")
	}
}

func TestFollowersHaveTheirOwnLevel(t *testing.T) {
	var out bytes.Buffer
	l := New(&out, slog.LevelWarn, false)
	log := l.Logger()
	if log.Enabled(t.Context(), slog.LevelDebug) {
		t.Fatal("debug is on although nobody wants it")
	}
	ctx, cancel := context.WithCancel(t.Context())
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- l.Follow(ctx, LevelTrace, true, pw, func() {}) }()
	for !log.Enabled(t.Context(), LevelTrace) {
	}
	log.Log(t.Context(), LevelTrace, "deep", "k", "v")
	buf := make([]byte, 4096)
	n, err := pr.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(buf[:n]); !strings.Contains(got, `"level":"TRACE"`) || !strings.Contains(got, `"k":"v"`) {
		t.Fatalf("got %s", got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	l.Flush()
	if out.Len() != 0 {
		t.Fatalf("the log itself took a trace line: %s", out.String())
	}
	if log.Enabled(t.Context(), slog.LevelDebug) {
		t.Fatal("debug is still on after the follower left")
	}
}

// TestFollowersReadTheContractsLines: tools match on the level in brackets.
func TestFollowersReadTheContractsLines(t *testing.T) {
	l := New(io.Discard, slog.LevelWarn, false)
	log := l.Logger()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- l.Follow(ctx, slog.LevelInfo, false, pw, func() {}) }()
	for !log.Enabled(t.Context(), slog.LevelInfo) {
	}
	log.With("part", "sync").WithGroup("g").Info("synced", "service", "a b", slog.Group("in", "n", 1))
	buf := make([]byte, 4096)
	n, err := pr.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	if _, got, _ := strings.Cut(string(buf[:n]),
		" "); got != "[INFO]  agent: synced: part=sync g.service=\"a b\" g.in.n=1\n" {
		t.Errorf("got %q", got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
