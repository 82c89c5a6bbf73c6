package compat

import (
	"encoding/base64"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
)

func TestEvents(t *testing.T) {
	client := consul(t)
	before, meta, err := client.Event().List("ev-deploy", nil)
	must(t, err)
	if len(before) != 0 {
		t.Fatalf("%d events", len(before))
	}
	type answer struct {
		list []*api.UserEvent
		err  error
	}
	woken := make(chan answer, 1)
	go func() {
		list, _, err := client.Event().List("ev-deploy", &api.QueryOptions{WaitIndex: meta.LastIndex, WaitTime: time.Minute})
		woken <- answer{list, err}
	}()
	id, _, err := client.Event().Fire(&api.UserEvent{Name: "ev-deploy", Payload: []byte("v7"), NodeFilter: "^compat$"},
		nil)
	must(t, err)
	select {
	case got := <-woken:
		must(t, got.err)
		if len(got.list) != 1 || got.list[0].ID != id || string(got.list[0].Payload) != "v7" || got.list[0].LTime == 0 {
			t.Fatalf("%+v", got.list)
		}
	case <-time.After(time.Minute):
		t.Fatal("nobody was woken")
	}
	_, meta, err = client.Event().List("ev-deploy", nil)
	must(t, err)
	if meta.LastIndex != client.Event().IDToIndex(id) {
		t.Errorf("index %d, the client makes %d of the ID", meta.LastIndex, client.Event().IDToIndex(id))
	}
	_, _, err = client.Event().Fire(&api.UserEvent{Name: "ev-deploy", NodeFilter: "^elsewhere$"}, nil)
	must(t, err)
	if list, _, err := client.Event().List("ev-deploy", nil); err != nil || len(list) != 1 {
		t.Errorf("an event for another node is listed here: %v %v", list, err)
	}
	if _, _, err := client.Event().Fire(&api.UserEvent{Name: "ev-deploy", TagFilter: "x"}, nil); err == nil {
		t.Error("a tag without a service was taken")
	}
}

func TestKeyring(t *testing.T) {
	first, second := base64.StdEncoding.EncodeToString(make([]byte, 32)),
		base64.StdEncoding.EncodeToString([]byte("0123456789abcdef"))
	ports, err := freePorts(1)
	must(t, err)
	n := run(t, "server", "keys-1", "-data-dir="+t.TempDir(), "-bootstrap-expect=1", "-encrypt="+first, "-hcl", open,
		"-hcl", fmt.Sprintf("ports { serf_wan = %d }", ports[0]))
	must(t, n.await())
	op := n.client(t).Operator()
	var rings []*api.KeyringResponse
	eventually(t, "both pools to run", func() (err error) {
		rings, err = op.KeyringList(nil)
		return err
	})
	if len(rings) != 2 || rings[0].WAN == rings[1].WAN || rings[0].Keys[first] != 1 || rings[1].PrimaryKeys[first] != 1 {
		t.Fatalf("%+v", rings)
	}
	must(t, op.KeyringInstall(second, nil))
	must(t, op.KeyringUse(second, nil))
	must(t, op.KeyringRemove(first, nil))
	if err := op.KeyringRemove(second, nil); err == nil {
		t.Error("the primary key was removed")
	}
	rings, err = op.KeyringList(&api.QueryOptions{LocalOnly: true})
	must(t, err)
	for _, r := range rings {
		if len(r.Keys) != 1 || r.PrimaryKeys[second] != 1 {
			t.Errorf("%+v", r)
		}
	}
	usage, _, err := op.Usage(nil)
	must(t, err)
	if u := usage.Usage["dc1"]; u.Services != 1 || u.ServiceInstances != 1 || u.BillableServiceInstances != 0 {
		t.Errorf("%+v", u)
	}
}
