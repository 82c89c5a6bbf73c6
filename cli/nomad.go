package cli

import (
	"corbel.dev/corbel/cli/jobscmd"
	"corbel.dev/corbel/cli/jobscmd/aclcmd"
	"corbel.dev/corbel/cli/jobscmd/operatecmd"
	"corbel.dev/corbel/cli/jobscmd/varscmd"
	"corbel.dev/corbel/cli/serve"
)

// nomadLine is the command line of Nomad 1.6, in the order of --help.
var nomadLine = commandLine{
	use:   "nomad",
	short: "Nomad's command line, served by Corbel",
	long: "Nomad's command line, served by Corbel: the same commands, flags, variables (NOMAD_*)\nand exit codes. " +
		"`corbel --help` shows Corbel's own commands.",
	entries: []entry{
		{"agent", "Run an agent, with -server a server", groupRun, serve.Agent},
		{"run", "Run a job, or update it", groupJobs, jobscmd.Run},
		{"plan", "Show what running a job would change", groupJobs, jobscmd.Plan},
		{"status", "Show a job, or whatever an id leads to", groupJobs, jobscmd.Status},
		{"stop", "Stop jobs", groupJobs, jobscmd.Stop},
		{"init", "Write a job file that runs anywhere", groupJobs, jobscmd.Init},
		{"inspect", "Print a job as JSON", groupJobs, jobscmd.Inspect},
		{"validate", "Check a job file", groupJobs, jobscmd.Validate},
		{"logs", "Print or follow a task's log", groupJobs, jobscmd.Logs},
		{"fs", "List the folders of an allocation, or print a file", groupJobs, jobscmd.FS},
		{"exec", "Run a command in a task", groupJobs, jobscmd.Exec},
		{"job", "Manage jobs", groupJobs, jobscmd.Job},
		{"alloc", "Manage allocations", groupJobs, jobscmd.Alloc},
		{"deployment", "Manage deployments", groupJobs, jobscmd.Deployment},
		{"eval", "Look at evaluations", groupJobs, jobscmd.Eval},
		{"var", "Store, read and delete variables", groupJobs, varscmd.Var},
		{"service", "Look at the services of jobs", groupJobs, operatecmd.Service},
		{"scaling", "Look at scaling policies", groupJobs, operatecmd.Scaling},
		{"node", "Manage nodes and node pools", groupCluster, jobscmd.Node},
		{"namespace", "Manage namespaces", groupCluster, operatecmd.Namespace},
		{"acl", "Manage tokens, policies, roles and logins", groupCluster, aclcmd.ACL},
		{"login", "Log in with a JWT or a browser, and print the token", groupCluster, aclcmd.Login},
		{"operator", "Manage the servers", groupCluster, operatecmd.Operator},
		{"server", "List the servers", groupCluster, operatecmd.Server},
		{"system", "Sweep what is over", groupCluster, operatecmd.System},
		{"monitor", "Follow the log of an agent or server", groupCluster, jobscmd.Monitor},
		{"version", "Show the version", groupTools, VaultVersion},
	},
}
