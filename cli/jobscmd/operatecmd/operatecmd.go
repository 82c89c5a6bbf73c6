// Package operatecmd holds the commands of who operates the servers of the jobs plane: namespaces, settings, the key
// ring, and what is swept.
package operatecmd

import (
	"fmt"
	"net/url"
	"strconv"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/jobscmd"
	"corbel.dev/corbel/cli/jobscmd/jobview"
	"github.com/spf13/cobra"
)

// Namespace builds `nomad namespace` and `corbel namespaces`.
func Namespace(e *command.Env, cmd *cobra.Command) {
	command.Group(cmd,
		jobscmd.Plain(e, "list", "List the namespaces", 0, 0, func(c *jobscmd.Call, _ []string) error {
			if done, err := c.Show("namespaces", nil); done {
				return err
			}
			var list []pool
			if err := c.Get("namespaces", nil, &list); err != nil {
				return err
			}
			rows := [][]string{}
			for _, n := range list {
				rows = append(rows, []string{n.Name, jobview.Or(n.Description, "<none>")})
			}
			return c.Table([]string{"Name", "Description"}, rows, "No namespaces")
		}),
		jobscmd.Plain(e, "status NAMESPACE", "Show a namespace", 1, 1, func(c *jobscmd.Call, args []string) error {
			path := "namespace/" + url.PathEscape(args[0])
			if done, err := c.Show(path, nil); done {
				return err
			}
			var n struct {
				pool
				Meta map[string]string
			}
			if err := c.Get(path, nil, &n); err != nil {
				return err
			}
			c.Fields("Name", n.Name, "Description", jobview.Or(n.Description, "<none>"), "Metadata",
				jobview.Or(command.AllPairs(n.Meta), "<none>"))
			return nil
		}),
		jobscmd.Leaf(e, "apply NAMESPACE", "Create or change a namespace", 1, 1, func(cmd *cobra.Command) func(*jobscmd.Call,
			[]string) error {
			f := cmd.Flags()
			description := f.String("description", "", "what it is for")
			meta := f.StringArray("meta", nil, "name=value")
			return func(c *jobscmd.Call, args []string) error {
				pairs, err := command.Pairs("meta", *meta)
				if err != nil {
					return err
				}
				body := map[string]any{"Name": args[0], "Description": *description, "Meta": pairs}
				if err := c.Client.Put(c.Ctx(), "namespace", nil, body, nil); err != nil {
					return err
				}
				return c.Printf("Successfully applied namespace %q!\n", args[0])
			}
		}),
		jobscmd.Plain(e, "delete NAMESPACE", "Delete a namespace without jobs", 1, 1, func(c *jobscmd.Call,
			args []string) error {
			if _, err := c.Client.Do(c.Ctx(), "DELETE", "namespace/"+url.PathEscape(args[0]), nil, nil, nil); err != nil {
				return err
			}
			return c.Printf("Successfully deleted namespace %q!\n", args[0])
		}))
}

// pool is a namespace, or a node pool, in a list.
type pool struct{ Name, Description string }

// Operator builds `nomad operator`.
func Operator(e *command.Env, cmd *cobra.Command) {
	command.Group(cmd, schedulerCommands(e), snapshots(e),
		command.Named("root", "Manage the keys of the servers", keyring(e)),
		command.Named("raft", "Show the Raft members",
			jobscmd.Plain(e, "list-peers", "List the Raft members", 0, 0, func(c *jobscmd.Call, _ []string) error {
				if done, err := c.Show("operator/raft/configuration", nil); done {
					return err
				}
				var answer struct {
					Servers []struct {
						ID, Node, Address string
						Leader, Voter     bool
					}
				}
				if err := c.Get("operator/raft/configuration", nil, &answer); err != nil {
					return err
				}
				rows := [][]string{}
				for _, s := range answer.Servers {
					state := map[bool]string{true: "leader", false: "follower"}[s.Leader]
					rows = append(rows, []string{s.Node, s.ID, s.Address, state, strconv.FormatBool(s.Voter)})
				}
				return c.Table([]string{"Node", "ID", "Address", "State", "Voter"}, rows, "No servers")
			})))
}

func schedulerCommands(e *command.Env) *cobra.Command {
	return command.Named("scheduler", "Show and change how the scheduler works",
		jobscmd.Plain(e, "get-config", "Show the settings", 0, 0, func(c *jobscmd.Call, _ []string) error {
			const path = "operator/scheduler/configuration"
			if done, err := c.Show(path, nil); done {
				return err
			}
			var answer struct{ SchedulerConfig schedulerConfig }
			if err := c.Get(path, nil, &answer); err != nil {
				return err
			}
			s := answer.SchedulerConfig
			yes := strconv.FormatBool
			c.Fields("Scheduler Algorithm", s.SchedulerAlgorithm, "Memory Oversubscription",
				yes(s.MemoryOversubscriptionEnabled), "Reject Job Registration", yes(s.RejectJobRegistration),
				"Pause Eval Broker", yes(s.PauseEvalBroker), "Preemption System Scheduler",
				yes(s.PreemptionConfig.SystemSchedulerEnabled), "Preemption Service Scheduler",
				yes(s.PreemptionConfig.ServiceSchedulerEnabled), "Preemption Batch Scheduler",
				yes(s.PreemptionConfig.BatchSchedulerEnabled), "Preemption SysBatch Scheduler",
				yes(s.PreemptionConfig.SysBatchSchedulerEnabled), "Modify Index", strconv.FormatUint(s.ModifyIndex, 10))
			return nil
		}),
		jobscmd.Leaf(e, "set-config", "Change the settings", 0, 0, setConfig))
}

