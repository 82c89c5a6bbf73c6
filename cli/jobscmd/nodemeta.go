package jobscmd

import (
	"net/url"

	"corbel.dev/corbel/cli/command"
	"github.com/spf13/cobra"
)

// nodeMeta builds `node meta`.
func nodeMeta(e *command.Env) *cobra.Command {
	return command.Named("meta", "Read and change the metadata of a node",
		Leaf(e, "apply [NAME=VALUE]...", "Set and unset metadata of a node; it is kept over restarts of its agent", 0, -1,
			applyMeta),
		Leaf(e, "read", "Show the metadata of a node", 0, 0, func(cmd *cobra.Command) func(*Call, []string) error {
			node := cmd.Flags().String("node-id", "", "the node, by its id or name; default is that of the process that answers")
			return func(c *Call, _ []string) error {
				query, err := c.metaOf(*node)
				if err != nil {
					return err
				}
				if done, err := c.Show(metaPath, query); done {
					return err
				}
				var all metadata
				if err := c.Get(metaPath, query, &all); err != nil {
					return err
				}
				all.print(c)
				return nil
			}
		}))
}

const metaPath = "client/metadata"

// metaOf is the query that names a node, an empty one for that of the process that answers.
func (c *Call) metaOf(node string) (url.Values, error) {
	if node == "" {
		return nil, nil
	}
	id, err := c.node(node, false)
	return url.Values{"node_id": {id}}, err
}

func applyMeta(cmd *cobra.Command) func(*Call, []string) error {
	node := cmd.Flags().String("node-id", "", "the node, by its id or name; default is that of the process that answers")
	unset := cmd.Flags().StringSlice("unset", nil, "names to unset, comma separated")
	return func(c *Call, args []string) error {
		pairs, err := metaPairs(args)
		if err != nil {
			return err
		}
		meta := map[string]*string{}
		for _, name := range *unset {
			meta[name] = nil
		}
		for name, value := range pairs {
			meta[name] = &value
		}
		if len(meta) == 0 {
			return command.Usagef("%s: name=value or -unset is missing", c.cmd.CommandPath())
		}
		query, err := c.metaOf(*node)
		if err != nil {
			return err
		}
		var all metadata
		if err := c.Client.Put(c.Ctx(), metaPath, query, map[string]any{"NodeID": query.Get("node_id"), "Meta": meta},
			&all); err != nil {
			return err
		}
		if c.JSON {
			return command.WriteJSON(c.Out, all, false)
		}
		return c.Printf("Applied: %d names of dynamic metadata\n", len(all.Dynamic))
	}
}

func metaPairs(args []string) (map[string]string, error) {
	pairs, err := command.Pairs("", args)
	if err != nil {
		return nil, command.Usagef("metadata must be name=value: %q", args)
	}
	return pairs, nil
}

// metadata is a node's.
type metadata struct {
	Meta    map[string]string
	Dynamic map[string]*string
	Static  map[string]string
}

func (m *metadata) print(c *Call) {
	c.Say("All Meta\n")
	c.metaRows(m.Meta)
	c.Say("\nDynamic Meta\n")
	dynamic := map[string]string{}
	for name, value := range m.Dynamic {
		dynamic[name] = "<unset>"
		if value != nil {
			dynamic[name] = *value
		}
	}
	c.metaRows(dynamic)
	c.Say("\nStatic Meta\n")
	c.metaRows(m.Static)
}

func (c *Call) metaRows(all map[string]string) {
	var pairs []string
	for _, name := range command.SortedKeys(all) {
		pairs = append(pairs, name, all[name])
	}
	if len(pairs) == 0 {
		c.Say("<none>\n")
	}
	c.Fields(pairs...)
}
