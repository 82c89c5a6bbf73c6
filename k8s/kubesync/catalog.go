package kubesync

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"corbel.dev/corbel/client"
	"corbel.dev/corbel/k8s/catalogsync"
)

// checkName and checkType are those of consul-k8s.
const (
	checkName = "Kubernetes Readiness Check"
	checkType = "kubernetes-readiness"
)

// service is an instance as the catalog's API has it.
type service struct {
	ID      string
	Service string
	Address string
	Port    int
	Tags    []string
	Meta    map[string]string
	Weights struct{ Passing, Warning int }
}

// readNode reads what the catalog has of the sync's node: instances, then their checks.
func (s *Sync) readNode(ctx context.Context, index uint64) (uint64, error) {
	node := client.Escape(s.cfg.Options.Node)
	var checks []client.Check
	meta, err := s.cfg.Catalog.Get(ctx, "/v1/health/node/"+node, client.Query{Index: index}, &checks)
	if err != nil {
		return 0, err
	}
	var answer *struct {
		Node     *client.Node
		Services []service
	}
	// Read after the checks: a change between the two wakes the next blocking query.
	if _, err := s.cfg.Catalog.Get(ctx, "/v1/catalog/node-services/"+node, client.Query{}, &answer); err != nil {
		return 0, err
	}
	out := &catalogsync.Catalog{}
	if answer != nil && answer.Node != nil {
		out.HasNode = true
		out.Instances = instances(answer.Services, checks)
	}
	s.seen.mu.Lock()
	s.seen.catalog = out
	s.seen.mu.Unlock()
	return meta.Index, nil
}

// instances are the node's instances with the sync's mark.
func instances(list []service, checks []client.Check) (out []catalogsync.Instance) {
	of := map[string]client.Check{}
	for _, c := range checks {
		if c.Type == checkType {
			of[c.ServiceID] = c
		}
	}
	for _, i := range list {
		if i.Meta[catalogsync.SourceKey] != catalogsync.Source {
			continue
		}
		c := of[i.ID]
		out = append(out, catalogsync.Instance{ID: i.ID, Name: i.Service, Address: i.Address, Port: i.Port, Tags: i.Tags,
			Meta: i.Meta, Weight: i.Weights.Passing, CheckID: c.CheckID, Ready: c.Status == "passing"})
	}
	slices.SortFunc(out, func(a, b catalogsync.Instance) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// toCatalog carries out Plan.
func (s *Sync) toCatalog(ctx context.Context) error {
	services, _ := s.services.Items()
	slices, _ := s.slices.Items()
	nodes, _ := s.nodes.Items()
	want, problems := catalogsync.Desired(&catalogsync.Cluster{Services: services, Slices: slices, Nodes: nodes},
		&s.cfg.Options)
	s.seen.mu.Lock()
	have := s.seen.catalog
	s.seen.mu.Unlock()
	for {
		txns := catalogsync.Plan(want, have, s.held)
		refused, err := s.carryOut(ctx, txns)
		if err != nil || len(refused) == 0 {
			s.tell("catalog", problems)
			if err == nil && len(txns) > 0 {
				s.seen.mu.Lock()
				s.seen.catalog = catalogsync.Apply(have, txns) // what the next read will say
				s.seen.mu.Unlock()
			}
			return err
		}
		for _, p := range refused {
			s.held[p.Service] = true
			s.Counts.Refused.Add(1)
		}
		problems = append(problems, refused...)
		if have, err = s.reread(ctx); err != nil {
			return err
		}
	}
}

// reread reads what there is after a part of a plan was carried out.
func (s *Sync) reread(ctx context.Context) (*catalogsync.Catalog, error) {
	if _, err := s.readNode(ctx, 0); err != nil {
		return nil, err
	}
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	return s.seen.catalog, nil
}

// carryOut writes transactions in order, up to the first that the catalog refuses.
func (s *Sync) carryOut(ctx context.Context, txns [][]catalogsync.Op) (refused []catalogsync.Problem, err error) {
	for _, txn := range txns {
		body, service := s.encode(txn)
		err := s.cfg.Catalog.Put(ctx, "/v1/txn", nil, body, nil)
		s.Counts.Transactions.Add(1)
		if refused := refusals(err, service); len(refused) > 0 {
			return refused, nil
		}
		if err != nil {
			return nil, err
		}
		for _, op := range txn {
			if op.Set != nil {
				s.Counts.Registered.Add(1)
			} else if op.Delete != nil {
				s.Counts.Deregistered.Add(1)
			}
		}
	}
	return nil, nil
}

// refusals are the services whose operations the catalog refused. service has the service of each operation.
func refusals(err error, service []string) (list []catalogsync.Problem) {
	var e *client.Error
	if !errors.As(err, &e) || e.Code != http.StatusConflict {
		return nil
	}
	var answer struct {
		Errors []struct {
			OpIndex int
			What    string
		}
	}
	if json.Unmarshal([]byte(e.Body), &answer) != nil {
		return nil
	}
	told := map[string]bool{}
	for _, r := range answer.Errors {
		if r.OpIndex < 0 || r.OpIndex >= len(service) || service[r.OpIndex] == "" {
			return nil // the node itself is refused: nothing can be written
		}
		if name := service[r.OpIndex]; !told[name] {
			told[name] = true
			list = append(list, catalogsync.Problem{Service: name, Why: "the catalog refuses it: " + r.What})
		}
	}
	return list
}

type object = map[string]any

// encode is a transaction as the API takes it, with the service of each operation.
func (s *Sync) encode(txn []catalogsync.Op) (ops []object, service []string) {
	node := s.cfg.Options.Node
	add := func(of string, op object) { ops, service = append(ops, op), append(service, of) }
	for _, op := range txn {
		switch {
		case op.Set != nil:
			i := op.Set
			add(i.Name, object{"Service": object{"Verb": "set", "Node": node, "Service": object{"ID": i.ID,
				"Service": i.Name, "Address": i.Address, "Port": i.Port, "Tags": i.Tags, "Meta": i.Meta,
				"Weights": object{"Passing": i.Weight, "Warning": 1}}}})
			status, output := "passing", "the cluster says ready"
			if !i.Ready {
				status, output = "critical", "the cluster says not ready"
			}
			add(i.Name, object{"Check": object{"Verb": "set", "Check": object{"Node": node, "CheckID": i.CheckID,
				"Name": checkName, "Type": checkType, "Status": status, "Output": output, "ServiceID": i.ID,
				"ServiceName": i.Name}}})
		case op.Delete != nil:
			add(op.Delete.Name, object{"Service": object{"Verb": "delete", "Node": node,
				"Service": object{"ID": op.Delete.ID}}})
		default:
			add("", object{"Node": object{"Verb": "set", "Node": object{"Node": node, "Address": "127.0.0.1",
				"Meta": object{catalogsync.SourceKey: catalogsync.Source}}}})
		}
	}
	return ops, service
}
