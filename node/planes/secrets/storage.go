package secretsplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/api/vaultapi"
	"corbel.dev/corbel/core/group"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/life"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/node/nodeid"
	"corbel.dev/corbel/node/planes/secrets/joinfrom"
	"corbel.dev/corbel/node/planes/secrets/registration"
	"corbel.dev/corbel/node/planes/secrets/seals"
	"corbel.dev/corbel/node/vaultconf"
	"corbel.dev/corbel/secrets/cluster"
	"corbel.dev/corbel/secrets/plugins/plughost"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/filestore"
	"corbel.dev/corbel/secrets/storage/memstore"
	"corbel.dev/corbel/telemetry"
)

// secretsStore is an opened storage, with what several servers need to share it.
type secretsStore struct {
	backend storage.Backend
	lock    storage.Lock  // nil: one server alone
	raft    *cluster.Node // nil: another backend
	parts   []life.Part   // what it runs
	retry   []joinfrom.Stanza
	late    bool // it was away when it was to be opened
	// kind and at say what the plane waits for, and where that is.
	kind string
	at   []string
	dir  string // where a server keeps its own; "" where the storage has none
}

// secretsHost is what a backend may use of the process that it is in.
type secretsHost struct {
	fs      vfs.FS
	clock   clock.Clock
	log     *slog.Logger
	metrics *telemetry.Registry
	id      string // of this server, where the process has one; "" lets the storage keep one
	wire    *wire.Wire
	address string // of the wire, as others reach it
	own     bool   // the wire is the plane's alone
	wait    bool   // for a storage that is away: else that is an error
}

// secretsBackends opens each kind of storage that this process has by its keys, and secretsRemotes knows those that are
// somewhere else. A new backend is a line here.
var (
	secretsBackends = map[string]func(h *secretsHost, k *vaultconf.Keys) (secretsStore, error){"inmem": openMemory,
		"file": openFile, "raft": openRaft}
	secretsRemotes = map[string]func(h *secretsHost, k *vaultconf.Keys) (remoteStorage, error){
		"postgresql": remotePostgres, "consul": remoteConsul, "s3": remoteS3, "gcs": remoteGCS,
	}
)

// unknownStorage is nil for a type that openStorage knows.
func unknownStorage(kind string) error {
	if secretsBackends[kind] != nil || secretsRemotes[kind] != nil {
		return nil
	}
	kinds := slices.Sorted(maps.Keys(secretsBackends))
	kinds = slices.Sorted(slices.Values(slices.AppendSeq(kinds, maps.Keys(secretsRemotes))))
	return fmt.Errorf("storage: the type %q is unknown: it is one of %s", kind, strings.Join(kinds, ", "))
}

// CheckServer says what of a server's configuration cannot work, without opening or asking anything. Its warnings go
// to w.
func CheckServer(cfg *vaultconf.Config, getenv func(string) string, w io.Writer) error {
	_, err := seals.Open(cfg.Seals, getenv, slog.New(slog.DiscardHandler))
	_, rerr := registration.Of(cfg, getenv)
	err = errors.Join(checkSettings(cfg), checkRaft(cfg), err, rerr)
	for _, text := range cfg.Warnings { // last: storage and seals have read their keys too
		fmt.Fprintf(w, "warning: %s\n", text)
	}
	return err
}

// checkSettings names all that a start would stumble over one by one.
func checkSettings(cfg *vaultconf.Config) error {
	_, perr := plughost.Open(cfg.PluginDir, cfg.PluginTmp, nil)
	wrong := []error{unknownStorage(cfg.Storage.Type), perr}
	for i := range cfg.Listeners {
		l := &cfg.Listeners[i]
		if !l.TLS.Disable {
			_, err := vaultTLS(&l.TLS)
			wrong = append(wrong, err)
		}
		_, err := proxied(l)
		_, ferr := forwardedFor(&l.ForwardedFor)
		_, herr := vaultapi.NewResponseHeaders(l.ResponseHeaders, nil)
		wrong = append(wrong, err, ferr, herr)
	}
	return errors.Join(wrong...)
}

// checkRaft reads the keys of a Raft storage, which its open would take.
func checkRaft(cfg *vaultconf.Config) error {
	if cfg.Storage.Type != "raft" {
		return nil
	}
	k := cfg.Storage.Keys
	if k.String("path", "") == "" {
		return errors.New(`storage "raft": path: is missing`)
	}
	if _, _, err := readRaft(&secretsHost{}, k); err != nil {
		return fmt.Errorf("storage %q: %w", "raft", err)
	}
	return k.Err()
}

