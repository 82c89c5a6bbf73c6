package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const tokensJob = `
job "keys" {
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "echo $$ $VAULT_TOKEN; exec sleep 100000"]
      }
      identity {
        name        = "own"
        aud         = ["somebody"]
        file        = true
        ttl         = "40s"
        change_mode = "noop"
      }
      vault {
        role        = "short"
        change_mode = "restart"
      }
    }
    task "beside" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "echo $$ $VAULT_TOKEN; exec sleep 100000"]
      }
      vault {
        role = "long"
      }
    }
  }
}
`

// lookup is when a token ends, as the secrets plane knows it: the zero time when it does not know the token.
func (r *jobsRig) lookup(token string) (expires time.Time) {
	r.Helper()
	r.await("an answer about a token", func() bool {
		c := r.command("vault", "token", "lookup", "-format=json", token)
		c.Env = append(c.Env, "VAULT_ADDR=http://127.0.0.1:8200", "VAULT_TOKEN=root")
		c.Stdout, c.Stderr = nil, nil
		out, err := c.CombinedOutput()
		if err != nil {
			return strings.Contains(string(out), "403") || strings.Contains(string(out), "bad token")
		}
		var s struct {
			Data struct {
				Expires time.Time `json:"expire_time"`
			}
		}
		if err := json.Unmarshal(out, &s); err != nil {
			return false
		}
		expires = s.Data.Expires
		return true
	})
	return expires
}

// TestJobsTokens: the agent is killed and started again; its tasks run on with the tokens that they were started with,
// which the new process renews, and gives back when the tasks are over.
func TestJobsTokens(t *testing.T) {
	if !apart(t) {
		return
	}
	layCables(t)
	r := &jobsRig{meshRig: emptyMeshRig(t, "")}
	r.http, r.jobs = fmt.Sprintf("http://127.0.0.1:%d", r.port("http")), "http://127.0.0.1:4646"
	t.Setenv("NOMAD_ADDR", r.jobs)
	write := func(name, text string) string {
		file := filepath.Join(r.dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	write("dev.hcl", "jobs {\n agent {\n  enabled = false\n }\n}\n")
	r.startDev()
	config := write("agent.hcl", "jobs {\n agent {\n  enabled = true\n  raw_exec = true\n"+
		"  secrets_address = \"http://127.0.0.1:8200\"\n  denied_users = [\"nobody\"]\n }\n}\nacl {\n enabled = false\n}\n")
	var agent *exec.Cmd
	start := func() {
		agent = r.command("agent", "--node", "a1", "--data-dir", filepath.Join(r.dir, "a1"), "--bind", "127.0.0.1",
			"--http-port", fmt.Sprint(r.port("a http")), "--dns-port", "-1", "--server-port", fmt.Sprint(r.port("a rpc")),
			"--serf-lan-port", fmt.Sprint(r.port("a gossip")), "--config-file", config, "--retry-join",
			fmt.Sprintf("127.0.0.1:%d", r.port("gossip")))
		if err := agent.Start(); err != nil {
			t.Fatal(err)
		}
		r.all = append(r.all, agent)
	}
	start()
	r.await("the agent's node is ready", func() bool { return strings.Contains(r.get("/v1/nodes"), `"Status":"ready"`) })
	setup := `set -e
export VAULT_ADDR=http://127.0.0.1:8200 VAULT_TOKEN=root PATH=` + binDir + `:$PATH
corbel vault auth enable -path=jwt-nomad jwt
again() { n=0; until "$@"; do n=$((n+1)); test $n -lt 60; sleep 1; done; }
again corbel vault write auth/jwt-nomad/config jwks_url=` + r.jobs + `/.well-known/jwks.json jwt_supported_algs=RS256
for role in short:90 long:3600; do
  corbel vault write auth/jwt-nomad/role/${role%:*} role_type=jwt bound_audiences=vault.io user_claim=nomad_job_id \
    token_policies=default token_period=${role#*:}s
done`
	sh(t, setup)
	a := r.run("keys", tokensJob)
	// first is what a task was started as: its process and its token.
	first := func(task string) (pid, token string) {
		t.Helper()
		r.await(task+" says who it is", func() bool {
			c := r.command("allocs", "logs", a.ID, task)
			c.Stdout = nil
			out, err := c.Output()
			f := strings.Fields(string(out))
			if err != nil || len(f) != 2 {
				return false
			}
			pid, token = f[0], f[1]
			return true
		})
		return pid, token
	}
	pid, short := first("t")
	_, long := first("beside")
	secrets := filepath.Join(r.dir, "a1", "jobs", "alloc", a.ID, "t", "secrets")
	identity, err := os.ReadFile(filepath.Join(secrets, "nomad_own.jwt"))
	if err != nil {
		t.Fatal(err)
	}
	expires := r.lookup(short)
	if expires.IsZero() || r.lookup(long).IsZero() {
		t.Fatal("the tasks' tokens are not known")
	}

	_ = agent.Process.Kill()
	_ = agent.Wait()
	if _, err := os.Stat("/proc/" + pid); err != nil {
		t.Fatal("the task ended with the agent: ", err)
	}
	start()
	r.await("the token is renewed by the next process", func() bool {
		now := r.lookup(short)
		if now.IsZero() {
			t.Fatal("the token has ended")
		}
		return now.After(expires)
	})
	r.await("the identity is another one", func() bool {
		text, err := os.ReadFile(filepath.Join(secrets, "nomad_own.jwt"))
		return err == nil && string(text) != string(identity)
	})
	if text, err := os.ReadFile(filepath.Join(secrets, "vault_token")); err != nil || string(text) != short {
		t.Errorf("another token: %s %v", text, err)
	}
	if again, token := first("t"); again != pid || token != short {
		t.Errorf("the task was started again: %s with %s", again, token)
	}
	r.await("the servers hear of it", func() bool { return strings.Contains(r.get("/v1/nodes"), `"Status":"ready"`) })
	r.stop("keys")
	r.await("tokens are given back", func() bool {
		return r.lookup(short).IsZero() && r.lookup(long).IsZero()
	})
}
