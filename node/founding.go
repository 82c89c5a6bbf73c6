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
	"corbel.dev/corbel/node/config"
	meshplane "corbel.dev/corbel/node/planes/mesh"
)

// tendEvery is how often the leader looks whether something of all that is missing, or has served its time.
const tendEvery = 10 * time.Minute

// foundingTimeout bounds one attempt.
const foundingTimeout = 10 * time.Second

// founding is what this server gives a cluster that it founds.
type founding struct {
	entries  []entry.Entry // config_entries.bootstrap
	identity string        // the cluster's; "" is a new one
}

func newFounding(cfg *config.Config) (f founding, err error) {
	if f.entries, err = bootstrapEntries(cfg.Definitions.ConfigEntries); err == nil {
		_, f.identity, err = meshplane.FirstAuthority(&cfg.Connect)
	}
	return f, err
}

// found sees to it, on the leader, that the cluster has what every cluster has once.
func (s *Server) found(ctx context.Context) error {
	pause := backoff.Backoff{Min: 50 * time.Millisecond, Max: 5 * time.Second}
	for ctx.Err() == nil {
		changes := s.raft.LeaderChanges()
		var again <-chan time.Time
		if s.raft.IsLeader() {
			if err := s.foundOnce(ctx); err != nil && ctx.Err() == nil {
				s.Log.Debug("what every cluster has could not be written yet", "err", err)
				again = s.Clock.NewTimer(pause.Next()).C
			} else {
				pause.Reset()
				again = s.Clock.NewTimer(tendEvery).C
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

// foundOnce writes what is not there: the cluster's identity and the configured config entries.
func (s *Server) foundOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, foundingTimeout)
	defer cancel()
	err := s.writeOnce(ctx, catalog.Record{Kind: catalog.RecordSystem, Key: catalog.ClusterIDKey,
		Value: []byte(cmp.Or(s.founds.identity, uuid.NewString()))})
	if s.Cfg.Connect.Enabled {
		err = errors.Join(err, s.feeds.CA.Tend(ctx))
	}
	for _, e := range s.founds.entries {
		value, encodeErr := entry.Encode(e)
		b := e.Base()
		err = errors.Join(err, encodeErr, s.writeOnce(ctx, catalog.Record{Kind: catalog.RecordConfigEntry,
			Key: entry.Key(b.Kind, b.Name), Value: value}))
	}
	return err
}

func (s *Server) writeOnce(ctx context.Context, r catalog.Record) error {
	if s.registry.State().Record(r.Kind, r.Key) != nil {
		return nil
	}
	// Not ok means that somebody was faster, which is as well.
	_, _, err := s.registry.SetRecords(ctx, catalog.RecordOp{Verb: catalog.RecordCAS, Record: r})
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
