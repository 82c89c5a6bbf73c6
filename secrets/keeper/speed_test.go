package keeper

import (
	"context"
	"fmt"
	"testing"

	"corbel.dev/corbel/secrets"
)

// ask is a request and its encoded answer, as a front door makes them.
func (h *house) ask(buf []byte, op secrets.Operation, path, token string, body []byte) []byte {
	q := &secrets.Request{ID: "3f2a0a5e-0000-4000-8000-000000000000", Op: op, Path: path,
		Caller: secrets.Caller{Token: token}, Body: body}
	r, err := h.Handle(context.Background(), q)
	if err != nil {
		h.t.Fatalf("%v %s: %v", op, path, err)
	}
	return r.Envelope(buf[:0], q, true)
}

// readers is a house with secrets and a token that may read them, by two policies.
func readers(t testing.TB) (h *house, token string) {
	h = newHouse(t)
	h.ok(secrets.Update, "sys/policies/acl/reader", `{"policy":"path \"secret/*\" { capabilities = [\"read\",`+
		`\"create\",\"update\"] }\npath \"kv2/data/+\" { capabilities = [\"read\",\"create\",\"update\"] }"}`)
	h.ok(secrets.Update, "secret/a", `{"password":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}`)
	h.ok(secrets.Update, "kv2/data/a", `{"data":{"password":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}}`)
	return h, h.token(`{"policies":["reader"],"ttl":"1h"}`)
}

func BenchmarkRequests(b *testing.B) {
	h, token := readers(b)
	buf := make([]byte, 0, 4096)
	for _, c := range []struct {
		name string
		do   func(i int)
	}{
		{"read v1", func(int) { buf = h.ask(buf, secrets.Read, "secret/a", token, nil) }},
		{"read v2", func(int) { buf = h.ask(buf, secrets.Read, "kv2/data/a", token, nil) }},
		{"write v1", func(i int) {
			buf = h.ask(buf, secrets.Update, fmt.Sprint("secret/w", i%1000), token,
				[]byte(`{"password":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}`))
		}},
		{"write v2", func(i int) {
			buf = h.ask(buf, secrets.Update, fmt.Sprint("kv2/data/w", i%1000), token,
				[]byte(`{"data":{"password":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}}`))
		}},
		{"token", func(int) {
			buf = h.ask(buf, secrets.Update, "auth/token/create", h.root, []byte(`{"policies":["default"],"ttl":"1h"}`))
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				c.do(i)
				i++
			}
		})
	}
}

// A read from memory makes few allocations: its request, its task and its answer.
func TestReadAllocations(t *testing.T) {
	h, token := readers(t)
	buf := make([]byte, 0, 4096)
	for path, most := range map[string]float64{"secret/a": 12, "kv2/data/a": 24} {
		n := testing.AllocsPerRun(200, func() { buf = h.ask(buf, secrets.Read, path, token, nil) })
		if n > most && !raced {
			t.Errorf("reading %s makes %v allocations, more than %v", path, n, most)
		}
	}
}

// BenchmarkRevokePrefix is what ending one of many logins costs, as a revocation of their prefix does it.
func BenchmarkRevokePrefix(b *testing.B) {
	h := newHouse(b)
	const many = 5000
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		for range many {
			h.token(`{"policies":["default"],"ttl":"1h","no_parent":true}`)
		}
		b.StartTimer()
		h.ok(secrets.Update, "sys/leases/revoke-prefix/auth/token/create", ``)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/many, "ns/token")
}

// BenchmarkSweep is what looking for what has ended costs each second, where nothing has, with many tokens that will.
func BenchmarkSweep(b *testing.B) {
	h := newHouse(b)
	for range 20_000 {
		h.token(`{"policies":["default"],"ttl":"1h","no_parent":true}`)
	}
	b.ReportAllocs()
	for b.Loop() {
		if n, err := h.tokens.Expire(b.Context()); n != 0 || err != nil {
			b.Fatal(n, err)
		}
	}
}
