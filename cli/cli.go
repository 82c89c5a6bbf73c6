// Package cli holds the commands of the corbel binary.
//
// Commands are built lazily: `corbel --help` makes only names and one-line texts;
// a command's flags exist once it is called. Commands talk to agents through
// package client alone; server, agent and dev build a node. A command writes its
// result to stdout and everything else to stderr, takes --json when it reads, and
// ends with 0, 1 (it failed) or 2 (it was called wrongly). lock and watch end with
// their child's code.
//
// Single-dash long flags (-http-addr=…, as the peers' tools have them) are turned
// into double-dash ones before cobra sees them.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"corbel.dev/corbel/cli/access"
	"corbel.dev/corbel/cli/benchcmd"
	"corbel.dev/corbel/cli/catalogcmd"
	"corbel.dev/corbel/cli/certs"
	"corbel.dev/corbel/cli/childcmd"
	"corbel.dev/corbel/cli/clustercmd"
	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/doctorcmd"
	"corbel.dev/corbel/cli/gossipcmd"
	"corbel.dev/corbel/cli/jobscmd"
	"corbel.dev/corbel/cli/jobscmd/operatecmd"
	"corbel.dev/corbel/cli/jobscmd/varscmd"
	"corbel.dev/corbel/cli/k8scmd"
	"corbel.dev/corbel/cli/labcmd"
	"corbel.dev/corbel/cli/meshcmd"
	"corbel.dev/corbel/cli/peeringcmd"
	"corbel.dev/corbel/cli/selftest"
	"corbel.dev/corbel/cli/sensucmd"
	"corbel.dev/corbel/cli/serve"
	"corbel.dev/corbel/cli/servicecmd"
	"corbel.dev/corbel/cli/snapshots"
	"corbel.dev/corbel/cli/trouble"
	"corbel.dev/corbel/cli/uicmd"
	"corbel.dev/corbel/cli/upgradecmd"
	"corbel.dev/corbel/kit/winservice"
	jobsagentplane "corbel.dev/corbel/node/planes/jobsagent"
	monitorplane "corbel.dev/corbel/node/planes/monitor"
	"github.com/spf13/cobra"
)

// Main runs the command line and returns the exit code. Called by the name of a
// system that Corbel replaces, or with that name as the first argument, it takes
// that system's command line.
func Main(args []string) int {
	if len(args) == 2 && args[1] == monitorplane.ScriptChild { // before all else: it is to be small
		if err := monitorplane.RunScripts(context.Background(), os.Stdin, os.Stdout); err != nil {
			return 1
		}
		return 0
	}
	if len(args) > 2 && args[1] == jobsagentplane.SupervisorChild { // it has a task, and nothing else
		return jobsagentplane.Supervise(args[2:])
	}
	call := func(ctx context.Context, service *winservice.Service) int {
		return dispatch(ctx, &command.Env{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv,
			Environ: os.Environ(), Service: service}, args)
	}
	if winservice.Started() {
		return winservice.Run(call)
	}
	return call(context.Background(), nil)
}

// dispatch chooses the command line by the name that the process was called by.
func dispatch(ctx context.Context, e *command.Env, args []string) int {
	name := ""
	if len(args) > 0 {
		name, args = knownName(args[0]), args[1:]
	}
	if name == "" && len(args) > 0 && slices.Contains(nameList(), args[0]) {
		name, args = args[0], args[1:]
	}
	switch name {
	case "consul":
		e.Consul = true
	case "vault", "bao":
		e.Vault = name
	case "nomad":
		e.Nomad = true
	case sensuAgent, sensuBackend, sensuCtl:
		e.Sensu = name
	}
	return run(ctx, e, args)
}

