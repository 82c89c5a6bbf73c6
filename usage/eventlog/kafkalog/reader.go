package kafkalog

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/usage/eventlog"
)

// mostRecords is how many Next returns at once.
const mostRecords = 1000

// fetchWait is how long a broker waits for records before it answers without any: so long it takes until a partition is
// read that is assigned beside quiet ones.
const fetchWait = 500 * time.Millisecond

// reader is a consumer of some partitions, without a group: who reads which partition is decided elsewhere.
type reader struct {
	log     *Log
	client  *kgo.Client    // nil until a partition is assigned
	wanted  map[int]uint64 // the next offset, by partition
	lost    map[int]*eventlog.OutOfRange
	err     error // what came beside records, and was not told yet
	records []eventlog.Record
}

// Reader implements eventlog.Log.
func (l *Log) Reader(from map[int]uint64) (eventlog.Reader, error) {
	r := &reader{log: l, wanted: map[int]uint64{}, lost: map[int]*eventlog.OutOfRange{}}
	if err := r.Assign(from); err != nil {
		_ = r.Close() // the first error is the one to report
		return nil, err
	}
	return r, nil
}

// Assign implements eventlog.Reader.
func (r *reader) Assign(from map[int]uint64) error {
	if err := eventlog.CheckPartitions(from, r.log.partitions); err != nil {
		return err
	}
	if len(from) == 0 {
		return nil
	}
	bounds, err := r.log.Bounds(context.Background()) // it has its own deadline
	if err != nil {
		return err
	}
	r.Drop(slices.Collect(maps.Keys(from))...)
	maps.Copy(r.wanted, from)
	offsets := map[int32]kgo.Offset{}
	for p, offset := range from {
		if b := bounds[p]; offset < b.First || offset > b.Next {
			r.lost[p] = &eventlog.OutOfRange{Partition: p, Offset: offset, Bound: b}
			continue
		}
		offsets[int32(p)] = kgo.NewOffset().At(int64(offset))
	}
	if len(offsets) == 0 {
		return nil
	}
	assigned := map[string]map[int32]kgo.Offset{r.log.cfg.Topic: offsets}
	if r.client != nil {
		r.client.AddConsumePartitions(assigned)
		return nil
	}
	r.client, err = kgo.NewClient(append(r.log.cfg.options(), kgo.ConsumePartitions(assigned),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.FetchMaxWait(fetchWait))...)
	return failed("reader", err)
}

// Drop implements eventlog.Reader.
func (r *reader) Drop(partitions ...int) {
	var had []int32
	for _, p := range partitions {
		if _, ok := r.wanted[p]; ok {
			had = append(had, int32(p))
		}
		delete(r.wanted, p)
		delete(r.lost, p)
	}
	if r.client != nil && len(had) > 0 {
		r.client.RemoveConsumePartitions(map[string][]int32{r.log.cfg.Topic: had})
	}
}

// Next implements eventlog.Reader.
func (r *reader) Next(ctx context.Context) ([]eventlog.Record, error) {
	for {
		for _, lost := range r.lost {
			return nil, errkind.E(errkind.NotFound, "kafka", lost)
		}
		if err := r.err; err != nil {
			r.err = nil
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, errkind.E(errkind.Unavailable, "kafka", err)
		}
		if r.client == nil {
			<-ctx.Done() // nothing is assigned
			continue
		}
		r.take(ctx, r.client.PollRecords(ctx, mostRecords))
		if len(r.records) > 0 {
			return r.records, nil
		}
	}
}

// take keeps the records that are wanted, and the errors beside them.
func (r *reader) take(ctx context.Context, fetches kgo.Fetches) {
	r.records = r.records[:0]
	fetches.EachRecord(func(rec *kgo.Record) {
		p, offset := int(rec.Partition), uint64(rec.Offset)
		want, mine := r.wanted[p]
		if !mine || offset < want || r.lost[p] != nil {
			return
		}
		r.wanted[p] = offset + 1
		r.records = append(r.records, eventlog.Record{Partition: p, Offset: offset, At: rec.Timestamp.UTC(), Data: rec.Value})
	})
	var loss *kgo.ErrDataLoss
	for _, e := range fetches.Errors() {
		p := int(e.Partition)
		offset, mine := r.wanted[p]
		switch {
		case ctx.Err() != nil && errors.Is(e.Err, ctx.Err()):
		case errors.Is(e.Err, kerr.OffsetOutOfRange) || errors.As(e.Err, &loss):
			if mine {
				r.lose(ctx, p, offset)
			}
		default:
			r.err = failed("read", e.Err)
		}
	}
}

// lose notes that a partition cannot go on. Its bounds are for the message: without them it is lost as well.
func (r *reader) lose(ctx context.Context, p int, offset uint64) {
	lost := &eventlog.OutOfRange{Partition: p, Offset: offset}
	if bounds, err := r.log.Bounds(ctx); err == nil {
		lost.Bound = bounds[p]
	}
	r.lost[p] = lost
}

// Close implements eventlog.Reader.
func (r *reader) Close() error {
	if r.client != nil {
		r.client.Close()
	}
	return nil
}
