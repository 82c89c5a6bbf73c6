package node

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/core/feed"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/core/wire/wiretest"
	"corbel.dev/corbel/kit/polltest"
)

// TestFeedCertificateEnds: an agent whose certificate ends while it is fed, a change every 10 ms, is cut, and is not
// let in again (row C12).
func TestFeedCertificateEnds(t *testing.T) {
	t.Parallel()
	a := wiretest.NewAuthority(t)
	m := startServer(t, "feedrights", aclOff+`
bootstrap = true
connect { enabled = true }`+a.RPCBlock(a.Issue(goodName, -time.Minute, time.Hour), ""))
	polltest.Until(t, func() bool { return m.raft.IsLeader() && m.raft.LeaseHeld() }, "a leader")
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() {
		for n, tick := 0, time.NewTicker(10*time.Millisecond); ctx.Err() == nil; <-tick.C {
			n++
			body := fmt.Sprintf(`{"Node":"n","Address":"10.9.9.%d","Service":{"Service":"web","Port":1}}`, n%250)
			m.ask("PUT", "/v1/catalog/register", body)
		}
	})
	cert := a.Issue("client.dc1.consul", -time.Minute, 4*time.Second)
	open := withCertificate(a, &cert)
	var heard newest
	servers := func() []string { return []string{m.RPCAddr()} }
	client, err := feed.NewClient(feed.ClientConfig{Node: "agent", Servers: servers,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := open(ctx, addr)
			if err == nil {
				_, err = conn.Write([]byte{byte(wire.ProtoFeed), 0})
			}
			return conn, err
		}})
	if err != nil {
		t.Fatal(err)
	}
	running.Go(func() { _ = client.Run(ctx) })
	defer client.Follow("endpoints/dc1/web/", "", heard.set, func(error) {})()
	first := func() uint64 { return heard.get().Index }
	polltest.Until(t, func() bool { return first() > 0 && m.feeds.Feed.Stats().Conns == 1 }, "the agent to be fed")
	polltest.Until(t, func() bool { return m.feeds.Feed.Stats().Conns == 0 }, "the agent to be cut")
	last := first()
	<-time.After(time.Second)
	if now := first(); now != last {
		t.Errorf("it heard of %d after its certificate ended at %d", now, last)
	}
}
