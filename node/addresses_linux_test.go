package node

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/core/wire/wiretest"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/node/forward"
)

// TestForwardedAddresses: a server believes the address of a client from servers alone. An agent could claim any
// address, one that allow_write_http_from lets write among them.
func TestForwardedAddresses(t *testing.T) {
	t.Parallel()
	a := wiretest.NewAuthority(t)
	m := startServer(t, "addresses", aclOff+`
bootstrap = true
http_config { allow_write_http_from = ["10.9.9.0/24"] }`+a.RPCBlock(a.Issue(goodName, -time.Minute, time.Hour), ""))
	polltest.Until(t, func() bool { return m.raft.IsLeader() && m.raft.LeaseHeld() }, "a leader")
	const allowed, loopback = "10.9.9.9:5000", "127.0.0.1:5000"
	for _, c := range []struct {
		name, certificate, says string
		may                     bool
	}{
		{"an agent", "client.dc1.consul", allowed, false},
		{"an agent, of its own host", "client.dc1.consul", loopback, false},
		{"a server", goodName, allowed, true},
		{"a server, of its own host", goodName, loopback, false},
		{"a server of another datacenter", "server.dc2.consul", allowed, true},
	} {
		cert := a.Issue(c.certificate, -time.Minute, time.Hour)
		client := callerAs(t, withCertificate(a, &cert), wire.ProtoRPC)
		r, err := http.NewRequest(http.MethodPut, "/v1/kv/"+c.certificate, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.RemoteAddr = c.says
		req, err := forward.Encode(r, rows.Journey{Hops: 1})
		if err != nil {
			t.Fatal(err)
		}
		for method, status := range map[string]func() (int, error){
			forward.MethodHTTP: func() (int, error) {
				return statusOf(client.Call(t.Context(), m.RPCAddr(), forward.MethodHTTP, req))
			},
			forward.MethodStream: func() (int, error) { return streamedStatus(t, client, m.RPCAddr(), req) },
		} {
			code, err := status()
			if err != nil || (code == http.StatusOK) != c.may || !c.may && code != http.StatusForbidden {
				t.Errorf("%s says by %s that its client is %s: %d, %v", c.name, method, c.says, code, err)
			}
		}
	}
}

func statusOf(reply []byte, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	status, _, _, err := forward.DecodeReply(reply)
	return status, err
}

func streamedStatus(t *testing.T, client *rpc.Client, addr string, req []byte) (int, error) {
	t.Helper()
	s, err := client.Stream(t.Context(), addr, forward.MethodStream, pack.Bytes(pack.String(nil, ""), req))
	if err != nil {
		return 0, err
	}
	defer s.Close()
	w := httptest.NewRecorder()
	err = forward.CopyStream(w, s)
	return w.Code, err
}
