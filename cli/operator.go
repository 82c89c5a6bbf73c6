package cli

import (
	"encoding/json"
	"fmt"
	"strconv"

	"corbel.dev/corbel/client"
	"github.com/spf13/cobra"
)

func (e *env) operator(c *cobra.Command) {
	raft := &cobra.Command{Use: "raft", Short: "The servers' Raft group"}
	group(raft, e.raftList(), e.raftRemove(), e.raftTransfer())
	autopilot := &cobra.Command{Use: "autopilot", Short: "The servers' self-care"}
	group(autopilot, e.autopilotGet(), e.autopilotSet(), e.autopilotState())
	group(c, raft, autopilot)
}

func (e *env) raftList() *cobra.Command {
	var r reading
	c := &cobra.Command{Use: "list-peers", Short: "List the servers and who leads", Args: between(0, 0, "no arguments")}
	r.flags(e, c, false)
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := r.client()
		if err != nil {
			return err
		}
		conf, err := cl.RaftConfiguration(c.Context(), r.q)
		if err != nil {
			return err
		}
		if r.json {
			return writeJSON(e.out, conf, false)
		}
		t := table{head: []string{"NODE", "ID", "ADDRESS", "STATE", "VOTER", "LAST INDEX"}}
		for _, s := range conf.Servers {
			state := "follower"
			if s.Leader {
				state = "leader"
			}
			t.add(s.Node, s.ID, s.Address, state, strconv.FormatBool(s.Voter), strconv.FormatUint(s.LastIndex, 10))
		}
		return t.write(e.out)
	}
	return c
}

func (e *env) raftRemove() *cobra.Command {
	var d dial
	var id, address string
	c := &cobra.Command{Use: "remove-peer", Short: "Remove a server that will not come back", Args: between(0, 0, "no arguments")}
	d.flags(e, c)
	c.Flags().StringVar(&id, "id", "", "id of the server")
	c.Flags().StringVar(&address, "address", "", "address of the server, host:port")
	c.RunE = func(c *cobra.Command, args []string) error {
		if (id == "") == (address == "") {
			return usagef("give one of --id and --address; see `corbel operator raft list-peers`")
		}
		cl, err := d.client()
		if err == nil {
			err = cl.RaftRemove(c.Context(), id, address)
		}
		if err == nil {
			_, err = fmt.Fprintf(e.out, "Removed peer %s%s\n", id, address)
		}
		return err
	}
	return c
}

func (e *env) raftTransfer() *cobra.Command {
	var d dial
	var id string
	c := &cobra.Command{Use: "transfer-leader", Short: "Hand leadership to another server", Args: between(0, 0, "no arguments")}
	d.flags(e, c)
	c.Flags().StringVar(&id, "id", "", "id of the server that shall lead; default the most advanced")
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := d.client()
		if err == nil {
			err = cl.RaftTransfer(c.Context(), id)
		}
		if err == nil {
			_, err = fmt.Fprintln(e.out, "Success")
		}
		return err
	}
	return c
}

func (e *env) autopilotGet() *cobra.Command {
	var r reading
	c := &cobra.Command{Use: "get-config", Short: "Show the settings", Args: between(0, 0, "no arguments")}
	r.flags(e, c, false)
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := r.client()
		if err != nil {
			return err
		}
		a, err := cl.Autopilot(c.Context(), r.q)
		if err != nil {
			return err
		}
		if r.json {
			return writeJSON(e.out, a, false)
		}
		_, err = fmt.Fprintf(e.out, "CleanupDeadServers = %v\nLastContactThreshold = %v\nMaxTrailingLogs = %v\nMinQuorum = %v\nServerStabilizationTime = %v\n",
			a.CleanupDeadServers, a.LastContactThreshold, a.MaxTrailingLogs, a.MinQuorum, a.ServerStabilizationTime)
		return err
	}
	return c
}

func (e *env) autopilotSet() *cobra.Command {
	var d dial
	var want client.Autopilot
	c := &cobra.Command{Use: "set-config", Short: "Change settings; those not named stay", Args: between(0, 0, "no arguments")}
	d.flags(e, c)
	f := c.Flags()
	f.BoolVar(&want.CleanupDeadServers, "cleanup-dead-servers", true, "remove failed servers once others replaced them")
	f.StringVar(&want.LastContactThreshold, "last-contact-threshold", "", "silence after which a server counts as unhealthy")
	f.Uint64Var(&want.MaxTrailingLogs, "max-trailing-logs", 0, "lag after which a server counts as unhealthy")
	f.UintVar(&want.MinQuorum, "min-quorum", 0, "servers that clean-up must leave")
	f.StringVar(&want.ServerStabilizationTime, "server-stabilization-time", "", "how long a new server must be healthy before it votes")
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := d.client()
		if err != nil {
			return err
		}
		a, err := cl.Autopilot(c.Context(), client.Query{Datacenter: d.q.Datacenter})
		if err != nil {
			return err
		}
		changed := c.Flags().Changed
		if changed("cleanup-dead-servers") {
			a.CleanupDeadServers = want.CleanupDeadServers
		}
		if changed("last-contact-threshold") {
			a.LastContactThreshold = want.LastContactThreshold
		}
		if changed("max-trailing-logs") {
			a.MaxTrailingLogs = want.MaxTrailingLogs
		}
		if changed("min-quorum") {
			a.MinQuorum = want.MinQuorum
		}
		if changed("server-stabilization-time") {
			a.ServerStabilizationTime = want.ServerStabilizationTime
		}
		ok, err := cl.SetAutopilot(c.Context(), a)
		if err == nil && !ok {
			err = fmt.Errorf("somebody changed the settings meanwhile: look at them with get-config and try again")
		}
		if err == nil {
			_, err = fmt.Fprintln(e.out, "Configuration updated!")
		}
		return err
	}
	return c
}

// autopilotServer is what state prints of a server.
type autopilotServer struct {
	Name, Address, NodeStatus, Status, LastContact string
	Healthy                                        bool
	LastIndex                                      uint64
}

func (e *env) autopilotState() *cobra.Command {
	var r reading
	c := &cobra.Command{Use: "state", Short: "Show the health of the servers", Args: between(0, 0, "no arguments")}
	r.flags(e, c, false)
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := r.client()
		if err != nil {
			return err
		}
		var text json.RawMessage
		if _, err := cl.Get(c.Context(), "/v1/operator/autopilot/state", r.q, &text); err != nil {
			return err
		}
		if r.json {
			return writeJSON(e.out, text, false)
		}
		var state struct {
			Healthy          bool
			FailureTolerance int
			Leader           string
			Voters           []string
			Servers          map[string]autopilotServer
		}
		if err := json.Unmarshal(text, &state); err != nil {
			return fmt.Errorf("the agent's answer is not what was asked for: %w", err)
		}
		fmt.Fprintf(e.out, "Healthy: %v\nFailure tolerance: %d\n\n", state.Healthy, state.FailureTolerance)
		t := table{head: []string{"NODE", "ADDRESS", "STATUS", "GOSSIP", "HEALTHY", "LAST CONTACT", "LAST INDEX"}}
		for _, id := range sortedKeys(state.Servers) {
			s := state.Servers[id]
			t.add(s.Name, s.Address, s.Status, s.NodeStatus, strconv.FormatBool(s.Healthy), s.LastContact, strconv.FormatUint(s.LastIndex, 10))
		}
		return t.write(e.out)
	}
	return c
}
