package usageplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/s3bucket"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/plane"
	usagecacheplane "corbel.dev/corbel/node/planes/usagecache"
	"corbel.dev/corbel/usage/counterstate"
	"corbel.dev/corbel/usage/counterstate/cacheblobs"
	"corbel.dev/corbel/usage/counterstate/pgblobs"
	"corbel.dev/corbel/usage/counterstate/s3blobs"
	"corbel.dev/corbel/usage/eventlog/kafkalog"
	"corbel.dev/corbel/usage/remote"
	"corbel.dev/corbel/usage/remote/rediscache"
)

// checkPlaces names what is wrong with the places of the log and of snapshots.
func checkPlaces(k *Keys) (wrong []error) {
	fail := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	kafka, s3 := &k.Log.Kafka, &k.Copies.S3
	for i, b := range kafka.Brokers {
		if _, port, err := net.SplitHostPort(b); err != nil || port == "" {
			fail("usage.log.kafka.brokers[%d]: %q is not host:port", i, b)
		}
	}
	if len(kafka.Brokers) == 0 && (kafka.User != "" || kafka.TLS || kafka.CAFile != "" || kafka.Replicas != 0) {
		fail("usage.log.kafka.brokers: is missing")
	}
	if kafka.Topic != "" && !kafkalog.TopicName(kafka.Topic) {
		fail("usage.log.kafka.topic: %q has others than 1 to 200 letters, digits, dots, underscores and dashes", kafka.Topic)
	}
	if kafka.Replicas < 0 || kafka.Replicas > 15 {
		fail("usage.log.kafka.replicas: %d is not 1 to 15", kafka.Replicas)
	}
	if !slices.Contains([]string{"", "plain", "scram-sha-256", "scram-sha-512"}, kafka.SASL) {
		fail("usage.log.kafka.sasl: %q is not plain, scram-sha-256 or scram-sha-512", kafka.SASL)
	}
	if (kafka.User == "") != (kafka.Password == "") || kafka.SASL != "" && kafka.User == "" {
		fail("usage.log.kafka.user, password: belong together: one is missing")
	}
	if _, err := kafka.secure(); err != nil {
		fail("usage.log.kafka.ca_file: %w", err)
	}
	if k.Copies.Every < time.Second {
		fail("usage.snapshots.every: must be at least 1s")
	}
	if s3.Bucket == "" && (s3.Endpoint != "" || s3.AccessKey != "" || s3.Region != "") {
		fail("usage.snapshots.s3.bucket: is missing")
	}
	if s3.Bucket != "" {
		if b, err := s3blobs.New(s3.config()); err != nil {
			fail("usage.snapshots.s3: %w", err)
		} else {
			b.Close()
		}
	}
	return wrong
}

func (s *S3Keys) config() s3bucket.Config {
	return s3bucket.Config{Endpoint: s.Endpoint, Region: s.Region, Bucket: s.Bucket, Path: s.Path, AccessKey: s.AccessKey,
		SecretKey: s.SecretKey, PathStyle: s.PathStyle, KMSKey: s.KMSKey}
}

// secure is how brokers are spoken to; nil is plain text.
func (k *KafkaKeys) secure() (*tls.Config, error) {
	if !k.TLS && k.CAFile == "" {
		return nil, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if k.CAFile != "" {
		pem, err := os.ReadFile(k.CAFile)
		if err != nil {
			return nil, err
		}
		if cfg.RootCAs = x509.NewCertPool(); !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate", k.CAFile)
		}
	}
	return cfg, nil
}

// place is where copies go. It is opened when it is first used, since that asks the network, and again after a failure.
type place struct {
	open func(ctx context.Context) (counterstate.Blobs, func(), error)

	mu    sync.Mutex // guards what follows
	blobs counterstate.Blobs
	shut  func()
}

var errShut = errkind.New(errkind.Unavailable, "usage: the plane has ended")

func (b *place) get(ctx context.Context) (counterstate.Blobs, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.blobs != nil {
		return b.blobs, nil
	}
	if b.open == nil {
		return nil, errShut
	}
	var err error
	b.blobs, b.shut, err = b.open(ctx)
	return b.blobs, err
}

