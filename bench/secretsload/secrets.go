package secretsload

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"corbel.dev/corbel/bench"
)

// KVSecretsOptions are the options of the published comparison of storages.
type KVSecretsOptions struct {
	SecretsOptions
	// Backends are measured one after the other; empty is SecretsOptions.Backend alone.
	Backends []string
	// KV is the version of the store: 1 or 2.
	KV int
	// Names are how many distinct secrets are written, Reads how many of them are read.
	Names, Reads int
}

// secretBytes is the size of a secret's value in the published scripts.
const secretBytes = 100

func (o *KVSecretsOptions) complete() error {
	if o.KV == 0 {
		o.KV = 1
	}
	if o.KV != 1 && o.KV != 2 {
		return fmt.Errorf("--kv: must be 1 or 2, not %d", o.KV)
	}
	if o.Names == 0 {
		o.Names = 10_000
	}
	if o.Reads == 0 {
		o.Reads = min(1000, o.Names)
	}
	if o.Names < 1 || o.Reads < 1 || o.Reads > o.Names {
		return fmt.Errorf("--names, --reads: must be at least 1, and no more are read than were written (%d, %d)",
			o.Names, o.Reads)
	}
	if o.Duration == 0 {
		o.Duration = 30 * time.Second
	}
	if len(o.Backends) == 0 {
		o.Backends = []string{o.Backend}
	}
	if o.Target != "" {
		o.Backends = o.Backends[:1]
	}
	for _, o.Backend = range o.Backends {
		if err := o.SecretsOptions.Complete(); err != nil {
			return err
		}
	}
	return nil
}

// ParseBackends reads a list of storages with commas; "all" is each of them.
func ParseBackends(text string) []string {
	if text == "all" {
		return SecretsBackends
	}
	return strings.Split(text, ",")
}

// RunSecrets measures writes of random secrets and reads of some of them, over the storages asked for.
func RunSecrets(ctx context.Context, o KVSecretsOptions) (*bench.Result, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	r := newSecretsResult("secrets", &o.SecretsOptions)
	if len(o.Backends) > 1 {
		r.Target = "a server started by the bench on each of " + strings.Join(o.Backends, ", ")
	}
	for _, backend := range o.Backends {
		one := o
		one.Backend = backend
		if what := one.lacks(); what != "" && len(o.Backends) > 1 {
			r.Rows = append(r.Rows, bench.Row{What: fmt.Sprintf("%s: KV v%d write", backend, o.KV),
				Note: "NOT RUN: needs " + what})
			continue
		}
		if err := addSecrets(ctx, r, &one); err != nil {
			return nil, fmt.Errorf("%s: %w", backend, err)
		}
	}
	return r, r.AddFloors(ctx, &o.Options)
}

const SecretsMount = "corbel-bench"

func addSecrets(ctx context.Context, r *bench.Result, o *KVSecretsOptions) error {
	c, err := OpenVault(ctx, &o.SecretsOptions)
	if err != nil {
		return err
	}
	defer c.Stop()
	_ = c.Call(ctx, "DELETE", "sys/mounts/"+SecretsMount, nil, nil) // of a run that was cut short; else there is none
	mount := map[string]any{"type": "kv", "options": map[string]string{"version": fmt.Sprint(o.KV)}}
	if err := c.Call(ctx, "POST", "sys/mounts/"+SecretsMount, mount, nil); err != nil {
		return err
	}
	defer func() { // a target is left as it was
		_ = c.Call(context.WithoutCancel(ctx), "DELETE", "sys/mounts/"+SecretsMount, nil, nil)
	}()
	body := SecretBody(o.KV)
	puts, gets := make([][]byte, o.Names), make([][]byte, o.Reads)
	for i := range puts {
		puts[i] = c.Request("PUT", SecretPath(o.KV, i), c.Token, body)
		if i < o.Reads {
			gets[i] = c.Request("GET", SecretPath(o.KV, i), c.Token, nil)
		}
	}
	pick := func(list [][]byte) func(int, int64) []byte {
		return func(int, int64) []byte { return list[rand.IntN(len(list))] }
	}
	for _, part := range []struct {
		what  string
		list  [][]byte
		floor string
	}{{"write", puts, ""}, {"read", gets, bench.FloorHTTP}} {
		if part.what == "read" { // no read misses
			if err := c.Fill(ctx, puts[:o.Reads]); err != nil {
				return err
			}
		}
		row, err := c.Measure(ctx, fmt.Sprintf("%s: KV v%d %s", c.backend(), o.KV, part.what), part.floor,
			bench.LoadSpec{Next: pick(part.list)})
		if err != nil {
			return err
		}
		row.Note = c.durability
		r.Rows = append(r.Rows, row)
	}
	return nil
}

func SecretPath(kv, i int) string {
	data := ""
	if kv == 2 {
		data = "data/"
	}
	return fmt.Sprintf("%s/%ssecret-%d", SecretsMount, data, i)
}

func SecretBody(kv int) []byte {
	raw := make([]byte, secretBytes)
	for i := range raw {
		raw[i] = byte(rand.IntN(256))
	}
	text := base64.StdEncoding.EncodeToString(raw)[:secretBytes]
	body := fmt.Appendf(nil, `{"value":%q}`, text)
	if kv == 2 {
		body = fmt.Appendf(nil, `{"data":%s}`, body)
	}
	return body
}

// Fill sends each request once.
func (c *VaultCluster) Fill(ctx context.Context, list [][]byte) error {
	_, err := bench.RunTimes(ctx, c.addr, c.opts.Connections, len(list), success, func(i int) []byte { return list[i] })
	return err
}

// WriteTable writes the rows of several storages side by side, as the published article has them.
func WriteTable(r *bench.Result, w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%-12s %-7s %-6s %12s %10s %10s %10s  %s\n", "storage", "kv", "what", "per second", "p50 ms", "p99 ms",
		"max ms", "durability")
	for _, row := range r.Rows {
		backend, rest, ok := strings.Cut(row.What, ": ")
		words := strings.Fields(rest)
		if !ok || len(words) < 3 {
			continue
		}
		fmt.Fprintf(&b, "%-12s %-7s %-6s %12.0f %10.2f %10.2f %10.2f  %s\n", backend, words[1], words[2], row.PerSecond,
			row.Millis["p50"], row.Millis["p99"], row.Millis["max"], row.Note)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// mustJSON encodes what cannot fail: maps of strings and numbers.
func mustJSON(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}