// openStorage opens what a storage stanza asks for.
func openStorage(ctx context.Context, h *secretsHost, b vaultconf.Block) (s secretsStore, err error) {
	open, remote := secretsBackends[b.Type], secretsRemotes[b.Type]
	switch {
	case open != nil:
		s, err = open(h, b.Keys)
	case remote != nil:
		s, err = openRemote(ctx, h, b, remote)
	default:
		return secretsStore{}, unknownStorage(b.Type)
	}
	if err != nil {
		return secretsStore{}, fmt.Errorf("storage %q: %w", b.Type, err)
	}
	b.Keys.Done()
	if err := b.Keys.Err(); err != nil {
		_ = s.backend.Close()
		return secretsStore{}, err
	}
	s.kind = b.Type
	if s.raft == nil && b.Type != "inmem" && h.metrics != nil {
		s.backend = storage.Meter(s.backend, "secrets", h.metrics)
	}
	if !s.late {
		h.log.Info("secrets: storage is open", "type", b.Type, "durability", s.backend.Info().Durability)
	}
	return s, nil
}

func openMemory(_ *secretsHost, k *vaultconf.Keys) (secretsStore, error) {
	k.Ignore("max_parallel", "disable_transactions", "max_value_size")
	return secretsStore{backend: memstore.New()}, nil
}

func openFile(h *secretsHost, k *vaultconf.Keys) (secretsStore, error) {
	k.Ignore("max_parallel")
	store, err := filestore.Open(filestore.Config{Dir: k.String("path", ""), FS: h.fs, Log: h.log})
	return secretsStore{backend: store}, err
}

func openRaft(h *secretsHost, k *vaultconf.Keys) (secretsStore, error) {
	dir := k.String("path", "")
	if dir == "" {
		return secretsStore{}, fmt.Errorf("path: is missing")
	}
	if err := h.fs.MkdirAll(dir, 0o700); err != nil {
		return secretsStore{}, fmt.Errorf("path: %w", err)
	}
	lock, err := h.fs.Lock(filepath.Join(dir, "lock"))
	if err != nil {
		return secretsStore{}, fmt.Errorf("path: %w", err)
	}
	s, err := newRaftStore(h, k, dir)
	if err != nil {
		_ = lock.Close()
		return secretsStore{}, err
	}
	s.backend, s.dir = &lockedBackend{s.backend, lock.Close}, dir
	return s, nil
}

func newRaftStore(h *secretsHost, k *vaultconf.Keys, dir string) (s secretsStore, err error) {
	cfg, retry, err := readRaft(h, k)
	if err != nil {
		return s, err
	}
	if cfg.ID == "" {
		if cfg.ID, err = nodeid.Of(h.fs, dir, "", false); err != nil {
			return s, err
		}
	}
	cfg.Dir, s.retry = dir, retry
	node, err := cluster.NewNode(cfg)
	if err != nil {
		return s, err
	}
	s.backend, s.lock, s.raft, s.parts = node, node, node, []life.Part{{Name: "secrets raft", Run: node.Run}}
	return s, nil
}

// readRaft reads the keys of a Raft storage but for its path.
func readRaft(h *secretsHost, k *vaultconf.Keys) (cfg cluster.RaftConfig, retry []joinfrom.Stanza, err error) {
	pilot := group.DefaultAutopilotConfig()
	pilot.CleanupDeadServers, pilot.LastContactThreshold, pilot.MaxTrailingLogs = false, 10*time.Second, 1000
	cfg = cluster.RaftConfig{ID: k.String("node_id", h.id), Address: h.address, Wire: h.wire, Own: h.own,
		Multiplier:        k.Int("performance_multiplier", 1),
		SnapshotThreshold: uint64(k.Int("snapshot_threshold", 0)), TrailingLogs: uint64(k.Int("trailing_logs", 0)),
		SnapshotInterval: k.Duration("snapshot_interval", 0),
		Autopilot:        pilot, FS: h.fs, Clock: h.clock, Log: h.log, Metrics: h.metrics}
	k.Ignore("max_entry_size", "max_transaction_size", "autopilot_reconcile_interval", "autopilot_update_interval",
		"max_mount_and_namespace_table_entry_size",
		"autopilot_redundancy_zone", "autopilot_upgrade_version", "freelist_type", "raft_wal", "raft_log_verifier_enabled")
	nonVoter := k.Bool("retry_join_as_non_voter", false)
	var wrong []error
	for _, b := range k.Blocks("retry_join") {
		from, err := joinfrom.Read(b, nonVoter)
		retry, wrong = append(retry, from), append(wrong, err)
	}
	return cfg, retry, errors.Join(wrong...)
}

// lockedBackend gives a lock back when it is closed.
type lockedBackend struct {
	storage.Backend
	unlock func() error
}

// Close implements storage.Backend.
func (b *lockedBackend) Close() error {
	err := b.Backend.Close()
	if b.unlock != nil {
		_ = b.unlock()
		b.unlock = nil
	}
	return err
}
