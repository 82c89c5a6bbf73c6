package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"corbel.dev/corbel/test/fetch"
)

// judgeHTTP lets requests through that say please.
func judgeHTTP(t testing.TB) int {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("x-please") == "" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("x-judge", "kind")
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().(*net.TCPAddr).Port
}

// judgeGRPC does the same by Envoy's protocol: an answer with a status of 0 or 7 in its first field.
func judgeGRPC(t testing.TB) int {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		answer := []byte{0, 0, 0, 0, 4, 0x0a, 2, 8, 7}
		if r.URL.Path == "/envoy.service.auth.v3.Authorization/Check" && bytes.Contains(body, []byte("x-please")) {
			answer = []byte{0, 0, 0, 0, 2, 0x0a, 0}
		}
		_, _ = w.Write(answer)
		w.Header().Set("Grpc-Status", "0")
	}))
	s.Config.Protocols = http2Only()
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().(*net.TCPAddr).Port
}

// TestExtAuthz: somebody outside of an api gateway judges requests, by host and port or as a service of the mesh, and
// rules say whether theirs are judged. Where nobody can be asked, what is to be judged is refused.
func TestExtAuthz(t *testing.T) {
	r := newMeshRig(t, fetch.Need(t, "envoy"))
	extension := func(config string) {
		t.Helper()
		r.must("PUT", "/v1/config", `{"Kind":"service-defaults","Name":"edge","EnvoyExtensions":[`+
			`{"Name":"builtin/ext-authz","Arguments":{"ProxyType":"api-gateway","Config":{`+config+`}}}]}`)
	}
	gateway := func(toggle string) {
		t.Helper()
		r.must("PUT", "/v1/config", fmt.Sprintf(`{"Kind":"api-gateway","Name":"edge",%s"Listeners":[{"Name":"plain",`+
			`"Port":%d,"Protocol":"http"}]}`, toggle, r.port("plain")))
	}
	// within waits until each path answers as it should, with a request that says please and one that does not.
	within := func(what string, want map[string][2]int) {
		t.Helper()
		r.await(what, func() bool {
			for path, status := range want {
				with, _ := r.get(r.port("plain"), path, "x-please", "yes")
				without, _ := r.get(r.port("plain"), path)
				if with != status[0] || without != status[1] {
					return false
				}
			}
			return true
		})
	}
	r.must("PUT", "/v1/config", `{"Kind":"service-defaults","Name":"shop","Protocol":"http"}`)
	r.service("shop", "shop", "1", backend(t, "shop"), nil)
	r.proxy("shop")
	r.gateway("api", "edge")
	gateway("")
	r.must("PUT", "/v1/config", `{"Kind":"http-route","Name":"shop","Parents":[{"Name":"edge"}],"Rules":[
		{"Matches":[{"Path":{"Match":"prefix","Value":"/open"}}],"Filters":{"ExtAuthz":{"Enabled":false}},
			"Services":[{"Name":"shop"}]},
		{"Matches":[{"Path":{"Match":"prefix","Value":"/closed"}}],"Filters":{"ExtAuthz":{"Enabled":true}},
			"Services":[{"Name":"shop"}]},
		{"Services":[{"Name":"shop"}]}]}`)
	within("what is to be judged to be refused where nobody judges",
		map[string][2]int{"/": {200, 200}, "/open": {200, 200}, "/closed": {403, 403}})

	byHTTP := fmt.Sprintf(`"HttpService":{"Target":{"URI":"127.0.0.1:%d","Timeout":"5s"},"AuthorizationRequest":{`+
		`"AllowedHeaders":[{"Exact":"x-please"}]},"AuthorizationResponse":{"AllowedUpstreamHeaders":[{"Prefix":"x-"}]}}`,
		judgeHTTP(t))
	extension(byHTTP)
	judged := map[string][2]int{"/": {200, 401}, "/open": {200, 200}, "/closed": {200, 401}}
	within("a judge by HTTP", judged)
	gateway(`"ExtAuthz":{"Enabled":false},`)
	within("only what asks for it to be judged", map[string][2]int{"/": {200, 200}, "/open": {200, 200},
		"/closed": {200, 401}})
	gateway("")
	within("the judge again", judged)

	extension(fmt.Sprintf(`"GrpcService":{"Target":{"URI":"127.0.0.1:%d","Timeout":"5s"}}`, judgeGRPC(t)))
	byGRPC := map[string][2]int{"/": {200, 403}, "/open": {200, 200}, "/closed": {200, 403}}
	within("a judge by gRPC", byGRPC)
	r.synced(2)

	// As a service of the mesh, by its sidecar.
	extension(`"GrpcService":{"Target":{"Service":{"Name":"judge"},"Timeout":"5s"}}`)
	within("everything to be refused without the judge", map[string][2]int{"/": {403, 403}, "/open": {200, 200},
		"/closed": {403, 403}})
	r.must("PUT", "/v1/config", `{"Kind":"service-defaults","Name":"judge","Protocol":"grpc"}`)
	r.service("judge", "judge", "1", judgeGRPC(t), nil)
	r.proxy("judge")
	within("a judge in the mesh", byGRPC)
	r.synced(3)

	// Arguments that make no sense: what is to be judged is refused, and the gateway says why.
	extension(`"GrpcService":{"Target":{"URI":"nowhere"}}`)
	within("everything to be refused with wrong arguments", map[string][2]int{"/": {403, 403}, "/open": {200, 200},
		"/closed": {403, 403}})
	r.must("DELETE", "/v1/config/service-defaults/edge", "")
	within("no judge", map[string][2]int{"/": {200, 200}, "/open": {200, 200}, "/closed": {403, 403}})
}
