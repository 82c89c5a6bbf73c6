package operatorrows

import (
	"context"
	"io"
	"strconv"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
)

// KeyAnswer is what the members of a pool said about their gossip keys.
type KeyAnswer struct {
	WAN               bool
	NumNodes          int
	Keys, PrimaryKeys map[string]int // key -> members
	Messages          map[string]string
}

// Keyring changes the gossip keys of the pools that this server is in.
type Keyring interface {
	// ListKeys asks all members; with localOnly this one alone.
	ListKeys(ctx context.Context, localOnly bool) ([]KeyAnswer, error)
	InstallKey(ctx context.Context, key string) error
	UseKey(ctx context.Context, key string) error
	RemoveKey(ctx context.Context, key string) error
}

// relayFactor checks ?relay-factor=. Answers come straight from each member here: it changes nothing.
func relayFactor(q *rows.Request) error {
	v, ok := q.Query.Get("relay-factor")
	if !ok {
		return nil
	}
	if n, err := strconv.Atoi(v); err != nil || n < 0 || n > 5 {
		return answer.Invalidf("Error parsing relay factor: must be in range: [0, 5]")
	}
	return nil
}

func (or *Rows) keyring(q *rows.Request, l acl.Level) (Keyring, error) {
	if err := q.Allow(acl.Keyring, "", l); err != nil {
		return nil, err
	}
	if err := relayFactor(q); err != nil {
		return nil, err
	}
	if or.Keyring == nil {
		return nil, answer.Invalidf("keyring is empty: gossip is not encrypted (set encrypt on all members)")
	}
	return or.Keyring, nil
}

func (or *Rows) keyringList(q *rows.Request) error {
	localOnly := false
	if v, ok := q.Query.Get("local-only"); ok {
		on, err := strconv.ParseBool(v)
		if v != "" && err != nil {
			return answer.Invalidf("Error parsing local-only: %v", err)
		}
		localOnly = on || v == ""
	}
	k, err := or.keyring(q, acl.Read)
	if err != nil {
		return err
	}
	answers, err := k.ListKeys(q.R.Context(), localOnly)
	if err != nil {
		return err
	}
	type wire struct {
		WAN               bool
		Datacenter        string
		Segment           string
		Messages          map[string]string `json:",omitempty"`
		Keys, PrimaryKeys map[string]int
		NumNodes          int
	}
	list := []wire{}
	for _, a := range answers {
		list = append(list, wire{a.WAN, q.Identity.Datacenter, "", a.Messages, a.Keys, a.PrimaryKeys, a.NumNodes})
	}
	return q.ReplyValue(list)
}

// keyringChange runs one of the changes with the body's key.
func (or *Rows) keyringChange(q *rows.Request, change func(Keyring, context.Context, string) error) error {
	if q.Query.Has("local-only") {
		return answer.Invalidf("argument local-only is only valid when reading keys")
	}
	k, err := or.keyring(q, acl.Write)
	if err != nil {
		return err
	}
	var in struct{ Key string }
	if err := q.Decode(&in); err != nil {
		return err
	}
	if in.Key == "" {
		return answer.Invalidf("Key: a base64 gossip key is needed")
	}
	if err := change(k, q.R.Context(), in.Key); err != nil {
		return err
	}
	return q.ReplyEmpty()
}

func (or *Rows) keyringInstall(q *rows.Request) error {
	return or.keyringChange(q, Keyring.InstallKey)
}

func (or *Rows) keyringUse(q *rows.Request) error { return or.keyringChange(q, Keyring.UseKey) }

func (or *Rows) keyringRemove(q *rows.Request) error {
	return or.keyringChange(q, Keyring.RemoveKey)
}

// operatorUsage counts what is registered.
func operatorUsage(q *rows.Request) error {
	if err := q.Allow(acl.Operator, "", acl.Read); err != nil {
		return err
	}
	st, err := q.Read(registry.Subject{Topic: registry.TopicServices}, (*statestore.State).ServicesIndex)
	if err != nil {
		return err
	}
	counts := st.Counts()
	type usage struct {
		Nodes, Services, ServiceInstances int
		ConnectServiceInstances           map[string]int
		BillableServiceInstances          int
	}
	u := usage{Nodes: counts.Nodes, Services: counts.Services, ServiceInstances: counts.Instances,
		ConnectServiceInstances: map[string]int{"api-gateway": 0, "connect-native": 0, "connect-proxy": 0,
			"ingress-gateway": 0, "mesh-gateway": 0, "terminating-gateway": 0}}
	for n := range st.Nodes() {
		for s := range st.ServicesOfNode(n.Name) {
			switch {
			case s.Native:
				u.ConnectServiceInstances["connect-native"]++
			case s.Kind != "":
				u.ConnectServiceInstances[s.Kind]++
			}
			if s.Kind == "" && s.Name != "consul" {
				u.BillableServiceInstances++
			}
		}
	}
	return q.ReplyValue(map[string]any{"Usage": map[string]usage{q.Identity.Datacenter: u}})
}

// snapshotSave answers with an archive. Unless it may be stale it comes from the
// leader, after a quorum has confirmed that it leads.
func (or *Rows) snapshotSave(q *rows.Request) error {
	if err := q.Allow(acl.ACL, "", acl.Write); err != nil {
		return err
	}
	if err := q.ReadParams(); err != nil {
		return err
	}
	if or.Snapshots == nil {
		return answer.ErrNoServers
	}
	if q.Mode != registry.Stale {
		q.Mode = registry.Consistent
	}
	contact, err := q.Contact()
	if err != nil {
		return err // NotLeader: fail forwards
	}
	archive, index, err := or.Snapshots.Save(q.R.Context())
	if err != nil {
		return err
	}
	defer archive.Close()
	q.ReadHeaders(contact, index)
	q.W.Header()["Content-Type"] = []string{"application/x-gzip"}
	if _, err := io.Copy(q.W, q.Standing().Reader(archive)); err != nil {
		q.Logger.Warn("a snapshot was not sent completely", "err", err)
		answer.Cut()
	}
	return nil
}

// snapshotRestore replaces everything by what the archive holds. Blocked queries return.
func (or *Rows) snapshotRestore(q *rows.Request) error {
	if err := q.Allow(acl.ACL, "", acl.Write); err != nil {
		return err
	}
	if or.Snapshots == nil {
		return answer.ErrNoServers
	}
	// Asked before the body is read: it can be passed on only once.
	if _, err := q.Registry.Read(q.R.Context(), registry.Consistent); err != nil {
		return err
	}
	switch err := or.Snapshots.Restore(q.R.Context(), q.Standing().Reader(q.R.Body)); {
	case errkind.Is(err, errkind.Corrupt):
		return errkind.E(errkind.Invalid, "failed to restore", err)
	case err != nil:
		return err
	}
	return q.ReplyEmpty()
}
