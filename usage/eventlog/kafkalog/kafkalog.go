// Package kafkalog is the log of usage events in a cluster that speaks the Kafka protocol: for deployments that have
// outgrown one server's disk, and for those that have such a cluster anyway.
//
// What differs from the embedded engine:
//   - Append returns when all in-sync replicas have a record (acks=all, idempotent producer). Brokers write to their
//     disks later: a record outlives the loss of a broker, and not a power loss of all of them at once.
//   - Entries of one Append go to several partitions on their own: after an error of kind Unknown some may be stored.
//   - A full cluster is the cluster's affair. What waits to be sent is bounded by PendingBytes; beyond, Append is
//     refused with an error of kind Overloaded before anything is sent.
//   - Positions are a consumer group's offsets, and their notes its metadata. A broker forgets a group that has not
//     committed for offsets.retention.minutes (a week): who counts commits all its partitions every few seconds.
//
// A topic that Open makes keeps everything until it is trimmed (eventlog.Janitor), so that nothing goes that was not
// read. One that exists is taken as it is; its number of partitions must never change, for shards are dealt by it.
//
// Open starts the client's goroutines, and Close ends them and waits; each Reader has a client of its own. Every call
// has a deadline, of the caller's context or of Timeout. Broker names and versions are the client's affair.
package kafkalog

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/usage/eventlog"
)

// Config of a log.
type Config struct {
	// Brokers are some of the cluster's, as host:port.
	Brokers []string
	// Topic is made when missing; empty means corbel-usage.
	Topic string
	// Partitions and Replicas are those of a topic that is made; zero means 64, and 3 or as many as there are brokers.
	// Open refuses a topic of another number of partitions.
	Partitions int
	Replicas   int16
	// TLS, where it is not nil, is how brokers are spoken to.
	TLS *tls.Config
	// User and Password log in where they are set, by SASL: plain (which empty means), scram-sha-256 or scram-sha-512.
	SASL, User, Password string
	// PendingBytes bounds what waits to be acknowledged; zero means 64 MiB.
	PendingBytes int64
	// Timeout bounds each request, and how long an Append may wait for brokers; zero means 10 s.
	Timeout time.Duration
}

// Log is an open log. Make one with Open.
type Log struct {
	cfg        Config
	client     *kgo.Client
	admin      *kadm.Client
	partitions int
	replicas   int

	mu      sync.Mutex // guards pending
	pending int64
}

var _ eventlog.Log = (*Log)(nil)

// Open reaches the cluster, and makes the topic when it is missing.
func Open(ctx context.Context, cfg Config) (*Log, error) {
	cfg.Topic = cmp.Or(cfg.Topic, "corbel-usage")
	cfg.PendingBytes = cmp.Or(cfg.PendingBytes, 64<<20)
	cfg.Timeout = cmp.Or(cfg.Timeout, 10*time.Second)
	if len(cfg.Brokers) == 0 {
		return nil, errkind.New(errkind.Invalid, "usage.log.kafka.brokers: names no broker")
	}
	if cfg.Partitions < 0 || cfg.Partitions > eventlog.MaxPartitions {
		return nil, errkind.Errorf(errkind.Invalid, "partitions: 1 to %d", eventlog.MaxPartitions)
	}
	client, err := kgo.NewClient(append(cfg.options(), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RecordDeliveryTimeout(cfg.Timeout), kgo.ProducerLinger(0),
		kgo.MaxBufferedRecords(1<<20))...) // PendingBytes is less: Produce never waits
	if err != nil {
		return nil, errkind.E(errkind.Invalid, "kafka", err)
	}
	l := &Log{cfg: cfg, client: client, admin: kadm.NewClient(client)}
	l.admin.SetTimeoutMillis(int32(cfg.Timeout.Milliseconds()))
	if err := l.topic(ctx); err != nil {
		client.Close()
		return nil, err
	}
	return l, nil
}

// metadataAge is how long a client waits before it asks again who leads: after 5 s, as it is otherwise, everybody who
// appends to a partition whose broker was lost waits that long.
const metadataAge = 100 * time.Millisecond

