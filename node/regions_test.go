package node

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/core/wire/wiretest"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/node/plane"
	jobsplane "corbel.dev/corbel/node/planes/jobs"
)

// inRegion asks the API of a member's jobs plane with a token; -1 is no answer.
func (m *testMember) inRegion(token, method, path, body string) (int, string, http.Header) {
	addr := plane.Find[*jobsplane.Plane](m.doors.Planes).Addr()
	ctx, cancel := context.WithTimeout(m.t.Context(), 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+addr+path, strings.NewReader(body))
	if err != nil {
		m.t.Fatal(err)
	}
	r.Header.Set("X-Nomad-Token", token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return -1, err.Error(), nil
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return -1, err.Error(), nil
	}
	return resp.StatusCode, string(text), resp.Header
}

// awaitRegion waits until a request has a status, and an answer with some text in it.
func (m *testMember) awaitRegion(token, method, path, body string, status int, text string) http.Header {
	m.t.Helper()
	var head http.Header
	polltest.NoError(m.t, polltest.Deadline, func() error {
		code, got, h := m.inRegion(token, method, path, body)
		if head = h; code != status || !strings.Contains(got, text) {
			return fmt.Errorf("%d %s", code, got)
		}
		return nil
	}, "%s %s to be %d %s", method, path, status, text)
	return head
}

// regionOf starts a server with TLS and access control in a datacenter and a region of its own.
func regionOf(t *testing.T, a *wiretest.Authority, dc, region, token string) *testMember {
	t.Helper()
	m := startServer(t, "s-"+region, fmt.Sprintf(`
bootstrap = true
datacenter = %q
acl { enabled = true, default_policy = "deny", tokens { initial_management = %q } }
ports { serf_wan = 0 }
usage { enabled = false }
jobs { enabled = true, port = 0, region = %q }
`, dc, token, region)+a.RPCBlock(a.Issue("server."+dc+".consul", -time.Minute, time.Hour),
		"verify_server_hostname = true"))
	polltest.Get(t, m.wan.Pool.Ready(), "the WAN pool")
	return m
}

// TestRegions: requests for another region are answered there, by its own tokens, from one hop away at most.
func TestRegions(t *testing.T) {
	t.Parallel()
	const east, west = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"
	a := wiretest.NewAuthority(t)
	first, second := regionOf(t, a, "dc1", "east", east), regionOf(t, a, "dc2", "west", west)
	first.awaitRegion(east, "GET", "/v1/jobs", "", 200, "[]")
	second.awaitRegion(west, "GET", "/v1/jobs", "", 200, "[]")
	first.awaitRegion(east, "GET", "/v1/regions", "", 200, `["east"]`)
	first.awaitRegion(east, "GET", "/v1/jobs?region=west", "", 500, "No path to region")
	host, port := first.wan.Pool.Addr()
	joined := []string{net.JoinHostPort(fmt.Sprint(host), fmt.Sprint(port))}
	if _, err := second.wan.Pool.Join(t.Context(), joined); err != nil {
		t.Fatal(err)
	}
	first.awaitRegion(east, "GET", "/v1/regions", "", 200, `["east","west"]`)
	second.awaitRegion(west, "GET", "/v1/regions", "", 200, `["east","west"]`)
	first.awaitRegion(east, "GET", "/v1/agent/members", "", 200, `"Name":"s-west.west"`)

	// The other region judges the token; what it answers comes back whole, with its headers.
	first.awaitRegion(east, "GET", "/v1/jobs?region=west", "", 403, "Permission denied")
	head := first.awaitRegion(west, "PUT", "/v1/jobs?region=west", mockJob("far", 1), 200, "EvalID")
	if head.Get("X-Nomad-Index") == "" {
		t.Errorf("headers of a write: %v", head)
	}
	head = first.awaitRegion(west, "GET", "/v1/job/far?region=west", "", 200, `"Region":"west"`)
	if head.Get("X-Nomad-Knownleader") != "true" {
		t.Errorf("headers of a read: %v", head)
	}
	first.awaitRegion(east, "GET", "/v1/job/far", "", 404, "not found")
	// A job that names its region goes there, whoever is asked.
	named := strings.Replace(mockJob("named", 1), `{"Job":{`, `{"Job":{"Region":"west",`, 1)
	first.awaitRegion(west, "PUT", "/v1/jobs", named, 200, "EvalID")
	second.awaitRegion(west, "GET", "/v1/job/named", "", 200, `"Region":"west"`)
	first.awaitRegion(east, "PUT", "/v1/jobs", strings.Replace(named, "west", "mars", 1), 500, "No path to region")
	// "global" is what clients say for none, and that of the request counts before it.
	global := strings.Replace(strings.Replace(named, "west", "global", 1), "named", "global-job", 2)
	first.awaitRegion(east, "PUT", "/v1/jobs", global, 200, "EvalID")
	first.awaitRegion(east, "GET", "/v1/job/global-job", "", 200, `"Region":"east"`)
	first.awaitRegion(west, "PUT", "/v1/jobs?region=west", strings.Replace(named, "west", "mars", 1), 200, "EvalID")

	// A blocking query waits there, and is woken there.
	first.awaitRegion(west, "PUT", "/v1/namespace/sooner?region=west", `{"Name":"sooner"}`, 200, "")
	index := first.awaitRegion(west, "GET", "/v1/namespaces?region=west", "", 200, "sooner").Get("X-Nomad-Index")
	woken := make(chan string, 1)
	go func() {
		_, text, _ := first.inRegion(west, "GET", "/v1/namespaces?region=west&wait=20s&index="+index, "")
		woken <- text
	}()
	second.awaitRegion(west, "PUT", "/v1/namespace/later", `{"Name":"later"}`, 200, "")
	if text := polltest.Get(t, woken, "the blocking query to be woken"); !strings.Contains(text, "later") {
		t.Errorf("a blocking query: %s", text)
	}
	streamed(t, first, west)
	first.awaitRegion(west, "PUT", "/v1/operator/snapshot?region=west", "x", 500, "a server of region")

	// A region that is gone costs an error within seconds.
	_ = second.stop()
	begin := time.Now()
	code, text, _ := first.inRegion(west, "GET", "/v1/jobs?region=west", "")
	if took := time.Since(begin); code != 500 || took > 5*time.Second {
		t.Errorf("a region that is gone: %d %s after %s", code, text, took)
	}
	first.awaitRegion(east, "GET", "/v1/jobs?region=west", "", 500, "No path to region")
	first.awaitRegion(east, "GET", "/v1/jobs?region=mars", "", 500, "No path to region")
}

// streamed reads the first event of another region's stream.
func streamed(t *testing.T, m *testMember, token string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	url := "http://" + plane.Find[*jobsplane.Plane](m.doors.Planes).Addr() +
		"/v1/event/stream?region=west&index=1&topic=Job"
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Nomad-Token", token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if strings.Contains(lines.Text(), `"Topic":"Job"`) {
			return
		}
	}
	t.Errorf("no event came from the other region: %s", resp.Status)
}