// run executes one command line.
func run(ctx context.Context, e *command.Env, args []string) int {
	defer e.Close()
	if line(e).use == own.use {
		e.Out = command.OnTerminal(e.Out, e.Getenv) // what other systems' command lines print stays as theirs
	}
	root := root(e, args)
	args = normalise(root, args)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		err = e.Unsaid()
	}
	var code command.ExitCode
	var usage command.UsageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	case errors.Is(err, command.ErrHelp):
		return codeOfWrongCall(e, cmd)
	case errors.Is(err, context.Canceled):
		return 1 // a signal: whoever sent it knows
	case errors.As(err, &usage) || isCobraUsage(err):
		return wrongCall(e, cmd, err)
	case e.Consul:
		fmt.Fprintf(e.Err, "Error! %s\n", e.Text(err))
		return 1
	case e.Vault != "", e.Nomad:
		fmt.Fprintln(e.Err, err)
		return 1
	case e.Sensu != "":
		fmt.Fprintf(e.Err, "%s: %v\n", e.Sensu, err)
		return 1
	}
	fmt.Fprintf(e.Err, "corbel: %v\n", err)
	return 1
}

// wrongCall tells what was wrong.
func wrongCall(e *command.Env, cmd *cobra.Command, err error) int {
	fmt.Fprintf(e.Err, "%s: %s\nSee `%s --help`.\n", e.Program(), e.Text(err), cmd.CommandPath())
	return codeOfWrongCall(e, cmd)
}

// codeOfWrongCall is 2; in the command lines of others 1, and in Consul's and Vault's 127 where there is no such
// command.
func codeOfWrongCall(e *command.Env, cmd *cobra.Command) int {
	switch {
	case !e.Consul && e.Vault == "" && e.Sensu == "" && !e.Nomad:
		return 2
	case e.Sensu != "":
		return 1
	case !cmd.HasParent():
		return 127
	}
	return 1
}

// isCobraUsage knows the mistakes that cobra reports without a type.
func isCobraUsage(err error) bool { return strings.HasPrefix(err.Error(), "unknown command") }

// entry is one top-level command before it is built.
type entry struct {
	name, short, group string
	build              func(e *command.Env, c *cobra.Command)
}

const (
	groupRun     = "run"
	groupCatalog = "catalog"
	groupMesh    = "mesh"
	groupAccess  = "access"
	groupSecrets = "secrets"
	groupMonitor = "monitor"
	groupUsage   = "usage"
	groupJobs    = "jobs"
	groupCluster = "cluster"
	groupTools   = "tools"
)

// commandLine is a whole command line: Corbel's own, or that of a system it replaces.
type commandLine struct {
	use, short, long string
	entries          []entry
	flags            func(root *cobra.Command) // of all commands; nil: there are none
}

// Snapshot builds the commands of snapshots, with the lock that their agent holds.
func Snapshot(e *command.Env, c *cobra.Command) { snapshots.Command(e, c, childcmd.WhileHolding) }

