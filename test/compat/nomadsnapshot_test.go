package compat

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	nomad "github.com/hashicorp/nomad/api"
)

// savedNomad is a whole archive: the client compares its digest.
func savedNomad(t *testing.T, cl *nomad.Client) []byte {
	t.Helper()
	archive, err := cl.Operator().Snapshot(nil)
	must(t, err)
	text, err := io.ReadAll(archive)
	must(t, errors.Join(err, archive.Close()))
	return text
}

// restored has Nomad's client save and restore: what came after the snapshot is gone, what was there before is as it
// was and runs on untouched, a stream of events ends, and a client follows again from the index that it knows.
func restored(t *testing.T, cl *nomad.Client, runs string) {
	t.Helper()
	word := func(text string) *nomad.Variable {
		return &nomad.Variable{Path: "app/a", Items: map[string]string{"word": text}}
	}
	_, _, err := cl.Variables().Create(word("before"), nil)
	must(t, err)
	began := func() string {
		a, _, err := cl.Allocations().Info(runs, nil)
		must(t, err)
		return fmt.Sprint(a.ClientStatus, " ", a.TaskStates["main"].StartedAt, " ", a.TaskStates["main"].Restarts)
	}
	root, err := nomad.NewClient(&nomad.Config{Address: cl.Address(), SecretID: "root"}) // whom dev lets do it
	must(t, err)
	was, saved := began(), savedNomad(t, root)
	_, _, err = cl.Variables().Update(word("after"), nil)
	must(t, err)
	_, made, err := cl.Jobs().Register(sleeper("later", 0), nil)
	must(t, err)

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	follow := func(index uint64) <-chan *nomad.Events {
		events, err := cl.EventStream().Stream(ctx, map[nomad.Topic][]string{nomad.TopicJob: {"*"}}, index, nil)
		must(t, err)
		return events
	}
	before := follow(made.LastIndex)
	if batch := <-before; batch == nil || batch.Err != nil || batch.Index < made.LastIndex {
		t.Fatalf("events from %d on: %+v", made.LastIndex, batch)
	}
	done, err := root.Operator().SnapshotRestore(bytes.NewReader(saved), nil)
	must(t, err)
	if done.LastIndex < made.LastIndex+1<<20 {
		t.Errorf("the index went from %d to %d", made.LastIndex, done.LastIndex)
	}
	last, end := made.LastIndex, error(nil)
	for batch := range before {
		last, end = max(last, batch.Index), batch.Err
	}
	if end == nil {
		t.Error("the stream of events did not end")
	}
	_, _, err = cl.Jobs().Info("later", nil)
	wantError(t, err, "404")
	v, _, err := cl.Variables().Read("app/a", nil)
	must(t, err)
	if v.Items["word"] != "before" {
		t.Errorf("the variable is %v", v.Items)
	}
	if now := began(); now != was {
		t.Errorf("the task that ran was %s, and is %s", was, now)
	}
	after := follow(last + 1)
	_, _, err = cl.Jobs().Register(sleeper("after", 0), nil)
	must(t, err)
	for batch := range after {
		if batch.Err != nil || batch.Index <= done.LastIndex {
			t.Fatalf("after the restore at %d: %+v", done.LastIndex, batch)
		}
		if batch.Events[0].Key == "after" {
			return
		}
	}
	t.Error("no event of what came after the restore")
}
