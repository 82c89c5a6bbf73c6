package operate

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/vaultcmd"
	"github.com/spf13/cobra"
)

// operatorRaft builds operator raft.
func operatorRaft(e *command.Env) *cobra.Command {
	peer := func(name, trying, short, done string) *cobra.Command {
		return vaultcmd.Leaf(e, name+" SERVER_ID", short, 1, 1, func(c *vaultcmd.Call, args []string) error {
			a, err := c.Do("POST", "sys/storage/raft/"+name, map[string]any{"server_id": args[0]})
			if err != nil {
				return vaultcmd.Doing(trying, err)
			}
			return c.Changed(a, "%s", done)
		})
	}
	return command.Named("raft", "Look after the servers of a Raft cluster", raftJoin(e),
		vaultcmd.Leaf(e, "list-peers", "List the servers of the cluster", 0, 0, listPeers),
		peer("remove-peer", "removing the peer from the Raft cluster", "Remove a server from the cluster",
			"Peer removed successfully!"),
		peer("promote", "promoting the server", "Give a server a vote", "The server has a vote."),
		peer("demote", "demoting the server", "Take a server's vote away", "The server has no vote."),
		command.Named("snapshot", "Save and restore the whole storage",
			vaultcmd.Leaf(e, "save FILE", "Save the storage to a file", 1, 1, saveSnapshot), raftRestore(e)),
		command.Named("autopilot", "How the cluster looks after itself",
			vaultcmd.Leaf(e, "state", "Show the health of the servers", 0, 0,
				func(c *vaultcmd.Call, _ []string) error { return pilot(c, "state") }),
			vaultcmd.Leaf(e, "get-config", "Show the settings", 0, 0, func(c *vaultcmd.Call, _ []string) error {
				return pilot(c, "configuration")
			}), setPilot(e)))
}

func raftJoin(e *command.Env) *cobra.Command {
	return vaultcmd.With(e, "join LEADER_API_ADDR", "Join the cluster of another server", 1, 1,
		func(cmd *cobra.Command) func(*vaultcmd.Call, []string) error {
			f := cmd.Flags()
			files := map[string]*string{}
			for name, key := range map[string]string{"leader-ca-cert": "leader_ca_cert",
				"leader-client-cert": "leader_client_cert", "leader-client-key": "leader_client_key"} {
				files[key] = f.String(name, "", "PEM, or @file")
			}
			serverName := f.String("leader-tls-servername", "", "name that the other server's certificate must have")
			nonVoter := f.Bool("non-voter", false, "replicate without a vote")
			retry := f.Bool("retry", false, "no effect: retry_join in the configuration tries again")
			return func(c *vaultcmd.Call, args []string) error {
				body := map[string]any{"leader_api_addr": args[0], "non_voter": *nonVoter, "retry": *retry}
				vaultcmd.Put(body, "leader_tls_servername", *serverName)
				for key, text := range files {
					if path, isFile := strings.CutPrefix(*text, "@"); isFile {
						raw, err := command.ReadFile(path)
						if err != nil {
							return err
						}
						*text = string(raw)
					}
					vaultcmd.Put(body, key, *text)
				}
				a, err := c.Do("PUT", "sys/storage/raft/join", body)
				if err != nil {
					return vaultcmd.Doing("joining the node to the Raft cluster", err)
				}
				var out map[string]any
				if err := command.Decode(a.Raw, &out); err != nil {
					return err
				}
				if done, err := c.Structured(out); done {
					return err
				}
				return c.Pairs([][]string{{"Joined", vaultcmd.Shown(out["joined"])}})
			}
		})
}

func listPeers(c *vaultcmd.Call, _ []string) error {
	a, err := c.Do("GET", "sys/storage/raft/configuration", nil)
	if err != nil {
		return vaultcmd.Doing("reading the raft cluster configuration", err)
	}
	if done, err := c.Structured(json.RawMessage(a.Raw)); done {
		return err
	}
	config, _ := a.Data["config"].(map[string]any)
	servers, _ := config["servers"].([]any)
	var rows [][]string
	for _, one := range servers {
		s, _ := one.(map[string]any)
		state := "follower"
		if s["leader"] == true {
			state = "leader"
		}
		rows = append(rows, []string{vaultcmd.Shown(s["node_id"]), vaultcmd.Shown(s["address"]), state,
			vaultcmd.Shown(s["voter"])})
	}
	return c.Columns([]string{"Node", "Address", "State", "Voter"}, rows)
}

