package clustercmd

import (
	"context"
	"encoding/json"
	"io"
	"strconv"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
	"github.com/spf13/cobra"
)

// autopilotServer is what state prints of a server.
type autopilotServer struct {
	ID, Name, Address, Version, NodeStatus, NodeType, Status, LastContact string
	Healthy                                                               bool
	LastTerm, LastIndex                                                   uint64
	Meta                                                                  map[string]string
}

// autopilotState is the answer of operator/autopilot/state.
type autopilotState struct {
	Healthy                                      bool
	FailureTolerance, OptimisticFailureTolerance int
	Leader                                       string
	Voters                                       []string
	Servers                                      map[string]autopilotServer
}

func showAutopilot(e *command.Env) *cobra.Command {
	return command.Read(e, "state", "Show the health of the servers", command.Between(0, 0, "no arguments"),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			var text json.RawMessage
			if _, err := cl.Get(ctx, "/v1/operator/autopilot/state", r.Q, &text); err != nil {
				return err
			}
			if r.JSON {
				return command.WriteJSON(e.Out, text, false)
			}
			var state autopilotState
			if err := command.Decode(text, &state); err != nil {
				return err
			}
			if e.Consul {
				return state.writeConsul(e.Out)
			}
			return state.write(e.Out)
		})
}

func (a *autopilotState) write(w io.Writer) error {
	t := command.Table{Head: []string{"NODE", "ADDRESS", "STATUS", "GOSSIP", "HEALTHY", "LAST CONTACT", "LAST INDEX"}}
	for _, id := range command.SortedKeys(a.Servers) {
		s := a.Servers[id]
		t.Add(s.Name, s.Address, s.Status, s.NodeStatus, strconv.FormatBool(s.Healthy), s.LastContact,
			strconv.FormatUint(s.LastIndex, 10))
	}
	if _, err := io.WriteString(w, "Healthy: "+strconv.FormatBool(a.Healthy)+"\nFailure tolerance: "+
		strconv.Itoa(a.FailureTolerance)+"\n\n"); err != nil {
		return err
	}
	return t.Write(w)
}

// writeConsul prints the form of `consul operator autopilot state`.
func (a *autopilotState) writeConsul(w io.Writer) error {
	f := command.Fields{Width: 30}
	f.Add("Healthy", strconv.FormatBool(a.Healthy))
	f.Add("Failure Tolerance", strconv.Itoa(a.FailureTolerance))
	f.Add("Optimistic Failure Tolerance", strconv.Itoa(a.OptimisticFailureTolerance))
	f.Add("Leader", a.Leader)
	f.Line("Voters:")
	for _, v := range a.Voters {
		f.Line("   " + v)
	}
	f.Line("")
	f.Line("Servers:")
	for _, id := range command.SortedKeys(a.Servers) {
		s := a.Servers[id]
		f.Line("   " + id)
		for _, pair := range [][2]string{{"Name", s.Name}, {"Address", s.Address}, {"Version", s.Version},
			{"Status", s.Status},
			{"Node Type", s.NodeType}, {"Node Status", s.NodeStatus}, {"Healthy", strconv.FormatBool(s.Healthy)},
			{"Last Contact", s.LastContact}, {"Last Term", strconv.FormatUint(s.LastTerm, 10)},
			{"Last Index", strconv.FormatUint(s.LastIndex, 10)}} {
			f.Line("      " + pair[0] + ":" + strings.Repeat(" ", 16-len(pair[0])) + pair[1])
		}
		f.Line("      Meta")
		for _, k := range command.SortedKeys(s.Meta) {
			f.Line("         " + strconv.Quote(k) + ": " + strconv.Quote(s.Meta[k]))
		}
	}
	return f.Write(w)
}

// usage is the answer of operator/usage for one datacenter.
type usage struct {
	Nodes, Services, ServiceInstances, BillableServiceInstances int
	ConnectServiceInstances                                     map[string]int
}

func usageInstances(e *command.Env) *cobra.Command {
	return command.Read(e, "instances", "Count nodes, services and their instances",
		command.Between(0, 0, "no arguments"),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			var text json.RawMessage
			if _, err := cl.Get(ctx, "/v1/operator/usage", r.Q, &text); err != nil {
				return err
			}
			if r.JSON {
				return command.WriteJSON(e.Out, text, false)
			}
			var out struct{ Usage map[string]usage }
			if err := command.Decode(text, &out); err != nil {
				return err
			}
			t := command.Table{Head: []string{"Datacenter", "Nodes", "Services", "Service instances", "Billable instances"}}
			for _, dc := range command.SortedKeys(out.Usage) {
				u := out.Usage[dc]
				t.Add(dc, strconv.Itoa(u.Nodes), strconv.Itoa(u.Services), strconv.Itoa(u.ServiceInstances),
					strconv.Itoa(u.BillableServiceInstances))
			}
			return t.Write(e.Out)
		})
}
