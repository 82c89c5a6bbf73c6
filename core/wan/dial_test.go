package wan

import (
	"context"
	"crypto/tls"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/core/wire/wiretest"
)

// TestDatacentersAreProven: gossip says who is a server of a datacenter; clients' tokens go there when its
// certificate says so too, also where names are not checked (verify_server_hostname = false).
func TestDatacentersAreProven(t *testing.T) {
	a := wiretest.NewAuthority(t)
	start := func(name string) *wire.Wire {
		cert := a.Issue(name, -time.Hour, time.Hour)
		id := &wire.TLS{OwnName: name, Domain: "consul", Server: &tls.Config{Certificates: []tls.Certificate{cert},
			ClientCAs: a.Pool()},
			Client: &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: a.Pool()}}
		w, err := wire.New(wire.Config{Bind: "127.0.0.1:0", TLS: id})
		if err != nil {
			t.Fatal(err)
		}
		srv := rpc.NewServer(rpc.ServerConfig{})
		srv.Handle(wire.Anyone, MethodPing, AnswerPing)
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		l := w.Listen(wire.ProtoRPC, 0, wire.Anyone)
		wg.Go(func() { _ = w.Run(ctx) })
		wg.Go(func() { _ = srv.Run(ctx, l) })
		t.Cleanup(func() { cancel(); wg.Wait() })
		return w
	}
	own, honest, agent, elsewhere := start("server.dc1.consul"), start("server.dc2.consul"), start("client.dc2.consul"),
		start("server.dc3.consul")
	w := &WAN{Paths: judged(t), cfg: Config{Wire: own,
		ServerName: func(dc string) string { return "server." + dc + ".consul" }}}
	for i, c := range []struct {
		at *wire.Wire
		ok bool
	}{{honest, true}, {agent, false}, {elsewhere, false}} {
		addr := c.at.Addr().String()
		w.all[addr] = &Path{name: "s.dc2", dc: "dc2", Addr: addr, notify: make(chan struct{}, 1)}
		conn, err := w.dial(t.Context(), addr)
		if (err == nil) != c.ok {
			t.Errorf("%d: %v", i, err)
		}
		if err == nil {
			_ = conn.Close()
		}
	}
	if _, err := w.dial(t.Context(), "127.0.0.1:1"); err == nil {
		t.Error("an address that nobody claims was dialled")
	}
}