// own is Corbel's command line, in the order of --help.
var own = commandLine{
	use:   "corbel",
	short: "The control plane of a fleet in one binary",
	long: "Corbel is the control plane of a fleet in one binary: service\ndiscovery, service mesh, secrets and " +
		"monitoring. Begin with `corbel dev`.",
	entries: []entry{
		{"dev", "Run server and agent in one process, with nothing to configure", groupRun, serve.Dev},
		{"server", "Run a member of the control-plane cluster", groupRun, serve.Server},
		{"agent", "Run the agent of a host", groupRun, serve.Agent},
		{"ui", "Open the web UI", groupRun, uicmd.Command},
		{"services", "List, show, register and deregister services", groupCatalog, catalogcmd.Services},
		{"nodes", "List the hosts of the catalog, remove one for good", groupCatalog, catalogcmd.OwnNodes},
		{"catalog", "Look things up in the catalog", groupCatalog, catalogcmd.Catalog},
		{"kv", "Read and write the key-value store", groupCatalog, catalogcmd.KV},
		{"lock", "Run a command while holding a lock", groupCatalog, childcmd.Lock},
		{"watch", "Wait for changes and pass them to a command", groupCatalog, childcmd.Watch},
		{"maint", "Put a node or service in or out of maintenance", groupCatalog, clustercmd.Maint},
		{"config", "Read and write config entries of the mesh", groupMesh, meshcmd.Config},
		{"intention", "Manage which services may talk to each other", groupMesh, meshcmd.Intention},
		{"connect", "Run proxies and manage the mesh's certificate authority", groupMesh, meshcmd.Connect},
		{"peering", "Peer clusters: they see the services that they export to each other", groupMesh, peeringcmd.Command},
		{"mesh", "Show the state of the proxies and who calls whom", groupMesh, meshcmd.Mesh},
		{"acl", "Manage tokens, policies and roles", groupAccess, access.ACL},
		{"login", "Exchange a proof of identity for a token", groupAccess, access.Login},
		{"logout", "Revoke the token of a login", groupAccess, access.Logout},
		{"secrets", "Read and write secrets", groupSecrets, serve.OwnSecrets},
		{"events", "List, follow and resolve events of checks", groupMonitor, sensucmd.Events},
		{"checks", "List, show, run and delete checks", groupMonitor, sensucmd.Checks},
		{"entities", "List, show and delete monitored entities", groupMonitor, sensucmd.Entities},
		{"handlers", "List, show, create and delete handlers of events", groupMonitor, sensucmd.Handlers},
		{"filters", "List, show, create and delete filters of events", groupMonitor, sensucmd.Filters},
		{"mutators", "List, show, create and delete mutators of events", groupMonitor, sensucmd.Mutators},
		{"silence", "Silence entities and checks", groupMonitor, sensucmd.Silence},
		{"silences", "The same as silence", groupMonitor, sensucmd.Silence},
		{"users", "List, show, create and delete users of the monitor", groupMonitor, sensucmd.Users},
		{"replicators", "List and delete replicators of other clusters' objects", groupMonitor, sensucmd.Replicators},
		{"create", "Create or replace objects of the monitor from files", groupMonitor, sensucmd.Create},
		{"usage", "Show who used how much, set limits, correct", groupUsage, serve.OwnUsage},
		{"jobs", "Run, update, stop and explain jobs", groupJobs, operatecmd.Own},
		{"allocs", "Show allocations, their logs and files, run commands in them", groupJobs, jobscmd.Alloc},
		{"evals", "List and show evaluations of the scheduler", groupJobs, jobscmd.Eval},
		{"deployments", "Show, promote, pause and fail deployments", groupJobs, jobscmd.Deployment},
		{"namespaces", "Manage the namespaces of jobs", groupJobs, operatecmd.Namespace},
		{"pools", "Manage node pools", groupJobs, jobscmd.Pools},
		{"vars", "Store, read and delete the variables of jobs", groupJobs, varscmd.Var},
		{"broadcast", "Send an event of gossip to all nodes", groupCluster, gossipcmd.Event},
		{"event", "The same as broadcast", groupCluster, gossipcmd.Event},
		{"keyring", "Manage the gossip encryption keys", groupCluster, gossipcmd.Keyring},
		{"rtt", "Estimate the round trip between two nodes", groupCluster, gossipcmd.RTT},
		{"members", "List agents and servers with their status", groupCluster, clustercmd.Members},
		{"join", "Tell the agent to join other members", groupCluster, clustercmd.Join},
		{"discover", "Ask a cloud which machines can be joined", groupCluster, clustercmd.Discover},
		{"leave", "Tell the agent to leave its cluster and stop", groupCluster, clustercmd.Leave},
		{"force-leave", "Declare a failed member gone", groupCluster, clustercmd.ForceLeave},
		{"operator", "Manage the servers: Raft members, autopilot", groupCluster, clustercmd.Operator},
		{"info", "Show information about an agent", groupCluster, clustercmd.Info},
		{"snapshot", "Save, restore and inspect the state of the servers", groupCluster, Snapshot},
		{"doctor", "Find out what makes the cluster slow, and what to do", groupCluster, doctorcmd.Command},
		{"debug", "Collect profiles, logs, metrics and state in an archive", groupCluster, clustercmd.Debug},
		{"agent-log", "Follow an agent's log", groupCluster, clustercmd.Monitor},
		{"monitor", "The same as agent-log", groupCluster, clustercmd.Monitor},
		{"reload", "Tell the agent to reload its configuration", groupCluster, clustercmd.Reload},
		{"k8s", "Run the parts that belong to a Kubernetes cluster", groupTools, k8scmd.Command},
		{"tls", "Create the certificates of a cluster", groupTools, certs.TLS},
		{"troubleshoot", "Find out why services cannot reach each other", groupMesh, trouble.Command},
		{"validate", "Check configuration files", groupTools, Validate},
		{"import", "Import the state of another system", groupTools, Import},
		{"bench", "Measure Corbel, or the system that it replaces", groupTools, benchcmd.Bench},
		{"lab", "Inject faults into a temporary cluster and see what the doctor says", groupTools, labcmd.Command},
		{"self-test", "Look whether this host can run Corbel well", groupTools, selftest.Command},
		{"upgrade-check", "Ask whether the servers may be replaced by this release", groupTools, upgradecmd.Command},
		{"service", "Make the agent a service of Windows", groupTools, servicecmd.Command},
		{"keygen", "Generate a gossip encryption key", groupTools, Keygen},
		{"link", "Create links under the names of the systems it replaces", groupTools, Link},
		{"version", "Show the version", groupTools, Version},
	},
}

