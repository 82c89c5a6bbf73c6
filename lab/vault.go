package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/client"
	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/testport"
)

// vault is the secrets plane of a server.
type vault struct {
	addr  string
	token string // the root's
	c     *client.Client
}

// secretsHCL configures the secrets plane of a server at two free ports on a storage.
func secretsHCL(storage string) (hcl, addr string, err error) {
	ports, err := testport.Free(2)
	if err != nil {
		return "", "", err
	}
	addr = "127.0.0.1:" + strconv.Itoa(ports[0])
	return fmt.Sprintf(`secrets {
  %s
  listener "tcp" {
    address = %q
    cluster_address = "127.0.0.1:%d"
    tls_disable = true
  }
  api_addr = "http://%s"
  disable_mlock = true
}`, storage, addr, ports[1], addr), addr, nil
}

// withSecrets starts a server of one with a secrets plane on a storage, initialized and unsealed, as the cluster that
// is asked.
func (b *environment) withSecrets(ctx context.Context, storage string) error {
	hcl, addr, err := secretsHCL(storage)
	if err != nil {
		return err
	}
	if b.servers, err = b.cluster(ctx, "secrets", 1, hcl); err != nil {
		return err
	}
	b.vault = &vault{addr: addr}
	if b.vault.c, err = client.New(client.Config{Address: "http://" + addr, Timeout: 10 * time.Second,
		Transport: header{"X-Vault-Token", &b.vault.token}}); err != nil {
		return err
	}
	b.later(b.vault.c.Close)
	return b.vault.open(ctx)
}

// open initializes and unseals; the port takes some moments to be served.
func (v *vault) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	var first struct {
		Keys  []string `json:"keys"`
		Token string   `json:"root_token"`
	}
	for {
		err := v.call(ctx, "PUT", "sys/init", map[string]int{"secret_shares": 1, "secret_threshold": 1}, &first)
		if err == nil {
			break
		}
		if spawn.Sleep(ctx, 100*time.Millisecond) != nil {
			return fmt.Errorf("the secrets plane could not be initialized: %w", err)
		}
	}
	v.token = first.Token
	if err := v.call(ctx, "PUT", "sys/unseal", map[string]string{"key": first.Keys[0]}, nil); err != nil {
		return err
	}
	for {
		err := v.call(ctx, "POST", "sys/mounts/lab",
			map[string]any{"type": "kv", "options": map[string]string{"version": "1"}}, nil)
		if err == nil {
			return nil
		}
		if spawn.Sleep(ctx, 100*time.Millisecond) != nil {
			return fmt.Errorf("the secrets plane does not become active: %w", err)
		}
	}
}

// call makes one request. An answer outside 2xx is an error.
func (v *vault) call(ctx context.Context, method, path string, body, into any) error {
	resp, err := v.c.Do(ctx, method, "/v1/"+path, nil, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if into == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// as is the plane seen by another token.
func (v *vault) as(token string) (*vault, error) {
	o := &vault{addr: v.addr, token: token}
	var err error
	o.c, err = client.New(client.Config{Address: "http://" + v.addr, Timeout: 10 * time.Second,
		Transport: header{"X-Vault-Token", &o.token}})
	return o, err
}

// many makes n calls, some at a time, and returns the first error.
func many(ctx context.Context, n, atOnce int, call func(i int) error) error {
	var next atomic.Int64
	errs := make(chan error, atOnce)
	for range atOnce {
		go func() { // ends when all were made: each is awaited below
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					break
				}
				if err := call(i); err != nil {
					next.Store(int64(n))
					errs <- err
					return
				}
			}
			errs <- ctx.Err()
		}()
	}
	var first error
	for range atOnce {
		if err := <-errs; first == nil {
			first = err
		}
	}
	return first
}

// tokens makes tokens that can be renewed, each with a plane of its own to renew it at.
func (b *environment) tokens(ctx context.Context, n int) ([]*vault, error) {
	out := make([]*vault, n)
	err := many(ctx, n, 16, func(i int) error {
		var made struct {
			Auth struct {
				Token string `json:"client_token"`
			} `json:"auth"`
		}
		err := b.vault.call(ctx, "POST", "auth/token/create", map[string]any{"ttl": "1h", "no_parent": true,
			"policies": []string{"default"}}, &made)
		if err == nil {
			out[i], err = b.vault.as(made.Auth.Token)
		}
		return err
	})
	if err == nil {
		b.later(func() {
			for _, v := range out {
				v.c.Close()
			}
		})
	}
	return out, err
}

