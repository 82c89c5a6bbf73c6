package secretsplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"sync"
	"time"

	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/node/logs"
	"corbel.dev/corbel/node/vaultconf"
	"corbel.dev/corbel/secrets/cluster"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/transfer"
	"corbel.dev/corbel/telemetry"
)

// turnTime is how long a storage that several servers share is waited for: while one of them is active it is not
// copied.
const turnTime = 40 * time.Second

// Migrate copies all records of the secrets plane from one storage to another, as a file in Vault's words says
// (`operator migrate`), with no server running on either. Lines for people go to out.
func Migrate(ctx context.Context, path string, out io.Writer) (report transfer.Report, err error) {
	m, err := vaultconf.LoadMigration(path)
	if err != nil {
		return report, err
	}
	if m.From.Type == "raft" && m.To.Type == "raft" {
		return report, errors.New("both storages are raft: take a snapshot of the one and restore it to the other")
	}
	log := logs.New(out, slog.LevelWarn, false).Logger()
	for _, w := range m.Warnings {
		log.Warn("configuration: " + w)
	}
	host := &secretsHost{fs: vfs.OS{}, clock: clock.Real{}, log: log,
		metrics: telemetry.New(telemetry.Config{Clock: clock.Real{}, Logger: log}), own: true, address: "migration"}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	if m.ClusterAddr != "" {
		if host.wire, host.address, err = migrationWire(m.ClusterAddr, log, host.metrics); err != nil {
			return report, fmt.Errorf("cluster_addr: %w", err)
		}
		running.Go(func() { _ = host.wire.Run(ctx) }) // it ends with ctx alone
	}
	from, err := openMigrated(ctx, host, "storage_source", m.From, &running)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, from.close()) }()
	to, err := openMigrated(ctx, host, "storage_destination", m.To, &running)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, to.close()) }()
	last := time.Now()
	return transfer.Run(ctx, transfer.Config{From: from.backend, To: to.backend, Progress: func(r transfer.Report) {
		if time.Since(last) > time.Second {
			last = time.Now()
			fmt.Fprintf(out, "%d records, %d bytes copied\n", r.Copied, r.Bytes)
		}
	}})
}

func migrationWire(addr string, log *slog.Logger, metrics *telemetry.Registry) (*wire.Wire, string, error) {
	u, err := url.Parse(addr)
	if err != nil || u.Hostname() == "" || u.Port() == "" {
		return nil, "", fmt.Errorf("%q must be a URL such as https://10.0.0.1:8201", addr)
	}
	address := net.JoinHostPort(u.Hostname(), u.Port())
	w, err := wire.New(wire.Config{Bind: address, TLS: cluster.Nobody(), Log: log, Metrics: metrics})
	return w, address, err
}

// migrated is a storage that this process has for itself.
type migrated struct {
	backend storage.Backend
	turn    storage.Leadership // of one that servers share; nil elsewhere
}

func openMigrated(ctx context.Context, host *secretsHost, name string, b vaultconf.Block,
	running *sync.WaitGroup) (*migrated, error) {
	if b.Type == "raft" && host.wire == nil {
		return nil, fmt.Errorf("cluster_addr: is missing, which %s \"raft\" needs: the address at which its server will be",
			name)
	}
	s, err := openStorage(ctx, host, b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	m := &migrated{backend: s.backend}
	for _, part := range s.parts {
		running.Go(func() { _ = part.Run(ctx) }) // what it fails with is seen by whoever reads or writes
	}
	wait, cancel := context.WithTimeout(ctx, turnTime)
	defer cancel()
	switch {
	case s.raft != nil:
		err = s.raft.Found(wait)
	case s.lock != nil:
		m.turn, err = s.lock.Acquire(wait)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: it could not be had alone; is a server running on it? %w", name, err),
			s.backend.Close())
	}
	return m, nil
}

func (m *migrated) close() error {
	if m.turn != nil {
		m.turn.Release(context.Background())
	}
	return m.backend.Close()
}
