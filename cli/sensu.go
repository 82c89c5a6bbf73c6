package cli

import "corbel.dev/corbel/cli/serve"

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
