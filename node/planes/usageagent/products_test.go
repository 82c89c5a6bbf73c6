package usageagentplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/plane"
	"corbel.dev/corbel/usage"
)

// TestDefinedAMomentAgo: a product that was defined after servers told theirs is asked for when the first event of it
// comes. What servers did not know is not asked for again at once, and names without end cost a few questions.
func TestDefinedAMomentAgo(t *testing.T) {
	fake := clock.NewFake(time.Unix(1e9, 0))
	fs := vfs.NewMem()
	if err := fs.MkdirAll("/d", 0o700); err != nil {
		t.Fatal(err)
	}
	d := &plane.Doors{Base: &base.Base{}}
	d.FS, d.Clock, d.Log = fs, fake, slog.New(slog.DiscardHandler)
	p := newProducts(d, "/d/products")
	var defined []*usage.Product
	questions := 0
	p.tell = func(context.Context) ([]byte, error) {
		questions++
		return json.Marshal(defined)
	}
	if err := p.ask(t.Context()); err != nil {
		t.Fatal(err)
	}
	defined = append(defined, &usage.Product{Name: "calls", Kind: usage.Sum})
	if _, err := p.get(t.Context(), "calls"); err != nil {
		t.Errorf("a product that was defined after the last answer: %v", err)
	}
	questions = 0
	for range 10 {
		if _, err := p.get(t.Context(), "seats"); !errkind.Is(err, errkind.NotFound) {
			t.Errorf("a product that is not defined: %v", err)
		}
	}
	if questions != 1 {
		t.Errorf("%d questions for one name within a moment, want 1", questions)
	}
	for i := range 1000 {
		_, _ = p.get(t.Context(), fmt.Sprint("none-", i)) // it is not defined
	}
	if questions != mostMissing {
		t.Errorf("%d questions for 1,001 names, want %d", questions, mostMissing)
	}
	defined = append(defined, &usage.Product{Name: "seats", Kind: usage.Sum})
	fake.Advance(askedAgain)
	if _, err := p.get(t.Context(), "seats"); err != nil {
		t.Errorf("a product that was defined since: %v", err)
	}
}

// TestBegin: metrics of an agent that starts wait for servers only where no file says what there was.
func TestBegin(t *testing.T) {
	fs := vfs.NewMem()
	if err := fs.MkdirAll("/d", 0o700); err != nil {
		t.Fatal(err)
	}
	d := &plane.Doors{Base: &base.Base{}}
	d.FS, d.Clock, d.Log = fs, clock.NewFake(time.Unix(1e9, 0)), slog.New(slog.DiscardHandler)
	away := errors.New("no server answers")
	reply, err := json.Marshal([]*usage.Product{{Name: "calls", Kind: usage.Sum}})
	if err != nil {
		t.Fatal(err)
	}
	for i, answer := range []error{away, nil, away} {
		p := newProducts(d, "/d/products")
		p.tell = func(context.Context) ([]byte, error) { return reply, answer }
		_, known := p.known("calls")
		if err := p.begin(t.Context()); (err == nil) != (answer == nil || known) {
			t.Errorf("start %d: %v", i, err)
		}
		if _, ok := p.known("calls"); ok != (i > 0) {
			t.Errorf("start %d: the product is known: %v", i, ok)
		}
	}
}
