package acltoken

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/engine/enginetest"
)

// peer answers as a Consul and a Nomad do, in the parts that are asked; acl_tokens.txtar has the real ones of Corbel.
type peer struct {
	mu     sync.Mutex
	tokens map[string]string // names by accessor
	first  string            // what bootstrap gives, once
	breaks bool              // tokens are made, and the answer gets lost
	told   []string          // bodies of what was made
}

func (p *peer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	consul := r.Header.Get(consulHeader) != ""
	if strings.HasSuffix(r.URL.Path, "/bootstrap") {
		if p.first == "" {
			http.Error(w, "ACL bootstrap no longer allowed", http.StatusForbidden)
			return
		}
		fmt.Fprintf(w, `{"SecretID":%q}`, p.first)
		p.first = ""
		return
	}
	if r.Header.Get(consulHeader) != "root" && r.Header.Get(nomadHeader) != "root" {
		http.Error(w, "Permission denied", http.StatusForbidden)
		return
	}
	accessor := strings.TrimPrefix(r.URL.Path, "/v1/acl/token/")
	switch {
	case r.URL.Path == "/v1/acl/token":
		var in struct{ AccessorID, Description, Name string }
		body, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(body, &in) != nil {
			http.Error(w, "bad body", http.StatusBadRequest)
			return
		}
		p.told = append(p.told, string(body))
		if in.AccessorID == "" {
			in.AccessorID = fmt.Sprint("accessor-", len(p.told))
		}
		p.tokens[in.AccessorID] = in.Description + in.Name
		if p.breaks {
			http.Error(w, "rpc error", http.StatusInternalServerError)
			return
		}
		fmt.Fprintf(w, `{"AccessorID":%q,"SecretID":"secret"}`, in.AccessorID)
	case r.URL.Path == "/v1/acl/tokens":
		var list []map[string]string
		for id, name := range p.tokens {
			list = append(list, map[string]string{"AccessorID": id, "Name": name})
		}
		_ = json.NewEncoder(w).Encode(list)
	case accessor == "self":
		fmt.Fprint(w, `{}`)
	case r.Method == http.MethodDelete && p.tokens[accessor] == "" && consul:
		http.Error(w, "Cannot find token to delete", http.StatusNotFound)
	case r.Method == http.MethodDelete && p.tokens[accessor] == "":
		http.Error(w, "no such token", http.StatusBadRequest)
	case r.Method == http.MethodDelete:
		delete(p.tokens, accessor)
		fmt.Fprint(w, "true")
	}
}

func (p *peer) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.tokens)
}

type body = map[string]any

func newPeer(t *testing.T) (*peer, string) {
	t.Helper()
	p := &peer{tokens: map[string]string{}}
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	return p, s.URL
}

func ttls() (standard, longest time.Duration) { return time.Hour, 24 * time.Hour }

