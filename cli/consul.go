package cli

import (
	"corbel.dev/corbel/cli/access"
	"corbel.dev/corbel/cli/catalogcmd"
	"corbel.dev/corbel/cli/certs"
	"corbel.dev/corbel/cli/childcmd"
	"corbel.dev/corbel/cli/clustercmd"
	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/gossipcmd"
	"corbel.dev/corbel/cli/meshcmd"
	"corbel.dev/corbel/cli/peeringcmd"
	"corbel.dev/corbel/cli/serve"
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
		{"agent", "Run a Consul agent or server", groupRun, serve.Agent},
		{"catalog", "Look things up in the catalog", groupCatalog, catalogcmd.Catalog},
		{"kv", "Read and write the key-value store", groupCatalog, catalogcmd.KV},
		{"lock", "Run a command while holding a lock", groupCatalog, childcmd.Lock},
		{"maint", "Put a node or service in or out of maintenance", groupCatalog, clustercmd.Maint},
		{"services", "Register and deregister services", groupCatalog, catalogcmd.Services},
		{"watch", "Wait for changes and pass them to a command", groupCatalog, childcmd.Watch},
		{"config", "Read and write config entries of the mesh", groupMesh, meshcmd.Config},
		{"intention", "Manage which services may talk to each other", groupMesh, meshcmd.Intention},
		{"connect", "Run proxies and manage the mesh's certificate authority", groupMesh, meshcmd.Connect},
		{"peering", "Peer clusters: they see the services that they export to each other", groupMesh, peeringcmd.Command},
		{"acl", "Manage tokens, policies and roles", groupAccess, access.ACL},
		{"login", "Exchange a proof of identity for a token", groupAccess, access.Login},
		{"logout", "Revoke the token of a login", groupAccess, access.Logout},
		{"exec", "Run a command on other nodes (does not exist)", groupCluster, Exec},
		{"force-leave", "Declare a failed member gone", groupCluster, clustercmd.ForceLeave},
		{"info", "Show information about an agent", groupCluster, clustercmd.Info},
		{"join", "Tell the agent to join other members", groupCluster, clustercmd.Join},
		{"leave", "Tell the agent to leave its cluster and stop", groupCluster, clustercmd.Leave},
		{"event", "Send an event to all nodes", groupCluster, gossipcmd.Event},
		{"keyring", "Manage the gossip encryption keys", groupCluster, gossipcmd.Keyring},
		{"rtt", "Estimate the round trip between two nodes", groupCluster, gossipcmd.RTT},
		{"members", "List agents and servers with their status", groupCluster, clustercmd.Members},
		{"snapshot", "Save, restore and inspect the state of the servers", groupCluster, Snapshot},
		{"debug", "Gather profiles, logs, metrics and state into an archive", groupCluster, clustercmd.Debug},
		{"monitor", "Follow an agent's log", groupCluster, clustercmd.Monitor},
		{"operator", "Manage the servers: Raft members, autopilot", groupCluster, clustercmd.Operator},
		{"reload", "Tell the agent to reload its configuration", groupCluster, clustercmd.Reload},
		{"keygen", "Generate a gossip encryption key", groupTools, Keygen},
		{"tls", "Create the certificates of a cluster", groupTools, certs.TLS},
		{"troubleshoot", "Find out why services cannot reach each other", groupMesh, trouble.Command},
		{"validate", "Check configuration files", groupTools, Validate},
		{"version", "Show the version", groupTools, Version},
	},
}

// Exec says why there is none: no agent of ours runs what a stranger sends, whatever its configuration says.
func Exec(e *command.Env, c *cobra.Command) {
	why := command.Absent("exec", c.Short, "agents do not run commands for others (remote exec is off for good): use "+
		"ssh, or `event` with `watch` on the nodes")
	c.DisableFlagParsing, c.RunE = true, why.RunE
}
