package statestore

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"corbel.dev/corbel/catalog"
)

func BenchmarkApplyKVSet(b *testing.B) {
	keys := make([]string, 100_000)
	s := Empty()
	for i := range keys {
		keys[i] = fmt.Sprintf("service/%03d/key-%05d", i%500, i)
	}
	for i := 0; i < len(keys); i += 1000 {
		var batch []catalog.Command
		for _, k := range keys[i : i+1000] {
			batch = append(batch, set(k, "value"))
		}
		s, _, _ = s.Apply(batch)
	}
	batch := make([]catalog.Command, 100)
	for i := range batch {
		batch[i] = &catalog.KV{Verb: catalog.KVSet}
	}
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		p := &batch[n%100].(*catalog.KV).Pair
		p.Key, p.Value = keys[rand.IntN(len(keys))], fmt.Appendf(nil, "%d", n)
		if n++; n%100 == 0 {
			s, _, _ = s.Apply(batch)
		}
	}
}

func BenchmarkApplyRegister(b *testing.B) {
	s := fleet(b, 1000, 6, 3)
	batch := make([]catalog.Command, 100)
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		i := rand.IntN(1000)
		batch[n%100] = &catalog.Register{Node: catalog.Node{Name: fmt.Sprintf("node-%05d.example.internal", i)},
			SkipNodeUpdate: true,
			Service: &catalog.Service{ID: fmt.Sprint("new-", n%50), Name: fmt.Sprintf("svc-%03d", n%600), Port: n,
				Address: "10.0.0.1"}}
		if n++; n%100 == 0 {
			s, _, _ = s.Apply(batch)
		}
	}
}

// BenchmarkFleet reads 10,000 nodes, 60,000 services and 40,000 checks from a
// snapshot and reports the memory that they take.
func BenchmarkReadStateFleet(b *testing.B) {
	var raw bytes.Buffer
	if _, err := fleet(b, 10_000, 6, 3).WriteTo(&raw); err != nil {
		b.Fatal(err)
	}
	before := heap()
	s, err := ReadState(bytes.NewReader(raw.Bytes()))
	if err != nil {
		b.Fatal(err)
	}
	bytesPerObject := float64(heap()-before) / float64(s.Counts().Nodes+s.Counts().Instances+s.Counts().Checks)
	for b.Loop() {
		if _, err = ReadState(bytes.NewReader(raw.Bytes())); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(bytesPerObject, "B/object")
	b.ReportMetric(float64(raw.Len())/1e6, "MB")
}

func BenchmarkKVPrefixIndex(b *testing.B) {
	s := Empty()
	for i := range 100_000 {
		s, _, _ = s.Apply([]catalog.Command{set(fmt.Sprintf("a/%03d/key-%05d", i%300, i), "v")})
	}
	b.ReportAllocs()
	for b.Loop() {
		s.KVPrefixIndex("a")
		s.KVPrefixIndex("a/007/")
	}
}
