package node

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/doctor"
	"corbel.dev/corbel/kit/polltest"
)

func (m *testMember) report() (r doctor.Report, problem string) {
	code, body := m.ask("GET", "/v1/doctor", "")
	if code != http.StatusOK {
		return r, body
	}
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		return r, err.Error()
	}
	return r, ""
}

// TestDoctorOfACluster: any member reports about all servers, an agent's findings reach the servers, and a server
// that is gone is named.
func TestDoctorOfACluster(t *testing.T) {
	servers := startCluster(t, 3, aclOff)
	agent := startMember(t, false, "web-7", aclOff+`retry_join = ["`+servers[0].gossip+`"]`)
	for _, m := range append(slices.Clone(servers), agent) {
		polltest.NoError(t, 30*time.Second, func() error {
			r, problem := m.report()
			if problem != "" || r.Asked < 3 || len(r.Silent) > 0 {
				return errors.New(problem + " " + strings.Join(r.Fine, "; "))
			}
			return nil
		}, "a report about three servers")
	}
	agent.Metrics.Counter("xds.nacks").Add(3)
	polltest.NoError(t, 60*time.Second, func() error {
		r, problem := servers[1].report()
		for _, f := range r.Findings {
			if f.Code == "config-refused" && f.Member == "web-7" {
				return nil
			}
		}
		return errors.New(problem + " not told yet")
	}, "the agent's finding at a server")
	servers[2].stop()
	polltest.NoError(t, 60*time.Second, func() error {
		r, problem := servers[0].report()
		for _, s := range r.Silent {
			if s.Member == servers[2].Cfg.Node.Name && len(r.Findings) > 0 && r.Findings[0].Code == "member-silent" {
				return nil
			}
		}
		return errors.New(problem + " not named")
	}, "the server that is gone")
}

// TestDoctorNeedsARight: reports are for operators.
func TestDoctorNeedsARight(t *testing.T) {
	m := startServer(t, "s1", `acl { enabled = true, default_policy = "deny", tokens { initial_management = `+
		`"3f0c0ffe-0000-4000-8000-000000000001" } } bootstrap_expect = 1`)
	m.awaitAsk("GET", "/v1/status/leader", "", http.StatusOK, ":")
	for _, path := range []string{"/v1/doctor", "/v1/doctor/evidence"} {
		if code, body := m.ask("GET", path, ""); code != http.StatusForbidden {
			t.Errorf("%s without a token: %d %s", path, code, body)
		}
		polltest.NoError(t, 30*time.Second, func() error {
			req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+m.http+path, nil)
			if err != nil {
				return err
			}
			req.Header.Set("X-Consul-Token", "3f0c0ffe-0000-4000-8000-000000000001")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				return errors.New(resp.Status)
			}
			return nil
		}, "%s", path)
	}
}