type schedulerConfig struct {
	SchedulerAlgorithm string
	PreemptionConfig   struct {
		SystemSchedulerEnabled, SysBatchSchedulerEnabled, BatchSchedulerEnabled, ServiceSchedulerEnabled bool
	}
	MemoryOversubscriptionEnabled, RejectJobRegistration, PauseEvalBroker bool
	ModifyIndex                                                           uint64
}

func setConfig(cmd *cobra.Command) func(*jobscmd.Call, []string) error {
	f := cmd.Flags()
	algorithm := f.String("scheduler-algorithm", "", "binpack or spread")
	check := f.String("check-index", "", "only when the modify index is this")
	var next schedulerConfig
	flags := map[string]*bool{"memory-oversubscription": &next.MemoryOversubscriptionEnabled,
		"reject-job-registration": &next.RejectJobRegistration, "pause-eval-broker": &next.PauseEvalBroker,
		"preempt-system-scheduler":   &next.PreemptionConfig.SystemSchedulerEnabled,
		"preempt-service-scheduler":  &next.PreemptionConfig.ServiceSchedulerEnabled,
		"preempt-batch-scheduler":    &next.PreemptionConfig.BatchSchedulerEnabled,
		"preempt-sysbatch-scheduler": &next.PreemptionConfig.SysBatchSchedulerEnabled}
	given := map[string]*string{}
	for name := range flags {
		given[name] = f.String(name, "", "true or false")
	}
	return func(c *jobscmd.Call, _ []string) error {
		var now struct{ SchedulerConfig schedulerConfig }
		if err := c.Get("operator/scheduler/configuration", nil, &now); err != nil {
			return err
		}
		next = now.SchedulerConfig
		if *algorithm != "" {
			next.SchedulerAlgorithm = *algorithm
		}
		for _, name := range command.SortedKeys(given) {
			if text := *given[name]; text != "" {
				on, err := strconv.ParseBool(text)
				if err != nil {
					return command.Usagef("-%s=%s must be true or false", name, text)
				}
				*flags[name] = on
			}
		}
		index := jobview.Or(*check, strconv.FormatUint(now.SchedulerConfig.ModifyIndex, 10))
		var answer struct{ Updated bool }
		if err := c.Client.Put(c.Ctx(), "operator/scheduler/configuration", url.Values{"cas": {index}}, next,
			&answer); err != nil {
			return err
		}
		if !answer.Updated {
			return fmt.Errorf("the settings changed meanwhile: nothing was set; look at get-config and try again")
		}
		return c.Printf("Scheduler configuration updated!\n")
	}
}

// System builds `nomad system`.
func System(e *command.Env, cmd *cobra.Command) {
	command.Group(cmd, gcCommand(e),
		command.Named("reconcile", "Count anew", jobscmd.Plain(e, "summaries", "Count the summaries of jobs anew", 0, 0,
			func(c *jobscmd.Call, _ []string) error {
				return c.Client.Put(c.Ctx(), "system/reconcile/summaries", nil, nil, nil)
			})))
}

func gcCommand(e *command.Env) *cobra.Command {
	return jobscmd.Plain(e, "gc", "Forget what is over: jobs, evaluations, allocations, deployments, nodes", 0, 0,
		func(c *jobscmd.Call, _ []string) error { return c.Client.Put(c.Ctx(), "system/gc", nil, nil, nil) })
}

// Server builds `nomad server`.
func Server(e *command.Env, cmd *cobra.Command) {
	command.Group(cmd, jobscmd.Plain(e, "members", "List the servers", 0, 0, func(c *jobscmd.Call, _ []string) error {
		if done, err := c.Show("agent/members", nil); done {
			return err
		}
		var answer struct {
			Members []struct {
				Name, Addr, Status string
				Port               int
				Tags               map[string]string
			}
		}
		if err := c.Get("agent/members", nil, &answer); err != nil {
			return err
		}
		leaders := map[string]string{}
		rows := [][]string{}
		for _, m := range answer.Members {
			region, address := m.Tags["region"], fmt.Sprintf("%s:%d", m.Addr, m.Port)
			if _, asked := leaders[region]; !asked {
				var leader string
				_ = c.Get("status/leader", url.Values{"region": {region}}, &leader) // the list is worth something without one
				leaders[region] = leader
			}
			rows = append(rows, []string{m.Name, m.Addr, strconv.Itoa(m.Port), m.Status,
				strconv.FormatBool(address == leaders[region]), m.Tags["build"], m.Tags["dc"], region})
		}
		return c.Table([]string{"Name", "Address", "Port", "Status", "Leader", "Build", "Datacenter", "Region"}, rows,
			"No servers")
	}))
}

// Own builds `corbel jobs`: what `nomad job` has, and the nodes and settings beside it.
func Own(e *command.Env, cmd *cobra.Command) {
	jobscmd.Job(e, cmd)
	nodes := &cobra.Command{Use: "nodes", Short: "Show, drain and enable the nodes that run allocations"}
	jobscmd.Node(e, nodes)
	servers := &cobra.Command{Use: "servers", Short: "List the servers"}
	Server(e, servers)
	services := &cobra.Command{Use: "services", Short: "List the services of jobs with provider = \"nomad\""}
	Service(e, services)
	scaling := &cobra.Command{Use: "scaling", Short: "Show scaling policies"}
	Scaling(e, scaling)
	cmd.AddCommand(nodes, servers, services, scaling, schedulerCommands(e), gcCommand(e), snapshots(e),
		jobscmd.AgentLog(e, "agent-log"))
}
