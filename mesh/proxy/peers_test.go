package proxy

import (
	"fmt"
	"testing"
)

// TestNoClusterSpeaksForAnother: where a service is exported, a certificate counts only with the trust domain of the
// cluster whose root signed it, and no longer than the peering lasts.
func TestNoClusterSpeaksForAnother(t *testing.T) {
	own, err := testAuthority()
	if err != nil {
		t.Fatal(err)
	}
	far, err := farAuthority()
	if err != nil {
		t.Fatal(err)
	}
	eachEnvoy(t, func(t *testing.T, program string) {
		w := newWorld(t, `{"Kind": "exported-services", "Name": "default", "Services": [{"Name": "web", `+
			`"Consumers": [{"Peer": "east"}]}]}`)
		w.allow = true
		w.peer("east", "db", "tcp")
		w.trust["east"].Roots = []string{far.pem}
		port := freePort(t)
		l := start(t, program, w, sidecar(t, fmt.Sprintf(`{"LocalServicePort": %d, "Config": {"bind_port": %d}}`,
			echoServer(t), port)))
		try := func(a *authority, domain string) error {
			cert, key := leafBy(t, a, domain, "caller")
			return echoOver(l.dialAs(port, cert, key))
		}
		l.wait("a caller of the peer", func() error { return try(far, peerDomain) })
		for _, c := range []struct {
			name   string
			signer *authority
			domain string
			want   bool
		}{
			{"our own", own, testDomain, true},
			{"the peer's", far, peerDomain, true},
			{"the peer in our name", far, testDomain, false},
			{"ours in the peer's name", own, peerDomain, false},
			{"the peer in the name of a third", far, "third.consul", false},
		} {
			if err := try(c.signer, c.domain); (err == nil) != c.want {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		delete(w.trust, "east")
		l.step(w.change("service/web"))
		l.wait("the end of the peer", func() error { return refusedOnly(try(far, peerDomain)) })
		if err := try(own, testDomain); err != nil {
			t.Errorf("our own afterwards: %v", err)
		}
		l.settled(2)
	})
}
