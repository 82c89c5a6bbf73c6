package node

import (
	"context"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/errkind"
)

// clusterIDKey is the system record that names the cluster for ever; its trust domain is made of it.
const clusterIDKey = "cluster-id"

// foundingTimeout bounds one attempt.
const foundingTimeout = 10 * time.Second

// founding sees to it, on the leader, that the cluster has what every cluster has once.
func (p *Process) founding(ctx context.Context) error {
	pause := backoff.Backoff{Min: 50 * time.Millisecond, Max: 5 * time.Second}
	for ctx.Err() == nil {
		changes := p.raft.LeaderChanges()
		var again <-chan time.Time
		if p.raft.IsLeader() {
			if err := p.ensureClusterID(ctx); err != nil && ctx.Err() == nil {
				p.log.Debug("the cluster's identity could not be written yet", "err", err)
				timer := p.clock.NewTimer(pause.Next())
				again = timer.C
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

func (p *Process) ensureClusterID(ctx context.Context) error {
	if p.registry.State().Record(catalog.RecordSystem, clusterIDKey) != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, foundingTimeout)
	defer cancel()
	// Not ok means that somebody was faster, which is as well.
	_, _, err := p.registry.SetRecords(ctx, catalog.RecordOp{Verb: catalog.RecordCAS,
		Record: catalog.Record{Kind: catalog.RecordSystem, Key: clusterIDKey, Value: []byte(uuid.NewString())}})
	return errkind.E(errkind.Of(err), "cluster id", err)
}