func pilot(c *vaultcmd.Call, what string) error {
	a, err := c.Do("GET", "sys/storage/raft/autopilot/"+what, nil)
	if err != nil {
		return vaultcmd.Doing("reading autopilot's "+what, err)
	}
	if done, err := c.Structured(a.Data); done {
		return err
	}
	var rows [][]string
	for _, name := range command.SortedKeys(a.Data) {
		value := a.Data[name]
		if servers, ok := value.(map[string]any); ok {
			for _, id := range command.SortedKeys(servers) {
				s, _ := servers[id].(map[string]any)
				rows = append(rows, []string{"Server " + id, fmt.Sprintf("%s, %s, healthy %s, last contact %s",
					vaultcmd.Shown(s["address"]),
					vaultcmd.Shown(s["status"]), vaultcmd.Shown(s["healthy"]), vaultcmd.Shown(s["last_contact"]))})
			}
			continue
		}
		rows = append(rows, []string{name, vaultcmd.Shown(value)})
	}
	return c.Pairs(rows)
}

func setPilot(e *command.Env) *cobra.Command {
	return vaultcmd.With(e, "set-config", "Change the settings", 0, 0, func(cmd *cobra.Command) func(*vaultcmd.Call,
		[]string) error {
		f := cmd.Flags()
		for _, name := range []string{"cleanup-dead-servers", "last-contact-threshold", "dead-server-last-contact-threshold",
			"max-trailing-logs", "min-quorum", "server-stabilization-time"} {
			f.String(name, "", "see docs/secrets.md")
		}
		return func(c *vaultcmd.Call, _ []string) error {
			body := map[string]any{}
			for _, name := range []string{"cleanup-dead-servers", "last-contact-threshold", "dead-server-last-contact-threshold",
				"max-trailing-logs", "min-quorum", "server-stabilization-time"} {
				if f.Changed(name) {
					body[strings.ReplaceAll(name, "-", "_")] = f.Lookup(name).Value.String()
				}
			}
			a, err := c.Do("POST", "sys/storage/raft/autopilot/configuration", body)
			if err != nil {
				return vaultcmd.Doing("changing autopilot's configuration", err)
			}
			return c.Changed(a, "Autopilot has the new settings.")
		}
	})
}

func saveSnapshot(c *vaultcmd.Call, args []string) (err error) {
	in, err := c.Client.Stream(c.Ctx(), "GET", "sys/storage/raft/snapshot", nil)
	if err != nil {
		return vaultcmd.Doing("taking the snapshot", err)
	}
	defer in.Close()
	temp := args[0] + ".partial"
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, in)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(temp, args[0])
	}
	if err != nil {
		_ = os.Remove(temp)
		return fmt.Errorf("the snapshot was not saved: %w", err)
	}
	return c.Success("Saved a snapshot to %s", args[0])
}

func raftRestore(e *command.Env) *cobra.Command {
	return vaultcmd.With(e, "restore FILE", "Replace the storage by a file", 1, 1,
		func(cmd *cobra.Command) func(*vaultcmd.Call, []string) error {
			force := cmd.Flags().Bool("force", false, "even if it has other unseal keys")
			return func(c *vaultcmd.Call, args []string) error {
				f, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer f.Close()
				path := "sys/storage/raft/snapshot"
				if *force {
					path += "-force"
				}
				out, err := c.Client.Stream(c.Ctx(), "POST", path, f)
				if err != nil {
					return vaultcmd.Doing("installing the snapshot", err)
				}
				_ = out.Close()
				return c.Success("Restored the snapshot %s", args[0])
			}
		})
}

// operatorMembers builds operator members.
func operatorMembers(e *command.Env) *cobra.Command {
	return vaultcmd.Leaf(e, "members", "List the active server and the standbys", 0, 0, func(c *vaultcmd.Call,
		_ []string) error {
		a, err := c.Do("GET", "sys/ha-status", nil)
		if err != nil {
			return vaultcmd.Doing("reading the members", err)
		}
		if done, err := c.Structured(a.Data); done {
			return err
		}
		nodes, _ := a.Data["nodes"].([]any)
		var rows [][]string
		for _, one := range nodes {
			n, _ := one.(map[string]any)
			rows = append(rows, []string{vaultcmd.Shown(n["hostname"]), vaultcmd.Shown(n["api_address"]),
				vaultcmd.Shown(n["cluster_address"]),
				vaultcmd.Shown(n["active_node"]), vaultcmd.Shown(n["version"]), vaultcmd.OrNA(n["last_echo"])})
		}
		slices.SortStableFunc(rows, func(a, b []string) int { return strings.Compare(b[3], a[3]) })
		return c.Columns([]string{"Host Name", "API Address", "Cluster Address", "Active Node", "Version", "Last Echo"}, rows)
	})
}
