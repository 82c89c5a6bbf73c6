// Package rediscache is the remote cache of the usage plane in a Redis or Valkey of somebody's own, single or a
// cluster, behind the seam of usage/remote. It is the one place that speaks to them with a library of theirs.
//
// What always holds: a call ends when its context does, and after Config.Timeout at the latest; commands of one call
// travel in one pipeline, at most BatchKeys at a time; a server that does not answer is an error of kind Unavailable.
// New connects to nothing; Close ends the connections.
package rediscache

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"time"

	"github.com/redis/go-redis/v9"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/usage/remote"
)

// Config of a Store.
type Config struct {
	// URLs are redis://user:password@host:port, or rediss:// with TLS. Several are hosts of a cluster; so is one with
	// ?cluster=true.
	URLs []string
	// BatchKeys bounds a pipeline; zero means 256. Timeout bounds a call; zero means a second.
	BatchKeys int
	Timeout   time.Duration
	// Conns bounds the connections to a host; zero means 8.
	Conns int
}

// Store is a remote.Store in Redis.
type Store struct {
	cfg    Config
	client redis.UniversalClient
}

var _ remote.Store = (*Store)(nil)

// New makes a Store. Kind Invalid; no error shows a password.
func New(cfg Config) (*Store, error) {
	cfg.BatchKeys = cmp.Or(cfg.BatchKeys, 256)
	cfg.Timeout = cmp.Or(cfg.Timeout, time.Second)
	o := &redis.UniversalOptions{ClientName: "corbel-usage", PoolSize: cmp.Or(cfg.Conns, 8), DialTimeout: cfg.Timeout,
		ReadTimeout: cfg.Timeout, WriteTimeout: cfg.Timeout, ContextTimeoutEnabled: true,
		IsClusterMode: len(cfg.URLs) > 1}
	for _, text := range cfg.URLs {
		u, err := url.Parse(text)
		if err != nil || u.Hostname() == "" || u.Scheme != "redis" && u.Scheme != "rediss" {
			return nil, errkind.New(errkind.Invalid, "usage.cache.redis: must be redis://host:port or rediss://host:port")
		}
		o.Addrs = append(o.Addrs, net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "6379")))
		if u.User != nil {
			o.Username = u.User.Username()
			o.Password, _ = u.User.Password()
		}
		if u.Scheme == "rediss" {
			o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: u.Hostname()}
		}
		o.IsClusterMode = o.IsClusterMode || u.Query().Get("cluster") == "true"
	}
	if len(o.Addrs) == 0 {
		return nil, errkind.New(errkind.Invalid, "usage.cache.redis: is empty")
	}
	if len(o.Addrs) > 1 && o.TLSConfig != nil {
		o.TLSConfig.ServerName = "" // each host shows its own name
	}
	return &Store{cfg: cfg, client: redis.NewUniversalClient(o)}, nil
}

// Close ends the connections.
func (s *Store) Close() error { return s.client.Close() }

// pipe sends commands in pipelines, and judges them by their own errors; one that is nil was not there.
func (s *Store) pipe(ctx context.Context, n int, add func(p redis.Pipeliner, i int) redis.Cmder) (
	[]redis.Cmder, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	cmds := make([]redis.Cmder, 0, n)
	for from := 0; from < n; from += s.cfg.BatchKeys {
		p := s.client.Pipeline()
		for i := from; i < min(from+s.cfg.BatchKeys, n); i++ {
			cmds = append(cmds, add(p, i))
		}
		_, err := p.Exec(ctx)
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, failed(err)
		}
	}
	return cmds, nil
}

// failed gives an error its kind: what the server said, or that it cannot be reached.
func failed(err error) error {
	var said redis.Error
	if errors.As(err, &said) {
		return errkind.E(errkind.Internal, "usage cache", err)
	}
	return errkind.E(errkind.Unavailable, "usage cache", err)
}

// Get implements remote.Store.
func (s *Store) Get(ctx context.Context, keys ...string) ([][]byte, error) {
	cmds, err := s.pipe(ctx, len(keys), func(p redis.Pipeliner, i int) redis.Cmder { return p.Get(ctx, keys[i]) })
	if err != nil {
		return nil, err
	}
	out := make([][]byte, len(keys))
	for i, cmd := range cmds {
		b, err := cmd.(*redis.StringCmd).Bytes()
		switch {
		case errors.Is(err, redis.Nil):
		case err != nil:
			return nil, failed(err)
		default:
			out[i] = append([]byte{}, b...)
		}
	}
	return out, nil
}

// Set implements remote.Store.
func (s *Store) Set(ctx context.Context, items ...remote.Item) error {
	_, err := s.pipe(ctx, len(items), func(p redis.Pipeliner, i int) redis.Cmder {
		return p.Set(ctx, items[i].Key, items[i].Value, items[i].Life)
	})
	return err
}

// Delete implements remote.Store.
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	_, err := s.pipe(ctx, len(keys), func(p redis.Pipeliner, i int) redis.Cmder { return p.Unlink(ctx, keys[i]) })
	return err
}

// change sends a command about a key and, where it is to have a life, that.
func (s *Store) change(ctx context.Context, key string, life time.Duration, cmd func(redis.Pipeliner) redis.Cmder) (
	redis.Cmder, error) {
	n := 1
	if life > 0 {
		n = 2
	}
	cmds, err := s.pipe(ctx, n, func(p redis.Pipeliner, i int) redis.Cmder {
		if i == 0 {
			return cmd(p)
		}
		return p.PExpire(ctx, key, max(life, time.Millisecond))
	})
	if err != nil {
		return nil, err
	}
	return cmds[0], nil
}

func anys(texts []string) []any {
	list := make([]any, len(texts))
	for i, t := range texts {
		list[i] = t
	}
	return list
}

// Add implements remote.Store.
func (s *Store) Add(ctx context.Context, key string, life time.Duration, members ...string) (int, error) {
	if len(members) == 0 {
		return 0, nil
	}
	cmd, err := s.change(ctx, key, life, func(p redis.Pipeliner) redis.Cmder { return p.SAdd(ctx, key, anys(members)...) })
	if err != nil {
		return 0, err
	}
	return int(cmd.(*redis.IntCmd).Val()), nil
}

// Has implements remote.Store.
func (s *Store) Has(ctx context.Context, key string, members ...string) ([]bool, error) {
	if len(members) == 0 {
		return nil, nil
	}
	cmds, err := s.pipe(ctx, 1, func(p redis.Pipeliner, _ int) redis.Cmder {
		return p.SMIsMember(ctx, key, anys(members)...)
	})
	if err != nil {
		return nil, err
	}
	return cmds[0].(*redis.BoolSliceCmd).Val(), nil
}

// Count implements remote.Store.
func (s *Store) Count(ctx context.Context, key string, life time.Duration, members ...string) (int64, error) {
	if _, err := s.change(ctx, key, life, func(p redis.Pipeliner) redis.Cmder {
		return p.PFAdd(ctx, key, anys(members)...)
	}); err != nil {
		return 0, err
	}
	cmds, err := s.pipe(ctx, 1, func(p redis.Pipeliner, _ int) redis.Cmder { return p.PFCount(ctx, key) })
	if err != nil {
		return 0, err
	}
	return cmds[0].(*redis.IntCmd).Val(), nil
}
