// Package meshcmd holds the commands around the service mesh: config entries,
// intentions, and what connects proxies.
//
// They speak the HTTP contract alone. Entries are read from HCL or JSON and sent as
// they are: the servers judge them.
package meshcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
	"corbel.dev/corbel/node/config"
	"github.com/spf13/cobra"
)

// Config builds `config`.
func Config(e *command.Env, c *cobra.Command) {
	command.Group(c, configRead(e), configWrite(e), configList(e), configDelete(e))
}

// entryName are the flags that name an entry.
type entryName struct{ kind, name string }

func (n *entryName) flags(c *cobra.Command) {
	c.Flags().StringVar(&n.kind, "kind", "", "kind of the entry, service-defaults for one")
	c.Flags().StringVar(&n.name, "name", "", "name of the entry")
}

func (n *entryName) path() (string, error) {
	if n.kind == "" || n.name == "" {
		return "", command.Usagef("give the entry with --kind and --name; see `config list --kind KIND`")
	}
	return "/v1/config/" + client.Escape(n.kind) + "/" + client.Escape(n.name), nil
}

func configRead(e *command.Env) *cobra.Command {
	var n entryName
	c := command.Read(e, "read", "Show an entry as JSON", command.Between(0, 0, "flags only"),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			path, err := n.path()
			if err != nil {
				return err
			}
			var text json.RawMessage
			if _, err := cl.Get(ctx, path, r.Q, &text); err != nil {
				return err
			}
			return writeTabbed(e, text)
		})
	n.flags(c)
	return c
}

// writeTabbed prints JSON with tabs, as these commands always did.
func writeTabbed(e *command.Env, v any) error {
	enc := json.NewEncoder(e.Out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "\t")
	return enc.Encode(v)
}

// casFlags are -cas and -modify-index of entries.
type casFlags struct {
	on    bool
	index uint64
}

func (f *casFlags) flags(c *cobra.Command) {
	c.Flags().BoolVar(&f.on, "cas", false, "only if the entry's ModifyIndex equals --modify-index")
	c.Flags().Uint64Var(&f.index, "modify-index", 0, "index for --cas; 0: only if there is no such entry")
}

func (f *casFlags) add(q url.Values) {
	if f.on {
		q.Set("cas", strconv.FormatUint(f.index, 10))
	}
}

// field reads a field of an entry in either of its spellings.
func field(entry map[string]any, name string) string {
	for k, v := range entry {
		if strings.EqualFold(k, name) {
			if text, ok := v.(string); ok {
				return text
			}
		}
	}
	return ""
}

func configWrite(e *command.Env) *cobra.Command {
	var cas casFlags
	c := command.Act(e, "write FILE", "Write the entry of a file, HCL or JSON; - is stdin",
		command.Between(1, 1, "the name of a file"),
		func(ctx context.Context, d *command.Dial, cl *client.Client, args []string) error {
			text, err := e.FileOrStdin(args[0])
			if err != nil {
				return err
			}
			entry, err := config.ReadObject(args[0], text)
			if err != nil {
				return err
			}
			kind, name := field(entry, "kind"), field(entry, "name")
			if kind == "" {
				return fmt.Errorf("%s: the entry lacks its Kind: begin with Kind = \"service-defaults\" or another", args[0])
			}
			switch {
			case name == "" && kind == "mesh":
				name = "mesh" // the only one of its kind
			case name == "" && kind == "proxy-defaults":
				name = "global"
			}
			query := client.Query{Datacenter: d.Q.Datacenter}.Values()
			cas.add(query)
			var ok bool
			if err := cl.Put(ctx, "/v1/config", query, entry, &ok); err != nil {
				return fmt.Errorf("Error writing config entry %s/%s: %w", kind, name, err)
			}
			if !ok {
				return fmt.Errorf("Config entry not updated: %s/%s: its ModifyIndex is not %d; see `config read`", kind,
					name, cas.index)
			}
			return e.Printf("Config entry written: %s/%s\n", kind, name)
		})
	cas.flags(c)
	return c
}

func configList(e *command.Env) *cobra.Command {
	var kind, filter string
	c := command.Read(e, "list", "List the names of entries", command.Between(0, 0, "flags only"),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			if kind == "" {
				return command.Usagef("give the kind of entries with --kind, service-defaults for one")
			}
			r.Q.Filter = filter
			var text json.RawMessage
			if _, err := cl.Get(ctx, "/v1/config/"+client.Escape(kind), r.Q, &text); err != nil {
				return err
			}
			if r.JSON {
				return command.WriteJSON(e.Out, text, false)
			}
			var entries []struct{ Name string }
			if err := command.Decode(text, &entries); err != nil {
				return err
			}
			for _, en := range entries {
				e.Say("%s\n", en.Name)
			}
			return nil
		})
	c.Flags().StringVar(&kind, "kind", "", "kind of the entries")
	c.Flags().StringVar(&filter, "filter", "", "expression that entries must match")
	return c
}

func configDelete(e *command.Env) *cobra.Command {
	var n entryName
	var cas casFlags
	var file string
	c := command.Act(e, "delete", "Delete an entry", command.Between(0, 0, "flags only"),
		func(ctx context.Context, d *command.Dial, cl *client.Client, _ []string) error {
			if file != "" {
				text, err := e.FileOrStdin(file)
				if err != nil {
					return err
				}
				entry, err := config.ReadObject(file, text)
				if err != nil {
					return err
				}
				n.kind, n.name = field(entry, "kind"), field(entry, "name")
			}
			path, err := n.path()
			if err != nil {
				return err
			}
			query := client.Query{Datacenter: d.Q.Datacenter}.Values()
			cas.add(query)
			var answer json.RawMessage
			if err := cl.Send(ctx, http.MethodDelete, path, query, nil, &answer); err != nil {
				return err
			}
			if cas.on && strings.TrimSpace(string(answer)) == "false" {
				return fmt.Errorf("Config entry not deleted: %s/%s: its ModifyIndex is not %d; see `config read`", n.kind,
					n.name, cas.index)
			}
			return e.Printf("Config entry deleted: %s/%s\n", n.kind, n.name)
		})
	n.flags(c)
	cas.flags(c)
	c.Flags().StringVar(&file, "filename", "", "file whose entry to delete, instead of --kind and --name")
	return c
}
