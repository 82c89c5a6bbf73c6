package ingest

import (
	"context"
	"time"

	"corbel.dev/corbel/monitor"
)

// Policy is what decides over results. Its methods are called for every one, or nearly so, and must only look something
// up; only Proxy may wait.
type Policy interface {
	// Silences returns those of a namespace.
	Silences(namespace string) *monitor.Silences
	// Wants says whether anybody wants a result's event. It is asked about results of checks that have handlers or
	// pipelines, and about events with metrics.
	Wants(namespace string, kind *monitor.Kind, out monitor.Outcome) bool
	// Deregisters says whether an entity is to be removed when its agent is missed.
	Deregisters(namespace, entity string) bool
	// Hears says whether agents are let in. While they are not, nobody is missed.
	Hears() bool
	// Proxy returns the message of the entity that a result is of which an agent reports for another, and makes the
	// entity where there is none. Nil leaves the result with its agent.
	Proxy(ctx context.Context, namespace, entity string) ([]byte, error)
}

// Sink is where what results led to goes, in order, once that is stored. No method may block.
type Sink interface {
	// Publish is given what Policy.Wants asked for.
	Publish(*Published)
	// Lift is told of silences that ended with their incident.
	Lift(namespace string, names []string)
	// Deregister is told of an entity of which Policy.Deregisters said so, when its agent is missed.
	Deregister(namespace, entity string)
	// StatusChanged is told of an entity when a check of it that the catalog depends on (monitor.Binding) gets another
	// status or another configuration, and when its event is deleted.
	StatusChanged(namespace, entity string)
	// Replicate is given what a commit made durable of an owned shard: its records, or all of the shard (reset), and the
	// sequence after it. It is called from one goroutine; the records hold until it returns.
	Replicate(shard uint16, reset bool, until uint64, records []byte)
}

// Meter is told how long things took. Its methods must not block: Stepped is called with a shard held.
type Meter interface {
	// Stored is how long the first change of a batch took from its arrival until it was durable, and how long of that
	// the store did.
	Stored(took, store time.Duration)
	// Stepped is, of one result in sixteen, by chance, how long it took from its frame until its shard took it up, with
	// the wait for room and for the shard, and how long the step to its new state took.
	Stepped(receive, step time.Duration)
}

// Discard is a Policy that lets agents in and wants nothing, and a Sink that drops everything. Others embed it.
type Discard struct{}

// Silences implements Policy.
func (Discard) Silences(string) *monitor.Silences { return nil }

// Wants implements Policy.
func (Discard) Wants(string, *monitor.Kind, monitor.Outcome) bool { return false }

// Deregisters implements Policy.
func (Discard) Deregisters(string, string) bool { return false }

// Hears implements Policy.
func (Discard) Hears() bool { return true }

// Proxy implements Policy.
func (Discard) Proxy(context.Context, string, string) ([]byte, error) { return nil, nil }

// Publish implements Sink.
func (Discard) Publish(*Published) {}

// Lift implements Sink.
func (Discard) Lift(string, []string) {}

// Deregister implements Sink.
func (Discard) Deregister(string, string) {}

// StatusChanged implements Sink.
func (Discard) StatusChanged(string, string) {}

// Replicate implements Sink.
func (Discard) Replicate(uint16, bool, uint64, []byte) {}
