package secretsload

import (
	"context"
	"encoding/base64"
	"fmt"

	"corbel.dev/corbel/bench"
)

// RunTokens measures service tokens made below the root token.
func RunTokens(ctx context.Context, o SecretsOptions) (*bench.Result, error) {
	return runOne(ctx, "tokens", &o, func(c *VaultCluster) (bench.Row, error) {
		raw := c.Request("POST", "auth/token/create", c.Token,
			mustJSON(map[string]any{"policies": []string{"default"}, "ttl": "1h"}))
		return c.Measure(ctx, c.backend()+": service tokens created", "",
			bench.LoadSpec{Next: func(int, int64) []byte { return raw }})
	})
}

// RunPKI measures certificates issued with new EC P-256 keys, by a CA with such a key: of a role that keeps none, and
// of one that keeps all.
func RunPKI(ctx context.Context, o SecretsOptions) (*bench.Result, error) {
	return runRows(ctx, "pki", &o, func(c *VaultCluster) (rows []bench.Row, err error) {
		if err := c.enable(ctx, "mounts", "pki"); err != nil {
			return nil, err
		}
		defer c.disable(ctx, "mounts")
		role := map[string]any{"allowed_domains": "bench.example", "allow_subdomains": true, "key_type": "ec",
			"key_bits": 256, "max_ttl": "72h"}
		generate, root := "root/generate/internal", map[string]any{"common_name": "bench.example", "key_type": "ec",
			"key_bits": 256, "ttl": "87600h"}
		if err := c.Call(ctx, "POST", SecretsMount+"/"+generate, root, nil); err != nil {
			return nil, err
		}
		for _, kept := range []bool{false, true} {
			what := "not stored"
			if kept {
				what = "stored"
			}
			role["no_store"] = !kept
			if err := c.Call(ctx, "POST", SecretsMount+"/roles/bench", role, nil); err != nil {
				return nil, err
			}
			raw := c.Request("POST", SecretsMount+"/issue/bench", c.Token,
				mustJSON(map[string]string{"common_name": "a.bench.example", "ttl": "1h"}))
			row, err := c.Measure(ctx, c.backend()+": PKI issue, EC P-256, "+what, "",
				bench.LoadSpec{Next: func(int, int64) []byte { return raw }})
			if err != nil {
				return nil, err
			}
			rows = append(rows, row)
		}
		return rows, nil
	})
}

// RunTransit measures signatures with an Ed25519 key.
func RunTransit(ctx context.Context, o SecretsOptions) (*bench.Result, error) {
	return runOne(ctx, "transit", &o, func(c *VaultCluster) (bench.Row, error) {
		if err := c.enable(ctx, "mounts", "transit"); err != nil {
			return bench.Row{}, err
		}
		defer c.disable(ctx, "mounts")
		if err := c.Call(ctx, "POST", SecretsMount+"/keys/bench", map[string]string{"type": "ed25519"}, nil); err != nil {
			return bench.Row{}, err
		}
		input := base64.StdEncoding.EncodeToString(make([]byte, secretBytes))
		raw := c.Request("POST", SecretsMount+"/sign/bench", c.Token, mustJSON(map[string]string{"input": input}))
		return c.Measure(ctx, c.backend()+": transit sign, Ed25519", "",
			bench.LoadSpec{Next: func(int, int64) []byte { return raw }})
	})
}

// runOne is runRows with a single row.
func runOne(ctx context.Context, name string, o *SecretsOptions, measure func(c *VaultCluster) (bench.Row,
	error)) (*bench.Result,
	error) {
	return runRows(ctx, name, o, func(c *VaultCluster) ([]bench.Row, error) {
		row, err := measure(c)
		return []bench.Row{row}, err
	})
}

// runRows opens what is measured, measures it, and adds the floors.
func runRows(ctx context.Context, name string, o *SecretsOptions,
	measure func(c *VaultCluster) ([]bench.Row, error)) (*bench.Result, error) {
	if err := o.Complete(); err != nil {
		return nil, err
	}
	c, err := OpenVault(ctx, o)
	if err != nil {
		return nil, err
	}
	defer c.Stop()
	r := newSecretsResult(name, o)
	if r.Rows, err = measure(c); err != nil {
		return nil, err
	}
	c.note(r.Rows)
	return r, r.AddFloors(ctx, &o.Options)
}

// note gives the rows that say nothing else what an answered write outlives.
func (c *VaultCluster) note(rows []bench.Row) {
	for i := range rows {
		if rows[i].Note == "" {
			rows[i].Note = c.durability
		}
	}
}

// enable mounts an engine or auth method for the bench; side is "mounts" or "auth".
func (c *VaultCluster) enable(ctx context.Context, side, kind string) error {
	c.disable(ctx, side) // of a run that was cut short; else there is none
	if err := c.Call(ctx, "POST", "sys/"+side+"/"+SecretsMount,
		map[string]any{"type": kind, "config": map[string]string{"max_lease_ttl": "87600h"}}, nil); err != nil {
		return fmt.Errorf("enable %s: %w", kind, err)
	}
	return nil
}

func (c *VaultCluster) disable(ctx context.Context, side string) {
	// a started server is thrown away anyway
	_ = c.Call(context.WithoutCancel(ctx), "DELETE", "sys/"+side+"/"+SecretsMount, nil, nil)
}

func (c *VaultCluster) backend() string {
	if c.opts.Target != "" {
		return "target"
	}
	return c.opts.Backend
}
