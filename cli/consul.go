package cli

import (
	"corbel.dev/corbel/cli/access"
	"corbel.dev/corbel/cli/meshcmd"
	"corbel.dev/corbel/cli/snapshots"
)

// consulLine is the command line of Consul 1.21, in the order of --help.
var consulLine = commandLine{
	use:   "consul",
	short: "Consul's command line, served by Corbel",
	long:  "Consul's command line, served by Corbel: the same commands, flags, variables,\noutput and exit codes. `corbel --help` shows Corbel's own.",
	entries: []entry{
		{"agent", "Run a Consul agent or server", groupRun, (*env).agent},
		{"catalog", "Look things up in the catalog", groupCatalog, (*env).catalog},
		{"kv", "Read and write the key-value store", groupCatalog, (*env).kv},
		{"lock", "Run a command while holding a lock", groupCatalog, (*env).lock},
		{"maint", "Put a node or service in or out of maintenance", groupCatalog, (*env).maint},
		{"services", "Register and deregister services", groupCatalog, (*env).services},
		{"watch", "Wait for changes and hand them to a command", groupCatalog, (*env).watch},
		{"config", "Read and write config entries of the mesh", groupMesh, on(meshcmd.Config)},
		{"intention", "Say which services may talk to which", groupMesh, on(meshcmd.Intention)},
		{"connect", "Run proxies and look after the mesh's authority", groupMesh, on(meshcmd.Connect)},
		{"acl", "Look after tokens, policies and roles", groupAccess, on(access.ACL)},
		{"login", "Turn a proof of identity into a token", groupAccess, on(access.Login)},
		{"logout", "End the token of a login", groupAccess, on(access.Logout)},
		{"force-leave", "Declare a failed member gone", groupCluster, (*env).forceLeave},
		{"info", "Show what an agent says about itself", groupCluster, (*env).info},
		{"join", "Make the agent join others", groupCluster, (*env).join},
		{"leave", "Make the agent leave its cluster and end", groupCluster, (*env).leave},
		{"members", "List agents and servers with their status", groupCluster, (*env).members},
		{"snapshot", "Save, restore and inspect the state of the servers", groupCluster, on(snapshots.Command)},
		{"monitor", "Follow an agent's log", groupCluster, (*env).monitor},
		{"operator", "Look after the servers: Raft members, autopilot", groupCluster, (*env).operator},
		{"reload", "Make the agent read its configuration again", groupCluster, (*env).reload},
		{"keygen", "Make a key for gossip encryption", groupTools, (*env).keygen},
		{"validate", "Check configuration files", groupTools, (*env).validate},
		{"version", "Show the version", groupTools, (*env).version},
	},
}
