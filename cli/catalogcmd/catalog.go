// Package catalogcmd holds the commands of the catalog: services, hosts and the
// key-value store.
package catalogcmd

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
	"github.com/spf13/cobra"
)

// Catalog builds catalog.
func Catalog(e *command.Env, c *cobra.Command) {
	byNode := &cobra.Command{Use: "nodes", Short: "List the hosts"}
	nodes(e, byNode)
	command.Group(c, byNode, catalogServices(e), catalogDatacenters(e))
}

func catalogDatacenters(e *command.Env) *cobra.Command {
	return command.Read(e, "datacenters", "List the datacenters", command.Between(0, 0, "no arguments"),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			names := []string{}
			if _, err := cl.Get(ctx, "/v1/catalog/datacenters", r.Q, &names); err != nil {
				return err
			}
			if r.JSON {
				return command.WriteJSON(e.Out, names, false)
			}
			return e.Printf("%s\n", strings.Join(names, "\n"))
		})
}

// onNode is what catalog/node answers, as far as it is printed.
type onNode struct {
	Services map[string]struct {
		Service string
		Tags    []string
	}
}

func catalogServices(e *command.Env) *cobra.Command {
	var r command.Reading
	var node string
	var tags bool
	var meta []string
	c := &cobra.Command{Use: "services", Short: "List the names of services", Args: command.Between(0, 0, "no arguments")}
	r.Flags(e, c, false)
	c.Flags().StringVar(&node, "node", "", "only services of this node, by name or id")
	c.Flags().BoolVar(&tags, "tags", false, "also print tags")
	c.Flags().StringArrayVar(&meta, "node-meta", nil, "only services on nodes with this key=value (repeat)")
	c.Flags().StringVar(&r.Q.Filter, "filter", "", "expression that services must match")
	c.RunE = func(c *cobra.Command, args []string) error {
		pairs, err := command.Pairs("node-meta", meta)
		if err != nil {
			return err
		}
		r.Q.NodeMeta = pairs
		cl, err := r.Client()
		if err != nil {
			return err
		}
		services, err := servicesOf(c.Context(), e, &r, cl, node)
		if err != nil {
			return err
		}
		if r.JSON {
			return command.WriteJSON(e.Out, services, false)
		}
		t := command.Table{Gap: 4}
		for _, name := range slices.Sorted(maps.Keys(services)) {
			if tags {
				t.Add(name, strings.Join(services[name], ","))
			} else {
				t.Add(name)
			}
		}
		return t.Write(e.Out)
	}
	return c
}

// servicesOf reads names and tags: of all, or of one node.
func servicesOf(ctx context.Context, e *command.Env, r *command.Reading, cl *client.Client,
	node string) (map[string][]string,
	error) {
	if node == "" {
		services, _, err := cl.Services(ctx, r.Q)
		return services, err
	}
	var on *onNode
	if _, err := cl.Get(ctx, "/v1/catalog/node/"+client.Escape(node), r.Q, &on); err != nil {
		return nil, err
	}
	services := map[string][]string{}
	if on != nil {
		for _, s := range on.Services {
			services[s.Service] = slices.Compact(slices.Sorted(slices.Values(append(services[s.Service], s.Tags...))))
		}
	}
	return services, nil
}

// writeNodes prints nodes in the columns of Consul's command line.
func writeNodes(w io.Writer, nodes []client.Node, detailed bool) error {
	if len(nodes) == 0 {
		_, err := io.WriteString(w, "No nodes match: ask for less.\n")
		return err
	}
	t := command.Table{Head: []string{"Node", "ID", "Address", "DC"}}
	if detailed {
		t.Head = append(t.Head, "TaggedAddresses", "Meta")
	}
	for _, n := range nodes {
		if !detailed {
			id, _, _ := strings.Cut(n.ID, "-")
			t.Add(n.Node, id, n.Address, n.Datacenter)
			continue
		}
		t.Add(n.Node, n.ID, n.Address, n.Datacenter, command.AllPairs(n.TaggedAddresses), command.AllPairs(n.Meta))
	}
	return t.Write(w)
}
