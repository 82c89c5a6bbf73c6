package ingest

import (
	"context"
	"math/bits"

	"github.com/cespare/xxhash/v2"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/monitor/frame"
)

// An agent sends its entity and the check's whole configuration with every result. Between servers that goes once:
// afterwards a result goes as a Brief, a sixth of the size, which names both by their sums. The owner compares these
// with what it has, so that a brief is taken as the event would have been, or not at all; it remembers nothing for
// that, and the sender only guesses what the owner has.

// ErrWhole is the answer to a brief of which the owner does not know the rest: the event itself is to be sent.
var ErrWhole = errkind.New(errkind.Conflict, "the check's configuration or its entity is not known here")

// AppendBrief writes what is new in an event with a check behind b, and returns what the rest is known by.
func AppendBrief(b []byte, f *frame.Frame) (brief []byte, rest uint64) {
	stable, entity := xxhash.Sum64(f.Stable), sumOf(f.Parts)
	b = pack.Bytes(pack.Bytes(b, f.Parts.Name), f.Check)
	b = pack.Uint(pack.Uint(b, stable), entity)
	r := &f.Result
	b = pack.Bytes(b, r.ID[:])
	b = pack.Int(pack.Int(b, r.Timestamp), r.Executed-r.Timestamp)
	b = pack.Int(pack.Int(b, r.Issued-r.Executed), r.Sequence)
	b = pack.Uint(pack.Float(b, r.Duration), uint64(r.Status))
	for _, text := range [][]byte{f.Output, f.Hooks, f.Rest, f.ProcessedBy, f.Metrics} {
		b = pack.Bytes(b, text)
	}
	return pack.Bool(b, f.Metrics != nil), bits.RotateLeft64(stable, 7) ^ entity
}

// readBrief reads what AppendBrief wrote; p knows whether it could.
func readBrief(p *pack.Reader, f *frame.Frame) (stable, entity uint64) {
	f.Reset()
	f.HasCheck = true
	f.Parts.Name, f.Check = p.Bytes(), p.Bytes()
	stable, entity = p.Uint(), p.Uint()
	r := &f.Result
	copy(r.ID[:], p.Bytes())
	r.Timestamp = p.Int()
	r.Executed = p.Int() + r.Timestamp
	r.Issued = p.Int() + r.Executed
	r.Sequence, r.Duration, r.Status = p.Int(), p.Float(), uint32(p.Uint())
	f.Output, f.Hooks, f.Rest, f.ProcessedBy, f.Metrics = p.Bytes(), p.Bytes(), p.Bytes(), p.Bytes(), p.Bytes()
	if !p.Bool() {
		f.Metrics = nil
	}
	return stable, entity
}

// TakeBrief takes what AppendBrief wrote, when it is its turn, with a frame for use again.
//
// Errors are those of Take, and ErrWhole.
func (in *Ingest) TakeBrief(ctx context.Context, namespace string, brief []byte, f *frame.Frame) error {
	w := intake{in}.sampled()
	p := pack.Read(brief)
	stable, entity := readBrief(p, f)
	if p.Err() != nil || p.More() {
		return errkind.Errorf(errkind.Invalid, "an event in brief that is none")
	}
	if err := (intake{in}).admit(ctx); err != nil {
		return err
	}
	s := &in.shards[shardOf(namespace, f.Parts.Name)]
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.takes() {
		return ErrElsewhere
	}
	e := s.byName[name{namespace, string(f.Parts.Name)}]
	if e == nil || e.sum != entity {
		return ErrWhole
	}
	k := find(e.checks, f.Check)
	if k == nil || k.kind.Sum != stable {
		return ErrWhole
	}
	w.begins()
	alarms{in}.heard(s, k)
	intake{in}.step(s, e, k, f, 0)
	w.ends(in)
	return nil
}