func (b *place) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shut != nil {
		b.shut()
	}
	b.open, b.blobs, b.shut = nil, nil, nil
}

// Put implements counterstate.Blobs.
func (b *place) Put(ctx context.Context, name string, data []byte) error {
	blobs, err := b.get(ctx)
	if err != nil {
		return err
	}
	return blobs.Put(ctx, name, data)
}

// Get implements counterstate.Blobs.
func (b *place) Get(ctx context.Context, name string) ([]byte, error) {
	blobs, err := b.get(ctx)
	if err != nil {
		return nil, err
	}
	return blobs.Get(ctx, name)
}

// List implements counterstate.Blobs.
func (b *place) List(ctx context.Context, prefix string) ([]string, error) {
	blobs, err := b.get(ctx)
	if err != nil {
		return nil, err
	}
	return blobs.List(ctx, prefix)
}

// Delete implements counterstate.Blobs.
func (b *place) Delete(ctx context.Context, name string) error {
	blobs, err := b.get(ctx)
	if err != nil {
		return err
	}
	return blobs.Delete(ctx, name)
}

// cachePatience bounds a call of the cache that has a piece of a snapshot.
const cachePatience = 10 * time.Second

// openOwnCache opens the cache of this cluster, at the hosts that the catalog knows, by a client that lives as long as
// the place. It logs in with the password that all of them have, or with this server's token, which needs service:write
// there.
func openOwnCache(d *plane.Doors, k *Keys) (counterstate.Blobs, func(), error) {
	secure, err := base.HTTPSClient(d.Cfg)
	if err != nil {
		return nil, nil, err
	}
	cfg := remote.Config{Hosts: usagecacheplane.HostsOf(d, k.Cache.Replicas), MaintenanceKey: k.Drain.MaintenanceKey,
		Replicas: k.Cache.Replicas, Timeout: cachePatience, Metrics: d.Metrics, Log: d.Log,
		Password: func() string { return k.Cache.Password }}
	if k.Cache.Password == "" && d.Cfg.ACL.Enabled {
		cfg.Password = d.Tokens.Own
	}
	if secure != nil {
		dialer := &tls.Dialer{Config: secure}
		cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", addr) }
	}
	client := remote.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = client.Run(ctx) // it ends with ctx, and without an error
	}()
	return cacheblobs.New(cacheblobs.Config{Store: client}), func() { cancel(); <-ended }, nil
}

// openPlaces makes the places that have copies of snapshots, in the order in which they are asked.
func (s *storage) openPlaces() (stores []*counterstate.Store) {
	k := s.keys
	add := func(name string, open func(ctx context.Context) (counterstate.Blobs, func(), error)) {
		b := &place{open: open}
		s.places = append(s.places, b)
		stores = append(stores, s.store(b, name))
	}
	if k.Copies.Cache && len(k.Cache.Redis) == 0 {
		add("cache", func(context.Context) (counterstate.Blobs, func(), error) { return openOwnCache(s.d, k) })
	} else if k.Copies.Cache {
		add("cache", func(context.Context) (counterstate.Blobs, func(), error) {
			c, err := rediscache.New(rediscache.Config{URLs: k.Cache.Redis, Timeout: cachePatience})
			if err != nil {
				return nil, nil, err
			}
			return cacheblobs.New(cacheblobs.Config{Store: c}), func() { _ = c.Close() }, nil
		})
	}
	if k.Copies.PostgreSQL != "" {
		add("postgresql", func(ctx context.Context) (counterstate.Blobs, func(), error) {
			b, err := pgblobs.Open(ctx, pgblobs.Config{DSN: k.Copies.PostgreSQL})
			if err != nil {
				return nil, nil, err
			}
			return b, b.Close, nil
		})
	}
	if k.Copies.S3.Bucket != "" {
		add("s3", func(ctx context.Context) (counterstate.Blobs, func(), error) {
			b, err := s3blobs.New(k.Copies.S3.config())
			if err == nil {
				err = b.Check(ctx)
			}
			if err != nil {
				return nil, nil, err
			}
			return b, b.Close, nil
		})
	}
	return stores
}
