package simnodes

import (
	"context"
	"encoding/json"
	"fmt"
)

// part is some of the nodes: by their numbers, or for "more" Count of them from First on.
type part struct {
	Nodes []int `json:"nodes"`
	First int   `json:"first"`
	Count int   `json:"count"`
}

// change breaks nodes, or adds some:
//
//	kill  machines that are gone in an instant, with all that ran on them; they never come back
//	cut   no server hears them and they hear none; their tasks go on
//	mend  the end of cut
//	more  new machines, with numbers that none had before
func (f *fleet) change(ctx context.Context, how string, body json.RawMessage) error {
	var p part
	if err := json.Unmarshal(body, &p); err != nil {
		return err
	}
	if how == "more" {
		return f.more(ctx, p.First, p.Count)
	}
	for _, i := range p.Nodes {
		if f.nodes[i] == nil {
			return fmt.Errorf("%s: there is no node %d", how, i)
		}
	}
	for _, i := range p.Nodes {
		if n := f.nodes[i]; how == "kill" {
			n.kill()
		} else {
			n.line.cable.set(how == "cut")
		}
	}
	if how == "kill" {
		for _, i := range p.Nodes {
			<-f.nodes[i].ended
			delete(f.nodes, i)
		}
	}
	return nil
}

func (f *fleet) more(ctx context.Context, first, count int) error {
	if first < 0 || count < 1 || first+count > MaxNodes {
		return fmt.Errorf("nodes %d to %d: there are %d numbers", first, first+count, MaxNodes)
	}
	for i := first; i < first+count; i++ {
		if f.nodes[i] != nil {
			return fmt.Errorf("node %d is there already", i)
		}
	}
	return f.begin(ctx, first, count)
}

// allocations are the names of what runs, by the allocation's id and by the node's number.
func (f *fleet) allocations() map[int]map[string]string {
	all := make(map[int]map[string]string, len(f.nodes))
	for number, n := range f.nodes {
		all[number] = n.Running()
	}
	return all
}
