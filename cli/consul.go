package cli

import (
	"corbel.dev/corbel/cli/access"
	"corbel.dev/corbel/cli/certs"
	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/gossipcmd"
	"corbel.dev/corbel/cli/meshcmd"
	"corbel.dev/corbel/cli/trouble"
	"github.com/spf13/cobra"
)

// consulLine is the command line of Consul 1.21, in the order of --help.
var consulLine = commandLine{
	use:   "consul",
	short: "Consul's command line, served by Corbel",
	long: "Consul's command line, served by Corbel: the same commands, flags, variables,\noutput and exit codes. " +
		"`corbel --help` shows Corbel's own.",
	entries: []entry{
		{"agent", "Run a Consul agent or server", groupRun, (*env).agent},
		{"catalog", "Look things up in the catalog", groupCatalog, (*env).catalog},
		{"kv", "Read and write the key-value store", groupCatalog, (*env).kv},
		{"lock", "Run a command while holding a lock", groupCatalog, (*env).lock},
		{"maint", "Put a node or service in or out of maintenance", groupCatalog, (*env).maint},
		{"services", "Register and deregister services", groupCatalog, (*env).services},
		{"watch", "Wait for changes and pass them to a command", groupCatalog, (*env).watch},
		{"config", "Read and write config entries of the mesh", groupMesh, on(meshcmd.Config)},
		{"intention", "Manage which services may talk to each other", groupMesh, on(meshcmd.Intention)},
		{"connect", "Run proxies and manage the mesh's certificate authority", groupMesh, on(meshcmd.Connect)},
		{"acl", "Manage tokens, policies and roles", groupAccess, on(access.ACL)},
		{"login", "Exchange a proof of identity for a token", groupAccess, on(access.Login)},
		{"logout", "Revoke the token of a login", groupAccess, on(access.Logout)},
		{"exec", "Run a command on other nodes (does not exist)", groupCluster, (*env).exec},
		{"force-leave", "Declare a failed member gone", groupCluster, (*env).forceLeave},
		{"info", "Show information about an agent", groupCluster, (*env).info},
		{"join", "Tell the agent to join other members", groupCluster, (*env).join},
		{"leave", "Tell the agent to leave its cluster and stop", groupCluster, (*env).leave},
		{"event", "Send an event to all nodes", groupCluster, on(gossipcmd.Event)},
		{"keyring", "Manage the gossip encryption keys", groupCluster, on(gossipcmd.Keyring)},
		{"rtt", "Estimate the round trip between two nodes", groupCluster, on(gossipcmd.RTT)},
		{"members", "List agents and servers with their status", groupCluster, (*env).members},
		{"snapshot", "Save, restore and inspect the state of the servers", groupCluster, (*env).snapshot},
		{"debug", "Gather profiles, logs, metrics and state into an archive", groupCluster, (*env).debug},
		{"monitor", "Follow an agent's log", groupCluster, (*env).monitor},
		{"operator", "Manage the servers: Raft members, autopilot", groupCluster, (*env).operator},
		{"reload", "Tell the agent to reload its configuration", groupCluster, (*env).reload},
		{"keygen", "Generate a gossip encryption key", groupTools, (*env).keygen},
		{"tls", "Create the certificates of a cluster", groupTools, on(certs.TLS)},
		{"troubleshoot", "Find out why services cannot reach each other", groupMesh, on(trouble.Command)},
		{"validate", "Check configuration files", groupTools, (*env).validate},
		{"version", "Show the version", groupTools, (*env).version},
	},
}

// exec says why there is none: no agent of ours runs what a stranger sends, whatever its configuration says.
func (e *env) exec(c *cobra.Command) {
	why := command.Absent("exec", c.Short, "agents do not run commands for others (remote exec is off for good): use "+
		"ssh, or `event` with `watch` on the nodes")
	c.DisableFlagParsing, c.RunE = true, why.RunE
}
