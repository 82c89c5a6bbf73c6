package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/errkind"
)

// tendEvery is how often the leader looks whether something of all that is missing, or has served its time.
const tendEvery = 10 * time.Minute

// foundingTimeout bounds one attempt.
const foundingTimeout = 10 * time.Second

// beginning is what this server gives a cluster that it founds.
type beginning struct {
	entries  []entry.Entry // config_entries.bootstrap
	identity string        // the cluster's; "" is a new one
}

// founding sees to it, on the leader, that the cluster has what every cluster has once.
func (p *Process) founding(ctx context.Context) error {
	pause := backoff.Backoff{Min: 50 * time.Millisecond, Max: 5 * time.Second}
	for ctx.Err() == nil {
		changes := p.raft.LeaderChanges()
		var again <-chan time.Time
		if p.raft.IsLeader() {
			if err := p.found(ctx); err != nil && ctx.Err() == nil {
				p.Log.Debug("what every cluster has could not be written yet", "err", err)
				again = p.Clock.NewTimer(pause.Next()).C
			} else {
				pause.Reset()
				again = p.Clock.NewTimer(tendEvery).C
			}
		}
		select {
		case <-changes:
		case <-again:
		case <-ctx.Done():
		}
	}
	return nil
}

// found writes what is not there: the cluster's identity and the configured config entries.
func (p *Process) found(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, foundingTimeout)
	defer cancel()
	err := p.writeOnce(ctx, catalog.Record{Kind: catalog.RecordSystem, Key: catalog.ClusterIDKey,
		Value: []byte(cmp.Or(p.identity, uuid.NewString()))})
	if p.Cfg.Connect.Enabled {
		err = errors.Join(err, p.meshes.CA.Tend(ctx))
	}
	for _, e := range p.entries {
		value, encodeErr := entry.Encode(e)
		b := e.Base()
		err = errors.Join(err, encodeErr, p.writeOnce(ctx, catalog.Record{Kind: catalog.RecordConfigEntry,
			Key: entry.Key(b.Kind, b.Name), Value: value}))
	}
	return err
}

func (p *Process) writeOnce(ctx context.Context, r catalog.Record) error {
	if p.registry.State().Record(r.Kind, r.Key) != nil {
		return nil
	}
	// Not ok means that somebody was faster, which is as well.
	_, _, err := p.registry.SetRecords(ctx, catalog.RecordOp{Verb: catalog.RecordCAS, Record: r})
	return errkind.E(errkind.Of(err), r.Key, err)
}

// bootstrapEntries decodes config_entries.bootstrap.
func bootstrapEntries(list []map[string]any) ([]entry.Entry, error) {
	var entries []entry.Entry
	var wrong []error
	for i, m := range list {
		raw, err := json.Marshal(m)
		if err == nil {
			var e entry.Entry
			if e, err = entry.Decode(raw); err == nil {
				entries = append(entries, e)
			}
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("config_entries.bootstrap[%d]: %s", i,
				strings.TrimPrefix(errkind.Text(err), "Request decode failed: ")))
		}
	}
	return entries, errors.Join(wrong...)
}