func (c Config) options() []kgo.Opt {
	opts := []kgo.Opt{kgo.SeedBrokers(c.Brokers...), kgo.ClientID("corbel"), kgo.DialTimeout(c.Timeout),
		kgo.RequestTimeoutOverhead(c.Timeout), kgo.RetryTimeout(c.Timeout), kgo.MetadataMinAge(metadataAge)}
	if c.TLS != nil {
		opts = append(opts, kgo.DialTLSConfig(c.TLS))
	}
	switch auth := (scram.Auth{User: c.User, Pass: c.Password}); {
	case c.User == "":
	case c.SASL == "scram-sha-256":
		opts = append(opts, kgo.SASL(auth.AsSha256Mechanism()))
	case c.SASL == "scram-sha-512":
		opts = append(opts, kgo.SASL(auth.AsSha512Mechanism()))
	default:
		opts = append(opts, kgo.SASL(plain.Auth{User: c.User, Pass: c.Password}.AsMechanism()))
	}
	return opts
}

// TopicName reports whether brokers take a name, with room behind it for that of a part.
func TopicName(s string) bool {
	const may = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	return s != "" && len(s) <= 200 && strings.Trim(s, may) == ""
}

// failed gives an error of the cluster a kind.
func failed(what string, err error) error {
	if err == nil {
		return nil
	}
	kind := errkind.Unavailable
	var told *kerr.Error
	if errors.As(err, &told) && !told.Retriable {
		kind = errkind.Invalid
		if slices.Contains([]*kerr.Error{kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed,
			kerr.ClusterAuthorizationFailed, kerr.SaslAuthenticationFailed}, told) {
			kind = errkind.Denied
		}
	}
	return errkind.E(kind, "kafka: "+what, err)
}

// topic finds the topic, or makes it.
func (l *Log) topic(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	defer cancel()
	if done, err := l.found(ctx); done || err != nil {
		return err
	}
	replicas := l.cfg.Replicas
	if replicas == 0 {
		brokers, err := l.admin.ListBrokers(ctx)
		if err != nil {
			return failed("brokers", err)
		}
		replicas = int16(min(3, len(brokers)))
	}
	// Nothing goes by itself, and the time of a record is that of its arrival.
	configs := map[string]*string{"retention.ms": new("-1"), "retention.bytes": new("-1"), "cleanup.policy": new("delete"),
		"message.timestamp.type": new("LogAppendTime")}
	if replicas > 2 {
		configs["min.insync.replicas"] = new("2")
	}
	_, err := l.admin.CreateTopic(ctx, int32(cmp.Or(l.cfg.Partitions, 64)), replicas, configs, l.cfg.Topic)
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) { // another server was faster
		return failed("make topic "+l.cfg.Topic, err)
	}
	for { // brokers hear of it one after the other
		if done, err := l.found(ctx); done || err != nil {
			return err
		}
		if err := pause(ctx); err != nil {
			return failed("topic "+l.cfg.Topic, err)
		}
	}
}

