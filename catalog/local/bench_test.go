package local

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/definition"
)

// benchLocal runs a Local with instant servers for a benchmark.
func benchLocal(b *testing.B, cfg Config) *Local {
	cfg.Node, cfg.Servers = catalog.Node{Name: "host"}, newFake()
	l, err := New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	b.Cleanup(func() { cancel(); <-done })
	return l
}

func benchRegister(b *testing.B, l *Local, o RegisterOptions) {
	var n atomic.Int64
	b.SetParallelism(32)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			d := &definition.Service{ID: fmt.Sprint("s", n.Add(1)%5000), Name: "s",
				Endpoint: definition.Endpoint{Port: int(n.Load())}, Check: &definition.Check{TTL: 1e12}}
			if err := l.RegisterService(context.Background(), d, o); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkRegister(b *testing.B) { benchRegister(b, benchLocal(b, Config{}), RegisterOptions{}) }

func BenchmarkRegisterPersist(b *testing.B) {
	benchRegister(b, benchLocal(b, Config{DataDir: b.TempDir()}), RegisterOptions{Persist: true})
}

func BenchmarkHeartbeat(b *testing.B) {
	l := benchLocal(b, Config{})
	if err := l.RegisterService(context.Background(), mustService(b, web), RegisterOptions{}); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := l.UpdateTTL("service:web-1", "passing", "ok"); err != nil {
			b.Fatal(err)
		}
	}
}
