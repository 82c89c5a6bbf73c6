// Package transfer copies everything from one storage to another, and compares both afterwards.
//
// How far it came is a record in the destination, written with what it copied in one commit: it may be ended
// at any point and goes on from there. Values stay encrypted; no key of the barrier is needed. Nobody
// may write to the source meanwhile: what differs in the end is an error that names the key.
package transfer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/storage"
)

// marker is where the destination says how far it came.
const marker = "core/transfer"

// Config of a transfer.
type Config struct {
	From, To storage.Backend
	// Progress, when set, is told after each commit.
	Progress func(Report)
}

// Report says what was done.
type Report struct {
	Resumed  bool `json:"resumed"`  // it went on from an earlier one
	Copied   int  `json:"copied"`   // records, by this run
	Bytes    int  `json:"bytes"`    // of these: keys and values
	Verified int  `json:"verified"` // records that are the same on both sides
}

// A commit holds up to pageRecords records, and pageBytes of them, or one record that is larger.
const (
	pageRecords = 500
	pageBytes   = 1 << 20
)

type state struct {
	From  string `json:"from"`
	After string `json:"after"` // the last key that was copied
}

// Run copies and compares. Errors: Conflict, the destination holds other records; Corrupt, both differ in the end;
// TooLarge, the destination does not take a value; else those of the storages.
func Run(ctx context.Context, cfg Config) (r Report, err error) {
	at, err := begin(ctx, cfg)
	if err != nil {
		return r, err
	}
	r.Resumed = at.After != ""
	for {
		from := ""
		if at.After != "" {
			from = at.After + "\x00"
		}
		list, err := cfg.From.Scan(ctx, from, "", pageRecords)
		if err != nil {
			return r, fmt.Errorf("reading the source: %w", err)
		}
		if len(list) == 0 {
			break
		}
		if err := r.page(ctx, cfg, &at, list); err != nil {
			return r, err
		}
	}
	if r.Verified, err = compare(ctx, cfg); err != nil {
		return r, err
	}
	return r, cfg.To.Commit(ctx, 0, []storage.Op{storage.Delete(marker)})
}

// begin finds out where to go on.
func begin(ctx context.Context, cfg Config) (at state, err error) {
	if _, ok, err := cfg.From.Get(ctx, marker); err != nil || ok {
		if err == nil {
			err = errkind.New(errkind.Conflict, "the source is the destination of a transfer that did not end: finish that "+
				"one first")
		}
		return at, err
	}
	text, ok, err := cfg.To.Get(ctx, marker)
	if err != nil {
		return at, fmt.Errorf("reading the destination: %w", err)
	}
	if ok {
		if err := json.Unmarshal(text, &at); err != nil {
			return at, errkind.E(errkind.Corrupt, marker, err)
		}
		if at.From != cfg.From.Info().Name {
			return at, errkind.Errorf(errkind.Conflict,
				"the destination has a part of what was in %q storage: it cannot be gone on with from %q", at.From,
				cfg.From.Info().Name)
		}
		return at, nil
	}
	some, err := cfg.To.Scan(ctx, "", "", 1)
	if err != nil {
		return at, fmt.Errorf("reading the destination: %w", err)
	}
	if len(some) > 0 {
		return at, errkind.New(errkind.Conflict,
			"the destination is not empty: copying over it would mix two servers' records")
	}
	return state{From: cfg.From.Info().Name}, nil
}

// page copies what was read, in as many commits as its size asks for.
func (r *Report) page(ctx context.Context, cfg Config, at *state, list []storage.Record) error {
	for len(list) > 0 {
		var ops []storage.Op
		size := 0
		for len(list) > 0 && (len(ops) == 0 || size+len(list[0].Key)+len(list[0].Value) <= pageBytes) {
			one := list[0]
			list = list[1:]
			size += len(one.Key) + len(one.Value)
			at.After = one.Key
			ops = append(ops, storage.Put(one.Key, one.Value))
		}
		text, err := json.Marshal(at)
		if err != nil {
			return err
		}
		if err := cfg.To.Commit(ctx, 0, append(ops, storage.Put(marker, text))); err != nil {
			return fmt.Errorf("writing to the destination: %w", err)
		}
		r.Copied += len(ops)
		r.Bytes += size
		if cfg.Progress != nil {
			cfg.Progress(*r)
		}
	}
	return nil
}

// compare reads both sides to the end.
func compare(ctx context.Context, cfg Config) (n int, err error) {
	source, destination := cursor{from: cfg.From}, cursor{from: cfg.To}
	for {
		a, err := source.next(ctx)
		if err != nil {
			return n, fmt.Errorf("reading the source: %w", err)
		}
		b, err := destination.next(ctx)
		if err != nil {
			return n, fmt.Errorf("reading the destination: %w", err)
		}
		switch {
		case a == nil && b == nil:
			return n, nil
		case a == nil || b != nil && b.Key < a.Key:
			return n, errkind.Errorf(errkind.Corrupt, "%s is in the destination alone: was the source written to meanwhile?",
				b.Key)
		case b == nil || a.Key < b.Key:
			return n, errkind.Errorf(errkind.Corrupt, "%s is not in the destination: was the source written to meanwhile?",
				a.Key)
		case !bytes.Equal(a.Value, b.Value):
			return n, errkind.Errorf(errkind.Corrupt, "%s differs: was the source written to meanwhile?", a.Key)
		}
		n++
	}
}

// cursor walks a storage's records, but the marker.
type cursor struct {
	from storage.Backend
	page []storage.Record
	at   string
}

func (c *cursor) next(ctx context.Context) (*storage.Record, error) {
	for {
		if len(c.page) == 0 {
			var err error
			if c.page, err = c.from.Scan(ctx, c.at, "", pageRecords); err != nil || len(c.page) == 0 {
				return nil, err
			}
			c.at = c.page[len(c.page)-1].Key + "\x00"
		}
		one := &c.page[0]
		c.page = c.page[1:]
		if one.Key != marker {
			return one, nil
		}
	}
}
