package mounting

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/plugins"
	"corbel.dev/corbel/secrets/plugins/message"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables/tablestest"
)

// storer runs processes that store a record when they begin, and then do as begun says.
type storer struct {
	t     *testing.T
	begun func() error
	last  *stored
}

func (s *storer) Check(*plugins.Entry) error { return nil }

func (s *storer) Start(_ context.Context, l plugins.Launch) (plugins.Process, error) {
	s.last = &stored{storer: s, launch: l, hung: make(chan struct{}), ended: make(chan struct{})}
	return s.last, nil
}

type stored struct {
	*storer
	launch      plugins.Launch
	hung, ended chan struct{}
}

func (s *stored) Broker() uint32         { return 1 }
func (s *stored) Ended() <-chan struct{} { return s.ended }

func (s *stored) Kill() {
	select {
	case <-s.ended:
	default:
		close(s.ended)
	}
}

func (s *stored) Call(ctx context.Context, method string, _, out any) error {
	switch method {
	case message.Type:
		out.(*message.TypeReply).Type = message.TypeSecret
	case message.Initialize:
		if text := s.put(); text != "" {
			return errors.New(text)
		}
		return s.begun()
	case message.HandleRequest:
		close(s.hung)
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// put stores a record, and gives the error.
func (s *stored) put() string {
	put, err := message.Marshal(&message.StorageWrite{Entry: &message.StorageEntry{Key: "k", Value: []byte("v")}})
	if err != nil {
		s.t.Fatal(err)
	}
	done, err := s.launch.Serve(context.Background(), message.StoragePut, put)
	if err != nil {
		return err.Error()
	}
	return done.(*message.StorageDone).Err
}

// Of a mount that goes, or does not come to be, nothing is left, and what its process still does leaves nothing either.
func TestPluginsLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, s := tablestest.New(t), &storer{t: t, begun: func() error { return nil }}
		var m *Mounts
		p := plugins.New(plugins.Config{Runner: s, Now: d.Now, Log: slog.New(slog.DiscardHandler),
			BuiltIn: func(kind, name string) bool { return m.BuiltIn(kind, name) }}, d.Gate, d.Store)
		m = New(Config{Now: d.Now, Plugins: p}, d.Gate, d.Store)
		defer p.End()
		ask := func(op secrets.Operation, path, body string) error {
			_, err := d.Ask(t.Context(), m.Rows(), op, path, body)
			return err
		}
		left := func() int {
			records, err := d.Store.Scan(t.Context(), "logical/", storage.After("logical/"), 0)
			if err != nil {
				t.Fatal(err)
			}
			return len(records)
		}
		if err := ask(secrets.Update, "plugins/catalog/secret/mine", `{"command":"x","sha256":"`+
			strings.Repeat("ab", 32)+`"}`); err != nil {
			t.Fatal(err)
		}
		if err := ask(secrets.Update, "mounts/x", `{"type":"mine"}`); err != nil || left() != 1 {
			t.Fatal(err, left())
		}
		task := d.Task(secrets.Read, "x/a", "")
		answered := make(chan error)
		go func() { _, err := task.Handle(t.Context(), task.Request); answered <- err }()
		<-s.last.hung
		if text := s.last.put(); text != "" {
			t.Error(text)
		}
		if err := ask(secrets.Delete, "mounts/x", ""); err != nil {
			t.Error(err)
		}
		if text := s.last.put(); text == "" || left() != 0 {
			t.Errorf("stored after the end of the mount: %q, %d records", text, left())
		}
		if <-answered == nil {
			t.Error("answered")
		}
		for what, begun := range map[string]func() error{
			"a program that does not begin": func() error { return errors.New("no") },
			"a path that another takes meanwhile": func() error {
				st := *d.Gate.Load()
				st.Mounts = st.Mounts.With(&mount.Entry{Path: "y/", Type: "kv", UUID: "other"})
				d.Gate.Set(&st)
				return nil
			},
		} {
			s.begun = begun
			if err := ask(secrets.Update, "mounts/y", `{"type":"mine"}`); err == nil {
				t.Error(what, "is mounted")
			}
			if text := s.last.put(); text == "" || left() != 0 {
				t.Errorf("%s: %q, %d records", what, text, left())
			}
			<-s.last.ended
			st := *d.Gate.Load()
			st.Mounts = st.Mounts.Without("y/")
			d.Gate.Set(&st)
		}
	})
}
