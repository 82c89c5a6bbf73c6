package cli

import (
	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/sensuctl"
	"corbel.dev/corbel/cli/serve"
)

// sensuAgent is the name of Sensu Go's agent.
const sensuAgent = "sensu-agent"

// sensuAgentLine is its command line, as 6.12 has it.
var sensuAgentLine = commandLine{
	use:   sensuAgent,
	short: "Sensu Go's agent, served by Corbel",
	long: "Sensu Go's agent, served by Corbel: the same flags, variables (SENSU_*) and agent.yml.\n`corbel --help` " +
		"shows Corbel's own commands.",
	entries: []entry{
		{"start", "Start the sensu agent", groupRun, serve.SensuAgentStart},
		{"version", "Show the sensu-agent version information", groupTools, serve.SensuVersion},
	},
}

// sensuBackend is the name of Sensu Go's backend.
const sensuBackend = "sensu-backend"

// sensuBackendLine is its command line, as 6.12 has it.
var sensuBackendLine = commandLine{
	use:   sensuBackend,
	short: "Sensu Go's backend, served by Corbel",
	long: "Sensu Go's backend, served by Corbel: the same flags, variables (SENSU_BACKEND_*)\nand backend.yml. " +
		"`corbel --help` shows Corbel's own commands.",
	entries: []entry{
		{"start", "Start the sensu backend", groupRun, serve.BackendStart},
		{"init", "Make the first user of an empty backend that runs", groupCluster, serve.BackendInit},
		{"upgrade", "Nothing to do: records are brought over as they are read", groupCluster, serve.BackendUpgrade},
		{"version", "Show the sensu-backend version information", groupTools, serve.BackendVersion},
	},
}

// sensuCtl is the name of Sensu Go's command line.
const sensuCtl = "sensuctl"

// sensuCtlLine is what it has.
func sensuCtlLine(e *command.Env) commandLine {
	ctl := sensuctl.New(e)
	line := commandLine{use: sensuCtl, short: "Sensu Go's command line, by Corbel",
		long: "Sensu Go's command line, by Corbel: the same commands, flags and files, against this monitor or\nSensu's. " +
			"`corbel --help` shows Corbel's own commands.", flags: ctl.Flags}
	for _, c := range ctl.Commands() {
		line.entries = append(line.entries, entry{c.Name, c.Short, groupMonitor, c.Build})
	}
	line.entries = append(line.entries, entry{"version", "Show the sensuctl version information", groupTools,
		serve.SensuVersion})
	return line
}