// ask is one call of a list.
type ask struct {
	method, path string
	body         any
}

func (v *vault) calls(ctx context.Context, all ...ask) error {
	for _, a := range all {
		if err := v.call(ctx, a.method, a.path, a.body, nil); err != nil {
			return err
		}
	}
	return nil
}

// certificates makes leases that cost the storage alone when they are revoked. They are over after a moment, and kept
// from being revoked: as before the end of a maintenance.
func (b *environment) certificates(ctx context.Context, n int) error {
	err := b.vault.calls(ctx, ask{"POST", "sys/mounts/pki", map[string]string{"type": "pki"}},
		ask{"POST", "pki/root/generate/internal", map[string]string{"common_name": "lab", "key_type": "ed25519",
			"ttl": "24h"}},
		ask{"POST", "pki/roles/lab", map[string]any{"allow_any_name": true, "enforce_hostnames": false, "key_type": "ed25519",
			"generate_lease": true, "ttl": "4s", "max_ttl": "1h"}},
		ask{"POST", "sys/leases/revocation/pause", mountOf("pki")})
	if err != nil {
		return err
	}
	return many(ctx, n, 32, func(i int) error {
		return b.vault.call(ctx, "POST", "pki/issue/lab", map[string]string{"common_name": fmt.Sprintf("host-%d", i)}, nil)
	})
}

// logins makes roles of a PostgreSQL that are to be revoked as soon as the maintenance of their database is over.
func (b *environment) logins(ctx context.Context, n int, url string) error {
	err := b.vault.calls(ctx, ask{"POST", "sys/mounts/database", map[string]string{"type": "database"}},
		ask{"POST", "database/config/lab", map[string]any{"plugin_name": "postgresql-database-plugin", "allowed_roles": "lab",
			"connection_url": url, "max_open_connections": 32}},
		ask{"POST", "database/roles/lab", map[string]any{"db_name": "lab", "default_ttl": "1h",
			"creation_statements": `CREATE ROLE "{{name}}" WITH LOGIN PASSWORD '{{password}}' VALID UNTIL '{{expiration}}'`}},
		ask{"POST", "sys/leases/revocation/pause", mountOf("database")})
	if err != nil {
		return err
	}
	if err := many(ctx, n, 32, func(int) error {
		return b.vault.call(ctx, "GET", "database/creds/lab", nil, nil)
	}); err != nil {
		return err
	}
	return b.vault.call(ctx, "PUT", "sys/leases/revoke-prefix/database/creds/lab", map[string]bool{"sync": false}, nil)
}

func mountOf(path string) map[string]string { return map[string]string{"mount": path} }

// storm lets begin what was kept back.
func (b *environment) storm(ctx context.Context, mount string) error {
	return b.vault.call(ctx, "POST", "sys/leases/revocation/resume", mountOf(mount), nil)
}

// writing is a load of the secrets plane: writes and reads of secrets.
func writing(b *environment) []stream {
	return []stream{
		{workers: 3, every: 25 * time.Millisecond, send: func(ctx context.Context, _ *client.Client, worker, n int) error {
			return b.vault.call(ctx, "PUT", fmt.Sprintf("lab/%d/%d", worker, n%100), map[string]int{"n": n}, nil)
		}},
		{workers: 3, every: 25 * time.Millisecond, send: func(ctx context.Context, _ *client.Client, worker, n int) error {
			return b.vault.call(ctx, "GET", fmt.Sprintf("lab/%d/%d", worker, n%100), nil, nil)
		}},
	}
}

// renewing is a herd: each token is renewed again and again.
func renewing(herd []*vault) stream {
	return stream{workers: len(herd), every: 50 * time.Millisecond, send: func(ctx context.Context, _ *client.Client,
		worker, _ int) error {
		return herd[worker].call(ctx, "POST", "auth/token/renew-self", nil, nil)
	}}
}
