package migrate

import (
	"bytes"
	"context"
	"errors"
	"sync"

	"corbel.dev/corbel/client"
)

// writers is how many keys are written at once: enough to fill group commit, not enough to hurt.
const writers = 16

func (r *run) keys(ctx context.Context) error {
	all, _, err := r.cfg.From.KV().List(ctx, "", client.Query{Consistent: true})
	if err != nil {
		return err
	}
	have, _, err := r.cfg.To.KV().List(ctx, "", client.Query{Consistent: true})
	if err != nil {
		return err
	}
	there := make(map[string]*client.KVPair, len(have))
	for i := range have {
		there[have[i].Key] = &have[i]
	}
	work := make(chan *client.KVPair) // unbuffered: the writers set the pace
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for p := range work {
				r.key(ctx, p, there[p.Key])
			}
		})
	}
	for i := range all {
		if ctx.Err() != nil {
			break
		}
		work <- &all[i]
	}
	close(work)
	wg.Wait()
	return ctx.Err()
}

// key writes one key by check-and-set: nobody's newer value is lost.
func (r *run) key(ctx context.Context, p, have *client.KVPair) {
	it := Item{Kind: "keys", Name: p.Key, Result: Created}
	var cas uint64
	switch {
	case have == nil:
	case bytes.Equal(have.Value, p.Value) && have.Flags == p.Flags:
		it.Result = Unchanged
	case !r.cfg.Overwrite:
		it.Result, it.Why = Differs, "has another value in the target: run again with --overwrite if the source's is right"
	default:
		it.Result, cas = Updated, have.ModifyIndex
	}
	if (it.Result == Created || it.Result == Updated) && !r.cfg.DryRun {
		ok, err := r.cfg.To.KV().Put(ctx, p.Key, p.Value, client.KVWrite{Flags: p.Flags, CAS: &cas})
		if err == nil && !ok {
			err = errors.New("somebody wrote it in the target meanwhile: run again")
		}
		if err != nil {
			it.Result, it.Why = Failed, err.Error()
		}
	}
	r.note(it)
}

// catalog brings the nodes that have no agent. An agent registers its node and services itself when it is pointed at
// the target.
func (r *run) catalog(ctx context.Context) error {
	nodes, err := list(ctx, r.cfg.From, "/v1/catalog/nodes")
	if err != nil {
		return err
	}
	agents := map[string]bool{}
	for _, cl := range []*client.Client{r.cfg.From, r.cfg.To} {
		members, err := cl.Members(ctx, client.Query{})
		if err != nil {
			return err
		}
		for _, m := range members {
			agents[m.Name] = true
		}
	}
	for _, node := range nodes {
		name := text(node, "Node")
		if agents[name] {
			r.skip("catalog", name, "has an agent, which registers it and its services in the target once it joins there")
			continue
		}
		if err := r.node(ctx, node); err != nil {
			r.fail("catalog", name, err)
		}
	}
	return nil
}

// registered is a node with what stands on it, in the form that is compared.
type registered struct {
	Node     object
	Services object
	Checks   []any
}

// readNode reads a node's services and checks; nil when there is none.
func readNode(ctx context.Context, cl *client.Client, name string) (*registered, error) {
	on, err := one(ctx, cl, "/v1/catalog/node/"+client.Escape(name))
	if err != nil || on == nil || on["Node"] == nil {
		return nil, err
	}
	checks, err := list(ctx, cl, "/v1/health/node/"+client.Escape(name))
	if err != nil {
		return nil, err
	}
	out := &registered{Services: object{}}
	out.Node, _ = on["Node"].(object)
	if services, ok := on["Services"].(object); ok {
		out.Services = services
	}
	for _, c := range checks {
		out.Checks = append(out.Checks, c)
	}
	return out, nil
}

func (r *run) node(ctx context.Context, node object) error {
	name := text(node, "Node")
	want, err := readNode(ctx, r.cfg.From, name)
	if err != nil || want == nil {
		return err
	}
	have, err := readNode(ctx, r.cfg.To, name)
	if err != nil {
		return err
	}
	// The datacenter is the target's own, and the id stays: it is the node's.
	for _, side := range []*registered{want, have} {
		if side == nil {
			continue
		}
		strip(side.Node, "Datacenter", "PeerName")
		for _, s := range side.Services {
			if service, ok := s.(object); ok {
				strip(service, "Datacenter", "PeerName")
			}
		}
		for _, c := range side.Checks {
			if check, ok := c.(object); ok {
				strip(check, "ServiceName", "ServiceTags") // the service's, which is compared itself
			}
		}
	}
	var there any
	if have != nil {
		there = have
	}
	r.place("catalog", name, want, there, func() error { return r.register(ctx, want) })
	return nil
}

// register writes the node, then each service, then the checks: each call stands for itself, so a run that broke off
// goes on.
func (r *run) register(ctx context.Context, n *registered) error {
	base := object{"Node": n.Node["Node"], "Address": n.Node["Address"]}
	for from, to := range map[string]string{"ID": "ID", "TaggedAddresses": "TaggedAddresses", "Meta": "NodeMeta"} {
		if v := n.Node[from]; v != nil && v != "" {
			base[to] = v
		}
	}
	if err := r.put(ctx, "/v1/catalog/register", base); err != nil {
		return err
	}
	for _, s := range n.Services {
		service, _ := s.(object)
		body := copyOf(base)
		body["Service"] = strip(copyOf(service), "CreateIndex", "ModifyIndex", "ContentHash")
		body["SkipNodeUpdate"] = true
		if err := r.put(ctx, "/v1/catalog/register", body); err != nil {
			return err
		}
	}
	if len(n.Checks) == 0 {
		return nil
	}
	checks := make([]any, 0, len(n.Checks))
	for _, c := range n.Checks {
		check, _ := c.(object)
		checks = append(checks, strip(copyOf(check), "CreateIndex", "ModifyIndex", "ServiceName", "ServiceTags", "PeerName"))
	}
	body := copyOf(base)
	body["Checks"], body["SkipNodeUpdate"] = checks, true
	return r.put(ctx, "/v1/catalog/register", body)
}
