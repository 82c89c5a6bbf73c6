package coordinates

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vivaldi"
	"corbel.dev/corbel/telemetry"
)

// store is a catalog whose leader is this server.
type store struct {
	mu sync.Mutex
	st *statestore.State
	n  int // commands
}

func (s *store) State() *statestore.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.st
}

func (s *store) Apply(_ context.Context, c catalog.Command) (catalog.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, results, _ := s.st.Apply([]catalog.Command{c})
	s.st, s.n = next, s.n+1
	return results[0], nil
}

func (s *store) at(node string) *catalog.Record {
	return s.State().Record(catalog.RecordCoordinate, node)
}

func staging(s *store, leads bool, ask func(method string, req []byte) error) *Staging {
	return New(Config{Catalog: s, Leads: func() bool { return leads }, Log: slog.New(slog.DiscardHandler),
		CallLeader: func(_ context.Context, method string, req []byte) ([]byte, error) { return nil, ask(method, req) },
		Grant: func(_ context.Context, token string) (*acl.Grant, error) {
			if token == "root" {
				return acl.Unlimited, nil
			}
			return &acl.Grant{Authorizer: acl.Compile(acl.Deny)}, nil
		}, Metrics: telemetry.New(telemetry.Config{})})
}

// TestCoordinatesReachTheCatalog: what an agent sends to a follower is written by the leader with the next batch, for
// nodes that are registered.
func TestCoordinatesReachTheCatalog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{st: statestore.Empty()}
		if _, err := s.Apply(t.Context(), &catalog.Register{Node: catalog.Node{Name: "Web-1",
			Address: "10.0.0.1"}}); err != nil {
			t.Fatal(err)
		}
		leader := staging(s, true, nil)
		follower := staging(s, false, func(method string, req []byte) error {
			if method != MethodJudged {
				t.Errorf("the leader is asked for %s", method)
			}
			_, err := leader.ServeJudged(t.Context(), req)
			return err
		})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = leader.Run(ctx) })
		running.Go(func() { _ = follower.Run(ctx) })
		own := vivaldi.New()
		own.Height = 0.25
		running.Go(func() {
			_ = Own{Now: func() vivaldi.Coord { return own }, Nodes: func() int { return 2 }, Log: slog.New(slog.DiscardHandler),
				Send: func(ctx context.Context, at vivaldi.Coord) error {
					_, err := follower.Serve(ctx, Update("root", "web-1", at))
					return err
				}}.Push(ctx)
		})
		follower.Stage("unknown", own)
		time.Sleep(time.Minute)
		cancel()
		running.Wait()
		if r := s.at("web-1"); r == nil || s.at("unknown") != nil {
			t.Fatalf("the catalog has %v, and of an unknown node %v", r, s.at("unknown"))
		} else if at, err := vivaldi.Decode(r.Value); err != nil || at != own {
			t.Errorf("the catalog has %v, %v", at, err)
		}
		if s.n != 2 { // the registration, and the one coordinate: it did not change
			t.Errorf("%d commands", s.n)
		}
	})
}

// TestRightsAndBounds: a token writes what it may, damaged messages are refused, and what waits is bounded.
func TestRightsAndBounds(t *testing.T) {
	c := staging(&store{st: statestore.Empty()}, true, nil)
	if _, err := c.Serve(t.Context(), Update("nobody", "web-1", vivaldi.New())); !errkind.Is(err, errkind.Denied) {
		t.Errorf("without a right: %v", err)
	}
	if _, err := c.Serve(t.Context(), Update("root", "web-1", vivaldi.New())[:12]); err == nil {
		t.Error("a damaged message was taken")
	}
	for i := range stagedLimit + 3 {
		c.Stage(strconv.Itoa(i), vivaldi.New())
	}
	if len(c.staged) != stagedLimit {
		t.Errorf("%d wait", len(c.staged))
	}
	if batch := c.take(); len(batch) != flushSize || len(c.staged) != stagedLimit-flushSize {
		t.Errorf("a batch has %d, %d wait on", len(batch), len(c.staged))
	}
}
