package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"corbel.dev/corbel/cli/command"
)

// front is one listener and the connections that it took.
type front struct {
	listener net.Listener
	cancel   context.CancelFunc
	group    sync.WaitGroup
}

// open listens and hands each connection to serve, in a goroutine of its own. serve need not close it.
func open(ctx context.Context, what listening, log *slog.Logger, serve func(context.Context, net.Conn)) (*front,
	error) {
	addr := what.address()
	if addr.Network == "unix" {
		if err := os.Remove(addr.Text); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, addr.Network, addr.Text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	f := &front{listener: l, cancel: cancel}
	log.Info("listening", "for", what.String(), "address", addr.Text)
	f.group.Go(func() { f.accept(ctx, what, log, serve) })
	return f, nil
}

func (f *front) accept(ctx context.Context, what listening, log *slog.Logger, serve func(context.Context, net.Conn)) {
	slots := make(chan struct{}, what.most())
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		c, err := f.listener.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				c.Close()
			}
			return
		case err != nil: // out of descriptors, mostly: it passes
			<-slots
			log.Warn("cannot take a connection", "for", what.String(), "error", err)
			command.Wait(ctx, 100*time.Millisecond)
			continue
		}
		f.group.Go(func() {
			defer func() { <-slots }()
			defer c.Close()
			serve(ctx, c)
		})
	}
}

// close ends the listener and its connections.
func (f *front) close() {
	f.cancel()
	f.listener.Close()
	f.group.Wait()
}

// join copies between two connections until both directions have ended, one fails, or ctx ends. The end of
// one direction is passed on, so that protocols that shut down one side go on.
func join(ctx context.Context, a, b net.Conn) {
	stop := context.AfterFunc(ctx, func() {
		a.Close()
		b.Close()
	})
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		pass(a, b)
	}()
	pass(b, a)
	<-done
}

func pass(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil && half.CloseWrite() == nil {
		return
	}
	to.Close()
	from.Close()
}
