package clustercmd

import (
	"fmt"
	"io"
	"strconv"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
	"github.com/spf13/cobra"
)

// Operator builds operator.
func Operator(e *command.Env, c *cobra.Command) {
	command.Group(c,
		command.Named("raft", "The servers' Raft group", raftList(e), raftRemove(e), raftTransfer(e)),
		command.Named("autopilot", "Manage autopilot: the servers' health and clean-up", autopilotGet(e), autopilotSet(e),
			showAutopilot(e)),
		command.Named("usage", "Count the instances of everything", usageInstances(e)))
}

func raftList(e *command.Env) *cobra.Command {
	var r command.Reading
	c := &cobra.Command{Use: "list-peers", Short: "List the servers and who leads",
		Args: command.Between(0, 0, "no arguments")}
	r.Flags(e, c, false)
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := r.Client()
		if err != nil {
			return err
		}
		conf, err := cl.Operator().RaftConfiguration(c.Context(), r.Q)
		if err != nil {
			return err
		}
		if r.JSON {
			return command.WriteJSON(e.Out, conf, false)
		}
		if e.Consul {
			return writeConsulPeers(e.Out, conf.Servers)
		}
		t := command.Table{Head: []string{"NODE", "ID", "ADDRESS", "STATE", "VOTER", "LAST INDEX"}}
		for _, s := range conf.Servers {
			state := "follower"
			if s.Leader {
				state = "leader"
			}
			t.Add(s.Node, s.ID, s.Address, state, strconv.FormatBool(s.Voter), strconv.FormatUint(s.LastIndex, 10))
		}
		return t.Write(e.Out)
	}
	return c
}

// writeConsulPeers prints the columns of `consul operator raft list-peers`.
func writeConsulPeers(w io.Writer, servers []client.RaftServer) error {
	var ahead uint64
	for _, s := range servers {
		if s.Leader {
			ahead = s.LastIndex
		}
	}
	t := command.Table{Head: []string{"Node", "ID", "Address", "State", "Voter", "RaftProtocol", "Commit Index",
		"Trails Leader By"}}
	for _, s := range servers {
		state, trails := "follower", "-"
		if s.Leader {
			state = "leader"
		} else if ahead >= s.LastIndex {
			trails = fmt.Sprintf("%d commits", ahead-s.LastIndex)
		}
		t.Add(s.Node, s.ID, s.Address, state, strconv.FormatBool(s.Voter), s.ProtocolVersion,
			strconv.FormatUint(s.LastIndex, 10), trails)
	}
	return t.Write(w)
}

func raftRemove(e *command.Env) *cobra.Command {
	var d command.Dial
	var id, address string
	c := &cobra.Command{Use: "remove-peer", Short: "Remove a server that will not come back",
		Args: command.Between(0, 0, "no arguments")}
	d.Flags(e, c)
	c.Flags().StringVar(&id, "id", "", "id of the server")
	c.Flags().StringVar(&address, "address", "", "address of the server, host:port")
	c.RunE = func(c *cobra.Command, args []string) error {
		if (id == "") == (address == "") {
			return command.Usagef("give one of --id and --address; see `%s operator raft list-peers`", e.Program())
		}
		cl, err := d.Client()
		if err == nil {
			err = cl.Operator().RaftRemove(c.Context(), id, address)
		}
		if err == nil {
			what, name := "id", id
			if id == "" {
				what, name = "address", address
			}
			err = e.Printf("Removed peer with %s %q\n", what, name)
		}
		return err
	}
	return c
}

func raftTransfer(e *command.Env) *cobra.Command {
	var d command.Dial
	var id string
	c := &cobra.Command{Use: "transfer-leader", Short: "Hand leadership to another server",
		Args: command.Between(0, 0, "no arguments")}
	d.Flags(e, c)
	c.Flags().StringVar(&id, "id", "", "id of the server to lead; default the most up-to-date one")
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := d.Client()
		if err == nil {
			err = cl.Operator().RaftTransfer(c.Context(), id)
		}
		if err == nil {
			_, err = fmt.Fprintln(e.Out, "Success")
		}
		return err
	}
	return c
}

func autopilotGet(e *command.Env) *cobra.Command {
	var r command.Reading
	c := &cobra.Command{Use: "get-config", Short: "Show the settings", Args: command.Between(0, 0, "no arguments")}
	r.Flags(e, c, false)
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := r.Client()
		if err != nil {
			return err
		}
		a, err := cl.Operator().Autopilot(c.Context(), r.Q)
		if err != nil {
			return err
		}
		if r.JSON {
			return command.WriteJSON(e.Out, a, false)
		}
		err = e.Printf("CleanupDeadServers = %v\nLastContactThreshold = %v\nMaxTrailingLogs = %v\nMinQuorum = "+
			"%v\nServerStabilizationTime = %v\n",
			a.CleanupDeadServers, a.LastContactThreshold, a.MaxTrailingLogs, a.MinQuorum, a.ServerStabilizationTime)
		if err == nil && e.Consul {
			err = e.Printf("RedundancyZoneTag = %q\nDisableUpgradeMigration = %v\nUpgradeVersionTag = %q\n", a.RedundancyZoneTag,
				a.DisableUpgradeMigration, a.UpgradeVersionTag)
		}
		return err
	}
	return c
}

func autopilotSet(e *command.Env) *cobra.Command {
	var d command.Dial
	var want client.Autopilot
	c := &cobra.Command{Use: "set-config", Short: "Change the given settings", Args: command.Between(0, 0, "no arguments")}
	d.Flags(e, c)
	f := c.Flags()
	f.BoolVar(&want.CleanupDeadServers, "cleanup-dead-servers", true, "remove failed servers once they are replaced")
	f.StringVar(&want.LastContactThreshold, "last-contact-threshold", "",
		"silence after which a server counts as unhealthy")
	f.Uint64Var(&want.MaxTrailingLogs, "max-trailing-logs", 0, "lag at which a server counts as unhealthy")
	f.UintVar(&want.MinQuorum, "min-quorum", 0, "servers that clean-up must leave")
	f.StringVar(&want.ServerStabilizationTime, "server-stabilization-time", "",
		"how long a new server must be healthy before it votes")
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := d.Client()
		if err != nil {
			return err
		}
		a, err := cl.Operator().Autopilot(c.Context(), client.Query{Datacenter: d.Q.Datacenter})
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
		ok, err := cl.Operator().SetAutopilot(c.Context(), a)
		if err == nil && !ok {
			err = fmt.Errorf("somebody changed the settings meanwhile: look at them with get-config and try again")
		}
		if err == nil {
			_, err = fmt.Fprintln(e.Out, "Configuration updated!")
		}
		return err
	}
	return c
}
