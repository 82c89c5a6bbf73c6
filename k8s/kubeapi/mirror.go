package kubeapi

import (
	"context"
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/k8s"
	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/errkind"
)

// maxMirrored bounds the objects of a mirror: a cluster of Kubernetes has at most 10,000 services and 150,000 pods.
const maxMirrored = 500_000

// MirrorConfig says what to mirror.
type MirrorConfig struct {
	Client *Client
	Path   string // of the list
	Log    *slog.Logger
	// Changed is called after each change, from Run's goroutine. It must not block.
	Changed func()
	// Retry are the pauses after failures; zero is 200 ms to 30 s.
	Retry backoff.Backoff
}

// Mirror holds all objects of a list as they were last told. What it shows is always a whole list and its events up to
// one moment: a list that breaks off changes nothing.
type Mirror[T any] struct {
	cfg      MirrorConfig
	Lists    atomic.Int64 // that were read to the end
	Failures atomic.Int64

	mu     sync.Mutex // guards what follows; held while a snapshot is taken
	synced bool
	items  map[string]T
}

// NewMirror makes a Mirror. Run fills it.
func NewMirror[T any](cfg MirrorConfig) *Mirror[T] {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Changed == nil {
		cfg.Changed = func() {}
	}
	if cfg.Retry.Min == 0 {
		cfg.Retry.Min, cfg.Retry.Max = 200*time.Millisecond, 30*time.Second
	}
	return &Mirror[T]{cfg: cfg}
}

// Items are the objects in the order of their keys; false before the first list was read.
func (m *Mirror[T]) Items() ([]T, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	keys := make([]string, 0, len(m.items))
	for key := range m.items {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	list := make([]T, len(keys))
	for i, key := range keys {
		list[i] = m.items[key]
	}
	return list, m.synced
}

// Run lists and watches until ctx ends. Pauses are drawn at random, so that all mirrors of a fleet do not list at once
// when an API server comes back.
func (m *Mirror[T]) Run(ctx context.Context) error {
	version := ""
	retry := m.cfg.Retry
	for ctx.Err() == nil {
		var err error
		if version == "" {
			version, err = m.list(ctx)
		}
		if err == nil {
			err = m.watch(ctx, &version, &retry)
		}
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			break
		}
		if Is(err, http.StatusGone) || errkind.Is(err, errkind.Invalid) {
			version = "" // too old, or an event that cannot be read: begin anew
		}
		m.Failures.Add(1)
		pause := retry.Next()
		m.cfg.Log.Warn("the mirror of "+m.cfg.Path+" is behind", "error", err, "retry_in", pause)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}

func (m *Mirror[T]) list(ctx context.Context) (string, error) {
	items := map[string]T{}
	version, err := m.cfg.Client.List(ctx, m.cfg.Path, func(raw []byte) error {
		key, item, err := decode[T](raw)
		if err != nil {
			return err
		}
		if items[key] = item; len(items) > maxMirrored {
			return errkind.Errorf(errkind.TooLarge, "%s has more than %d objects", m.cfg.Path, maxMirrored)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	m.mu.Lock()
	m.items, m.synced = items, true
	m.mu.Unlock()
	m.Lists.Add(1)
	m.cfg.Changed()
	return version, nil
}

func decode[T any](raw []byte) (key string, item T, err error) {
	var o k8s.Object
	if err = k8s.Decode(raw, &o); err == nil {
		err = k8s.Decode(raw, &item)
	}
	return o.Metadata.Key(), item, err
}

// watch follows from *version, which goes on with what is told.
func (m *Mirror[T]) watch(ctx context.Context, version *string, retry *backoff.Backoff) error {
	most := 4*time.Minute + rand.N(4*time.Minute)
	begun := time.Now()
	err := m.cfg.Client.Watch(ctx, m.cfg.Path, *version, most, func(e Event) error {
		retry.Reset()
		if e.Type == "BOOKMARK" {
			var o k8s.Object
			if err := json.Unmarshal(e.Object, &o); err != nil {
				return errkind.E(errkind.Invalid, "read bookmark", err)
			}
			*version = newer(*version, o.Metadata.ResourceVersion)
			return nil
		}
		return m.change(e, version)
	})
	if err == nil && time.Since(begun) < time.Second {
		return errkind.Errorf(errkind.Unavailable, "the watch of %s ended at once", m.cfg.Path)
	}
	return err
}

func newer(old, version string) string {
	if strings.TrimSpace(version) == "" {
		return old
	}
	return version
}

func (m *Mirror[T]) change(e Event, version *string) error {
	var o k8s.Object
	if err := k8s.Decode(e.Object, &o); err != nil {
		return err
	}
	key := o.Metadata.Key()
	switch e.Type {
	case "ADDED", "MODIFIED":
		var item T
		if err := k8s.Decode(e.Object, &item); err != nil {
			return err
		}
		m.mu.Lock()
		full := len(m.items) >= maxMirrored
		m.items[key] = item
		m.mu.Unlock()
		if full {
			return errkind.Errorf(errkind.Invalid, "%s has more than %d objects", m.cfg.Path, maxMirrored)
		}
	case "DELETED":
		m.mu.Lock()
		delete(m.items, key)
		m.mu.Unlock()
	default:
		return errkind.Errorf(errkind.Invalid, "an event of the unknown type %q", e.Type)
	}
	*version = newer(*version, o.Metadata.ResourceVersion)
	m.cfg.Changed()
	return nil
}