// ended revokes a lease twice, as after a crash.
func ended(t *testing.T, d *enginetest.Desk, resp *secrets.Response) {
	t.Helper()
	for range 2 {
		if _, err := d.Engine.(engine.Leaser).Revoke(t.Context(), d.Store,
			engine.Lease{Internal: resp.Lease.Internal}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestConsul(t *testing.T) {
	p, at := newPeer(t)
	d := enginetest.New(t, Consul(ttls), "consul/")
	d.Refused(errkind.Invalid, "not found", secrets.Read, "creds/a", nil)
	d.Refused(errkind.Invalid, "address", secrets.Update, "config/access", body{"token": "root"})
	d.Refused(errkind.Invalid, "address", secrets.Update, "config/access", body{"address": "x", "scheme": "ftp"})
	d.Refused(errkind.Invalid, "ca_cert", secrets.Update, "config/access",
		body{"address": at, "token": "x", "ca_cert": "x"})
	d.Refused(errkind.Invalid, "no longer allowed", secrets.Update, "config/access", body{"address": at})
	p.first = "root"
	d.OK(secrets.Update, "config/access", body{"address": strings.TrimPrefix(at, "http://")})
	if got := fmt.Sprint(d.OK(secrets.Read, "config/access", nil)); strings.Contains(got, "root") {
		t.Errorf("the token is shown: %s", got)
	}
	d.Refused(errkind.Invalid, "token", secrets.Update, "config/access", body{"address": "evil.example:8500"})

	d.Refused(errkind.Invalid, "consul_policies", secrets.Update, "roles/none", body{})
	d.Refused(errkind.Invalid, "node_identities", secrets.Update, "roles/bad", body{"node_identities": "n"})
	d.Refused(errkind.Invalid, "partition", secrets.Update, "roles/bad", body{"consul_policies": "a", "partition": "x"})
	d.Refused(errkind.Invalid, "ttl", secrets.Update, "roles/bad",
		body{"consul_policies": "a", "ttl": "2h", "max_ttl": "1h"})
	d.OK(secrets.Update, "roles/a", body{"consul_policies": "reader,writer", "service_identities": "web:dc1,db",
		"node_identities": "n1:dc1", "ttl": "10m", "max_ttl": "48h", "local": true})
	if got := d.OK(secrets.Read, "roles/a", nil); got["ttl"] != 600.0 || len(got["consul_policies"].([]any)) != 2 {
		t.Errorf("%v", got)
	}
	resp, err := d.Ask(secrets.Read, "creds/a", nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Lease.TTL != 10*time.Minute || resp.Lease.MaxTTL != 24*time.Hour || !strings.Contains(string(resp.Data),
		`"token":"secret"`) {
		t.Errorf("%s %v", resp.Data, resp.Lease)
	}
	for _, want := range []string{`{"Name":"reader"}`, `"ServiceName":"web","Datacenters":["dc1"]`, `"Datacenter":"dc1"`,
		`"Local":true`} {
		if !strings.Contains(p.told[0], want) {
			t.Errorf("%s is not in %s", want, p.told[0])
		}
	}
	ended(t, d, resp)
	if p.count() != 0 {
		t.Error("the token is there after its lease")
	}
	d.OK(secrets.Update, "config/access", body{"token": "ended"})
	if _, err := d.Engine.(engine.Leaser).Revoke(t.Context(), d.Store,
		engine.Lease{Internal: resp.Lease.Internal}); err == nil {
		t.Error("a mount whose own token ended says that it ended another")
	}
	d.OK(secrets.Delete, "roles/a", nil)
	d.Refused(errkind.NotFound, "", secrets.List, "roles/", nil)
}

func TestNomad(t *testing.T) {
	p, at := newPeer(t)
	d := enginetest.New(t, Nomad(ttls), "nomad/")
	d.OK(secrets.Update, "config/access", body{"address": at, "token": "root", "max_token_name_length": 64})
	d.OK(secrets.Update, "config/lease", body{"ttl": "5m", "max_ttl": "1h"})
	d.Refused(errkind.Invalid, "ttl", secrets.Update, "config/lease", body{"ttl": "2h"})
	d.Refused(errkind.Invalid, "policies", secrets.Update, "role/none", body{})
	d.Refused(errkind.Invalid, "type", secrets.Update, "role/bad", body{"type": "root"})
	d.Refused(errkind.Invalid, "policies", secrets.Update, "role/bad", body{"type": "management", "policies": "a"})
	d.OK(secrets.Update, "role/ci", body{"policies": "deployers"})
	resp, err := d.Ask(secrets.Read, "creds/ci", nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Lease.TTL != 5*time.Minute || resp.Lease.MaxTTL != time.Hour || !strings.Contains(string(resp.Data),
		`"secret_id":"secret"`) {
		t.Errorf("%s %v", resp.Data, resp.Lease)
	}
	ended(t, d, resp)
	if p.count() != 0 {
		t.Error("the token is there after its lease")
	}
	d.OK(secrets.Update, "config/access", body{"address": "http://127.0.0.1:1", "token": "root"})
	d.Refused(errkind.Unavailable, "cannot be reached", secrets.Read, "creds/ci", nil)
}

// TestCrash: a token that was made, and whose answer got lost, is ended by what was written down.
func TestCrash(t *testing.T) {
	for kind, e := range map[string]*Engine{"consul": Consul(ttls), "nomad": Nomad(ttls)} {
		p, at := newPeer(t)
		d := enginetest.New(t, e, kind+"/")
		d.OK(secrets.Update, "config/access", body{"address": at, "token": "root"})
		d.OK(secrets.Update, e.plane.roles()+"/a", body{"consul_policies": "x", "policies": "x"})
		p.breaks = true
		d.Refused(errkind.Unavailable, "refused", secrets.Read, "creds/a", nil)
		if p.count() != 1 {
			t.Fatalf("%s: %d tokens", kind, p.count())
		}
		d.Tend()
		if p.count() != 1 {
			t.Errorf("%s: ended while the request might go on", kind)
		}
		d.Wait(walWait + time.Second)
		d.Tend()
		if p.count() != 0 {
			t.Errorf("%s: the token is there", kind)
		}
		if left, err := d.Store.List(t.Context(), walPrefix, "", 0); err != nil || len(left) > 0 {
			t.Errorf("%s: %v, %v", kind, left, err)
		}
	}
}