// pause waits a little for what will be there soon.
func pause(ctx context.Context) error {
	timer := time.NewTimer(20 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// patiently asks again while brokers say that they will answer later, as when a coordinator of groups is being found or
// moves: the first commit of a cluster's life has the topic of all commits made.
func patiently(ctx context.Context, ask func() error) error {
	for {
		err := ask()
		var told *kerr.Error
		if !errors.As(err, &told) || !told.Retriable || pause(ctx) != nil {
			return err
		}
	}
}

// found reads what the topic is; false when it is not there, or has no leaders yet.
func (l *Log) found(ctx context.Context) (bool, error) {
	topics, err := l.admin.ListTopics(ctx, l.cfg.Topic)
	if err != nil {
		return false, failed("topic", err)
	}
	topic := topics[l.cfg.Topic]
	if errors.Is(topic.Err, kerr.UnknownTopicOrPartition) || len(topic.Partitions) == 0 && topic.Err == nil {
		return false, nil
	}
	if topic.Err != nil {
		return false, failed("topic "+l.cfg.Topic, topic.Err)
	}
	n := len(topic.Partitions)
	if n > eventlog.MaxPartitions || l.cfg.Partitions != 0 && n != l.cfg.Partitions {
		return false, errkind.Errorf(errkind.Invalid, "topic %s has %d partitions, and %d are configured: a log keeps what "+
			"it was made with", l.cfg.Topic, n, l.cfg.Partitions)
	}
	for _, p := range topic.Partitions {
		if p.Leader < 0 || p.Err != nil {
			return false, nil
		}
		l.replicas = len(p.Replicas)
	}
	l.partitions = n
	return true, nil
}

// Partitions implements eventlog.Log.
func (l *Log) Partitions() int { return l.partitions }

// entryBytes is what an entry takes beside its data.
const entryBytes = 256

// sending is an Append under way.
type sending struct {
	mu      sync.Mutex // guards what follows
	left    int
	refused int // that were refused for good
	offsets []uint64
	err     error
	done    chan struct{}
}

// Append implements eventlog.Log.
func (l *Log) Append(ctx context.Context, entries []eventlog.Entry) ([]uint64, error) {
	if err := eventlog.CheckEntries(entries, l.partitions); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, errkind.E(errkind.Unavailable, "kafka", err)
	}
	size := int64(0)
	for _, e := range entries {
		size += int64(len(e.Data)) + entryBytes
	}
	if !l.reserve(size) {
		return nil, errkind.New(errkind.Overloaded, "kafka: too many bytes wait to be acknowledged")
	}
	s := &sending{left: len(entries), offsets: make([]uint64, len(entries)), done: make(chan struct{})}
	for i, e := range entries {
		rec := &kgo.Record{Topic: l.cfg.Topic, Partition: int32(e.Partition), Value: e.Data}
		// Not the caller's context: what is under way in one partition must not pass by what came before it.
		l.client.Produce(context.Background(), rec, func(r *kgo.Record, err error) {
			l.release(int64(len(r.Value)) + entryBytes)
			s.told(i, r.Offset, err)
		})
	}
	select {
	case <-s.done:
	case <-ctx.Done():
		return nil, errkind.E(errkind.Unknown, "kafka: being sent", ctx.Err())
	}
	switch {
	case s.err == nil:
		return s.offsets, nil
	case s.refused == len(entries):
		return nil, failed("append", s.err)
	}
	return nil, errkind.E(errkind.Unknown, "kafka: append", s.err)
}

// told takes in what became of a record.
func (s *sending) told(i int, offset int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var said *kerr.Error
	switch {
	case err == nil:
		s.offsets[i] = uint64(offset)
	case errors.As(err, &said) && !said.Retriable:
		s.refused++
		s.err = cmp.Or(s.err, err)
	default:
		s.err = cmp.Or(s.err, err)
	}
	if s.left--; s.left == 0 {
		close(s.done)
	}
}

func (l *Log) reserve(n int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pending > 0 && l.pending+n > l.cfg.PendingBytes {
		return false
	}
	l.pending += n
	return true
}

func (l *Log) release(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending -= n
}

// Bounds implements eventlog.Log.
func (l *Log) Bounds(ctx context.Context) ([]eventlog.Bound, error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	defer cancel()
	first, err := l.offsets(ctx, func() (kadm.ListedOffsets, error) { return l.admin.ListStartOffsets(ctx, l.cfg.Topic) })
	if err != nil {
		return nil, err
	}
	next, err := l.ends(ctx)
	if err != nil {
		return nil, err
	}
	bounds := make([]eventlog.Bound, l.partitions)
	for p := range bounds {
		bounds[p] = eventlog.Bound{First: first[p], Next: next[p]}
	}
	return bounds, nil
}

// ends returns the offset that each partition gives next.
func (l *Log) ends(ctx context.Context) ([]uint64, error) {
	return l.offsets(ctx, func() (kadm.ListedOffsets, error) { return l.admin.ListEndOffsets(ctx, l.cfg.Topic) })
}

// offsets are those of all partitions. It asks again while a broker does not know yet that it leads one: who leads a
// topic that was just made is told by its first broker before the others have heard of it.
func (l *Log) offsets(ctx context.Context, ask func() (kadm.ListedOffsets, error)) ([]uint64, error) {
	var listed kadm.ListedOffsets
	err := patiently(ctx, func() (err error) {
		listed, err = ask()
		return cmp.Or(err, listed.Error())
	})
	if err != nil {
		return nil, failed("offsets", err)
	}
	list := make([]uint64, l.partitions)
	for p := range list {
		o, ok := listed.Lookup(l.cfg.Topic, int32(p))
		if !ok || o.Offset < 0 {
			return nil, errkind.Errorf(errkind.Unavailable, "kafka: no offset of partition %d was told", p)
		}
		list[p] = uint64(o.Offset)
	}
	return list, nil
}

// Since implements eventlog.Log.
func (l *Log) Since(ctx context.Context, t time.Time) ([]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	defer cancel()
	return l.offsets(ctx, func() (kadm.ListedOffsets, error) {
		return l.admin.ListOffsetsAfterMilli(ctx, t.UnixMilli(), l.cfg.Topic)
	})
}

// group is a group's name in the cluster.
func (l *Log) group(name string) string { return l.cfg.Topic + "." + name }

// Commit implements eventlog.Log.
func (l *Log) Commit(ctx context.Context, group string, positions []eventlog.Position) error {
	if err := eventlog.CheckPositions(group, positions, l.partitions); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	defer cancel()
	next, err := l.ends(ctx)
	if err != nil {
		return err
	}
	offsets := kadm.Offsets{}
	for _, p := range positions {
		if p.Offset > next[p.Partition] {
			return errkind.Errorf(errkind.Invalid, "partition %d: position %d is ahead of the log, which ends at %d",
				p.Partition, p.Offset, next[p.Partition])
		}
		offsets.Add(kadm.Offset{Topic: l.cfg.Topic, Partition: int32(p.Partition), At: int64(p.Offset), LeaderEpoch: -1,
			Metadata: base64.StdEncoding.EncodeToString(p.Note)})
	}
	return failed("commit", patiently(ctx, func() error {
		return l.admin.CommitAllOffsets(ctx, l.group(group), offsets)
	}))
}

// Committed implements eventlog.Log.
func (l *Log) Committed(ctx context.Context, group string) ([]eventlog.Position, error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	defer cancel()
	var told kadm.OffsetResponses
	err := patiently(ctx, func() (err error) {
		told, err = l.admin.FetchOffsets(ctx, l.group(group))
		return cmp.Or(err, told.Error())
	})
	if errors.Is(err, kerr.GroupIDNotFound) {
		return nil, nil // it has committed nothing yet
	}
	if err != nil {
		return nil, failed("positions", err)
	}
	var list []eventlog.Position
	for p, o := range told[l.cfg.Topic] {
		if o.At < 0 || int(p) >= l.partitions {
			continue
		}
		note, err := base64.StdEncoding.DecodeString(o.Metadata)
		if err != nil {
			return nil, errkind.Errorf(errkind.Corrupt, "kafka: the note of group %s in partition %d is not one of ours: %w",
				l.group(group), p, err)
		}
		list = append(list, eventlog.Position{Partition: int(p), Offset: uint64(o.At), Note: note})
	}
	slices.SortFunc(list, func(a, b eventlog.Position) int { return a.Partition - b.Partition })
	return list, nil
}

// Trim implements eventlog.Log.
func (l *Log) Trim(ctx context.Context, below []uint64) error {
	if len(below) != l.partitions {
		return errkind.Errorf(errkind.Invalid, "%d offsets for %d partitions", len(below), l.partitions)
	}
	bounds, err := l.Bounds(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	defer cancel()
	offsets := kadm.Offsets{}
	for p, b := range bounds {
		if at := min(below[p], b.Next); at > b.First {
			offsets.Add(kadm.Offset{Topic: l.cfg.Topic, Partition: int32(p), At: int64(at)})
		}
	}
	if len(offsets) == 0 {
		return nil
	}
	told, err := l.admin.DeleteRecords(ctx, offsets)
	return failed("trim", cmp.Or(err, told.Error()))
}

// Info implements eventlog.Log.
func (l *Log) Info() eventlog.Info {
	return eventlog.Info{Engine: "kafka", Durability: fmt.Sprintf("held by all in-sync replicas of %d: it outlives the "+
		"loss of a broker, and not a power loss of all at once", l.replicas)}
}

// Close implements eventlog.Log. What waits to be sent fails.
func (l *Log) Close() error {
	l.client.Close()
	return nil
}
