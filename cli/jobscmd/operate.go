package jobscmd

import (
	"fmt"
	"net/url"
	"strconv"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/jobscmd/jobview"
	"github.com/spf13/cobra"
)

// Namespace builds `nomad namespace` and `corbel namespaces`.
func Namespace(e *command.Env, cmd *cobra.Command) {
	command.Group(cmd,
		plain(e, "list", "List the namespaces", 0, 0, func(c *Call, _ []string) error {
			if done, err := c.show("namespaces", nil); done {
				return err
			}
			var list []pool
			if err := c.get("namespaces", nil, &list); err != nil {
				return err
			}
			rows := [][]string{}
			for _, n := range list {
				rows = append(rows, []string{n.Name, jobview.Or(n.Description, "<none>")})
			}
			return c.Table([]string{"Name", "Description"}, rows, "No namespaces")
		}),
		plain(e, "status NAMESPACE", "Show a namespace", 1, 1, func(c *Call, args []string) error {
			path := "namespace/" + url.PathEscape(args[0])
			if done, err := c.show(path, nil); done {
				return err
			}
			var n struct {
				pool
				Meta map[string]string
			}
			if err := c.get(path, nil, &n); err != nil {
				return err
			}
			c.Fields("Name", n.Name, "Description", jobview.Or(n.Description, "<none>"), "Metadata",
				jobview.Or(command.AllPairs(n.Meta), "<none>"))
			return nil
		}),
		Leaf(e, "apply NAMESPACE", "Create or change a namespace", 1, 1, func(cmd *cobra.Command) func(*Call,
			[]string) error {
			f := cmd.Flags()
			description := f.String("description", "", "what it is for")
			meta := f.StringArray("meta", nil, "name=value")
			return func(c *Call, args []string) error {
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
		plain(e, "delete NAMESPACE", "Delete a namespace without jobs", 1, 1, func(c *Call, args []string) error {
			if _, err := c.Client.Do(c.Ctx(), "DELETE", "namespace/"+url.PathEscape(args[0]), nil, nil, nil); err != nil {
				return err
			}
			return c.Printf("Successfully deleted namespace %q!\n", args[0])
		}))
}

// Operator builds `nomad operator`.
func Operator(e *command.Env, cmd *cobra.Command) {
	command.Group(cmd, schedulerCommands(e),
		command.Named("raft", "Show the Raft members",
			plain(e, "list-peers", "List the Raft members", 0, 0, func(c *Call, _ []string) error {
				if done, err := c.show("operator/raft/configuration", nil); done {
					return err
				}
				var answer struct {
					Servers []struct {
						ID, Node, Address string
						Leader, Voter     bool
					}
				}
				if err := c.get("operator/raft/configuration", nil, &answer); err != nil {
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
		plain(e, "get-config", "Show the settings", 0, 0, func(c *Call, _ []string) error {
			const path = "operator/scheduler/configuration"
			if done, err := c.show(path, nil); done {
				return err
			}
			var answer struct{ SchedulerConfig schedulerConfig }
			if err := c.get(path, nil, &answer); err != nil {
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
		Leaf(e, "set-config", "Change the settings", 0, 0, setConfig))
}

type schedulerConfig struct {
	SchedulerAlgorithm string
	PreemptionConfig   struct {
		SystemSchedulerEnabled, SysBatchSchedulerEnabled, BatchSchedulerEnabled, ServiceSchedulerEnabled bool
	}
	MemoryOversubscriptionEnabled, RejectJobRegistration, PauseEvalBroker bool
	ModifyIndex                                                           uint64
}

func setConfig(cmd *cobra.Command) func(*Call, []string) error {
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
	return func(c *Call, _ []string) error {
		var now struct{ SchedulerConfig schedulerConfig }
		if err := c.get("operator/scheduler/configuration", nil, &now); err != nil {
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
		command.Named("reconcile", "Count anew", plain(e, "summaries", "Count the summaries of jobs anew", 0, 0,
			func(c *Call, _ []string) error {
				return c.Client.Put(c.Ctx(), "system/reconcile/summaries", nil, nil, nil)
			})))
}

func gcCommand(e *command.Env) *cobra.Command {
	return plain(e, "gc", "Forget what is over: jobs, evaluations, allocations, deployments, nodes", 0, 0,
		func(c *Call, _ []string) error { return c.Client.Put(c.Ctx(), "system/gc", nil, nil, nil) })
}

// Server builds `nomad server`.
func Server(e *command.Env, cmd *cobra.Command) {
	command.Group(cmd, plain(e, "members", "List the servers", 0, 0, func(c *Call, _ []string) error {
		if done, err := c.show("agent/members", nil); done {
			return err
		}
		var answer struct {
			Members []struct {
				Name, Addr, Status string
				Port               int
				Tags               map[string]string
			}
		}
		if err := c.get("agent/members", nil, &answer); err != nil {
			return err
		}
		var leader string
		if err := c.get("status/leader", nil, &leader); err != nil {
			leader = "" // the list is worth something without one
		}
		rows := [][]string{}
		for _, m := range answer.Members {
			address := fmt.Sprintf("%s:%d", m.Addr, m.Port)
			rows = append(rows, []string{m.Name, m.Addr, strconv.Itoa(m.Port), m.Status, strconv.FormatBool(address == leader),
				m.Tags["build"], m.Tags["dc"], m.Tags["region"]})
		}
		return c.Table([]string{"Name", "Address", "Port", "Status", "Leader", "Build", "Datacenter", "Region"}, rows,
			"No servers")
	}))
}

// Short builds a command of another one's group under a name of its own, as in `nomad run`.
func Short(of func(e *command.Env) *cobra.Command) func(*command.Env, *cobra.Command) {
	return func(e *command.Env, cmd *cobra.Command) { replace(cmd, of(e)) }
}

// The commands that `nomad` has without their groups too.
var (
	Run      = Short(jobRun)
	Plan     = Short(jobPlan)
	Stop     = Short(jobStop)
	Inspect  = Short(jobInspect)
	Init     = Short(jobInit)
	Validate = Short(jobValidate)
	Logs     = Short(allocLogs)
	FS       = Short(allocFS)
	Exec     = Short(allocExec)
)

// Own builds `corbel jobs`: what `nomad job` has, and the nodes and settings beside it.
func Own(e *command.Env, cmd *cobra.Command) {
	Job(e, cmd)
	nodes := &cobra.Command{Use: "nodes", Short: "Show, drain and enable the nodes that run allocations"}
	Node(e, nodes)
	servers := &cobra.Command{Use: "servers", Short: "List the servers"}
	Server(e, servers)
	cmd.AddCommand(nodes, servers, schedulerCommands(e), gcCommand(e))
}

// Status builds `nomad status`: a job, or whatever has an id that begins so.
func Status(e *command.Env, cmd *cobra.Command) {
	built := Leaf(e, "status [ID]", cmd.Short, 0, 1, func(*cobra.Command) func(*Call, []string) error {
		return func(c *Call, args []string) error {
			if len(args) == 0 {
				return c.jobList()
			}
			return anything(c, args[0])
		}
	})
	replace(cmd, built)
}

// replace makes cmd what built is, under its own name and group.
func replace(cmd, built *cobra.Command) {
	cmd.Use, cmd.Args, cmd.RunE, cmd.Run = built.Use, built.Args, built.RunE, nil
	cmd.Flags().AddFlagSet(built.Flags())
}

// anything shows what an id or a prefix of one leads to.
func anything(c *Call, prefix string) error {
	var answer struct{ Matches map[string][]string }
	if _, err := c.Client.Do(c.Ctx(), "POST", "search", nil, map[string]string{"Prefix": prefix, "Context": "all"},
		&answer); err != nil {
		return err
	}
	for _, id := range answer.Matches["jobs"] {
		if id == prefix || len(answer.Matches["jobs"]) == 1 {
			return c.jobDetail(id, false, false, false)
		}
	}
	for _, kind := range []struct {
		context string
		show    func(id string) error
	}{{"allocs", func(id string) error {
		a, err := c.alloc(id)
		if err != nil {
			return err
		}
		return allocDetail(c, a, false)
	}}, {"nodes", c.nodeDetail}, {"deployment", c.showDeployment}, {"evals", c.monitorEval}} {
		if list := answer.Matches[kind.context]; len(list) == 1 {
			return kind.show(list[0])
		}
	}
	return fmt.Errorf("nothing, or more than one object, begins with %q", prefix)
}