// line is the command line in use.
func line(e *command.Env) commandLine {
	switch {
	case e.Consul:
		return consulLine
	case e.Vault != "":
		return vaultLine(e)
	case e.Nomad:
		return nomadLine
	case e.Sensu == sensuBackend:
		return sensuBackendLine
	case e.Sensu == sensuCtl:
		return sensuCtlLine(e)
	case e.Sensu != "":
		return sensuAgentLine
	}
	return own
}

// root builds the command tree: the called command in full, names of the others.
func root(e *command.Env, args []string) *cobra.Command {
	line := line(e)
	root := &cobra.Command{
		Use: line.use, Short: line.short, Long: line.long,
		SilenceErrors: true, SilenceUsage: true,
		CompletionOptions: cobra.CompletionOptions{},
		Args:              cobra.ArbitraryArgs,
	}
	showVersion := root.Flags().BoolP("version", "v", false, "show the version")
	root.RunE = func(c *cobra.Command, args []string) error {
		if *showVersion {
			return printVersion(e)
		}
		if len(args) > 0 {
			return command.Usagef("unknown command %q%s", args[0], command.Suggestion(c, args[0]))
		}
		return command.Help(c)
	}
	if line.flags != nil {
		line.flags(root)
	}
	root.SetIn(e.In)
	root.SetOut(e.Out)
	root.SetErr(e.Err)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return command.AsUsage(command.WrongFlag(c, err)) })
	called := firstWord(args)
	all := line.flags != nil || slices.Contains([]string{"help", "completion", cobra.ShellCompRequestCmd,
		cobra.ShellCompNoDescRequestCmd}, called)
	for _, g := range []cobra.Group{{ID: groupRun, Title: "Run:"}, {ID: groupCatalog, Title: "Catalog:"},
		{ID: groupMesh, Title: "Mesh:"},
		{ID: groupAccess, Title: "Access:"},
		{ID: groupSecrets, Title: "Secrets:"}, {ID: groupMonitor, Title: "Monitor:"}, {ID: groupJobs, Title: "Jobs:"},
		{ID: groupUsage, Title: "Usage:"}, {ID: groupCluster, Title: "Cluster:"},
		{ID: groupTools, Title: "Tools:"}} {
		if slices.ContainsFunc(line.entries, func(en entry) bool { return en.group == g.ID }) {
			root.AddGroup(&g)
		}
	}
	root.SetCompletionCommandGroupID(groupTools)
	root.SetHelpCommandGroupID(groupTools)
	for _, en := range line.entries {
		c := &cobra.Command{Use: en.name, Short: en.short, GroupID: en.group, Run: func(*cobra.Command, []string) {}}
		if all || en.name == called {
			c.Run = nil
			en.build(e, c)
		}
		root.AddCommand(c)
	}
	if e.Consul || e.Vault != "" || e.Nomad {
		flagsFirst(root)
	}
	if called == "completion" {
		root.InitDefaultCompletionCmd("completion")
		command.BashAlone(root)
	}
	return root
}

func firstWord(args []string) string {
	for _, a := range args {
		if !strings.HasPrefix(a, "-") {
			return a
		}
	}
	return ""
}
