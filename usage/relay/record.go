package relay

import (
	"context"
	"maps"
	"slices"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/batch"
	"corbel.dev/corbel/usage/eventlog"
)

// A batch is one entry of the log, or several where it is large: each has, in the form of kit/pack, the version,
// whether more of the batch follows, when it came, and a part of its bytes. They come from one Append, so all are there
// or none. The bytes are the products of a batch without a name, their kinds, and the batch: what is merged must not
// depend on definitions, which may be others after a crash.
const (
	recordVersion = 1
	partBytes     = 256 << 10
	mostParts     = 128 // 32 MiB
)

// record is a batch in the buffer.
type record struct {
	at    time.Time
	kinds map[string]usage.Kind // by product, of a batch without a name
	*batch.Batch
}

// entries adds those of a batch.
func entries(list []eventlog.Entry, at time.Time, kinds map[string]usage.Kind, b *batch.Batch) []eventlog.Entry {
	products := slices.Sorted(maps.Keys(kinds))
	of := make([]byte, len(products))
	for i, p := range products {
		of[i] = byte(kinds[p])
	}
	data := pack.Bytes(pack.Bytes(pack.Strings(nil, products), of), batch.Append(nil, b))
	for first := true; first || len(data) > 0; first = false {
		n := min(len(data), partBytes)
		e := pack.Bool(pack.Uint(nil, recordVersion), n < len(data))
		e = pack.Bytes(pack.Int(e, at.UnixNano()), data[:n])
		list, data = append(list, eventlog.Entry{Data: e}), data[n:]
	}
	return list
}

// joiner puts batches together.
type joiner struct {
	data  []byte
	parts int
}

var errDamaged = errkind.New(errkind.Corrupt, "usage: the agent's buffer: a record is damaged")

// take takes an entry; rec is nil where more of its batch follows. What rec has is its own.
func (j *joiner) take(data []byte) (rec *record, err error) {
	r := pack.Read(data)
	version, more, at, part := r.Uint(), r.Bool(), r.Int(), r.Bytes()
	if r.Err() != nil || version != recordVersion || j.parts >= mostParts {
		return nil, errDamaged
	}
	j.data, j.parts = append(j.data, part...), j.parts+1
	if more {
		return nil, nil
	}
	r = pack.Read(j.data)
	products, kinds, content := r.Strings(), r.Bytes(), r.Bytes()
	rec = &record{at: time.Unix(0, at), kinds: map[string]usage.Kind{}}
	rec.Batch, err = batch.Read(content) // its texts are copies
	if r.Err() != nil || err != nil || len(products) != len(kinds) {
		return nil, errDamaged
	}
	for i, p := range products {
		rec.kinds[p] = usage.Kind(kinds[i])
	}
	*j = joiner{data: j.data[:0]}
	return rec, nil
}

// scan reads the batches in [from, to). f gets the offset behind each.
func scan(ctx context.Context, log eventlog.Log, from, to uint64, f func(next uint64, rec *record) error) error {
	if from >= to {
		return nil
	}
	reader, err := log.Reader(map[int]uint64{0: from})
	if err != nil {
		return err
	}
	defer reader.Close()
	var j joiner
	for {
		list, err := reader.Next(ctx)
		if err != nil {
			return err
		}
		for _, entry := range list {
			if entry.Offset >= to {
				return nil
			}
			rec, err := j.take(entry.Data)
			if err == nil && rec != nil {
				err = f(entry.Offset+1, rec)
			}
			if err != nil || entry.Offset+1 == to {
				return err
			}
		}
	}
}
