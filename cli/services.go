package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"corbel.dev/corbel/client"
	"corbel.dev/corbel/node/config"
	"github.com/spf13/cobra"
)

func (e *env) services(c *cobra.Command) {
	c.Long = "List, show, register and deregister services.\n\n  corbel services register --name web --port 8080\n  corbel services list\n  corbel services show web --watch\n  corbel services deregister web"
	group(c, e.servicesList(), e.servicesShow(), e.servicesRegister(), e.servicesDeregister())
}

func (e *env) servicesList() *cobra.Command {
	var r reading
	c := &cobra.Command{Use: "list", Short: "List all services with their tags", Args: between(0, 0, "no arguments")}
	r.flags(e, c, true)
	c.Flags().StringVar(&r.q.Filter, "filter", "", "expression that services must match")
	c.RunE = func(c *cobra.Command, args []string) error {
		ctx, stop := signals(c.Context())
		defer stop()
		cl, err := r.client()
		if err != nil {
			return err
		}
		return show(ctx, e, &r, r.q, cl.Services, func(w io.Writer, services map[string][]string) error {
			t := table{head: []string{"SERVICE", "TAGS"}}
			for _, name := range slices.Sorted(maps.Keys(services)) {
				t.add(name, strings.Join(services[name], ","))
			}
			return t.write(w)
		})
	}
	return c
}

func (e *env) servicesShow() *cobra.Command {
	var r reading
	var passing bool
	c := &cobra.Command{Use: "show NAME", Short: "Show the instances of a service and their health", Args: between(1, 1, "the name of one service")}
	r.flags(e, c, true)
	c.Flags().BoolVar(&passing, "passing", false, "only instances whose checks all pass")
	c.Flags().StringVar(&r.q.Filter, "filter", "", "expression that instances must match")
	c.RunE = func(c *cobra.Command, args []string) error {
		ctx, stop := signals(c.Context())
		defer stop()
		cl, err := r.client()
		if err != nil {
			return err
		}
		read := func(ctx context.Context, q client.Query) ([]client.ServiceEntry, client.Meta, error) {
			entries, meta, err := cl.Service(ctx, args[0], passing, q)
			if err == nil && len(entries) == 0 && !r.watch {
				err = fmt.Errorf("no instances of %s; see `corbel services list`", args[0])
			}
			return entries, meta, err
		}
		return show(ctx, e, &r, r.q, read, writeInstances)
	}
	return c
}

func writeInstances(w io.Writer, entries []client.ServiceEntry) error {
	t := table{head: []string{"NODE", "ID", "ADDRESS", "STATUS", "TAGS", "FAILING CHECKS"}}
	for i := range entries {
		en := &entries[i]
		host := en.Service.Address
		if host == "" {
			host = en.Node.Address
		}
		var failing []string
		for _, check := range en.Checks {
			if check.Status != "passing" {
				failing = append(failing, check.CheckID)
			}
		}
		t.add(en.Node.Node, en.Service.ID, net.JoinHostPort(host, strconv.Itoa(en.Service.Port)), en.Status(),
			strings.Join(en.Service.Tags, ","), strings.Join(failing, ","))
	}
	return t.write(w)
}

func (e *env) servicesRegister() *cobra.Command {
	var d dial
	var name, id, address, kind string
	var port int
	var tags, meta []string
	c := &cobra.Command{Use: "register [FILE...]", Short: "Register services from files (- is stdin) or from flags", Args: cobra.ArbitraryArgs}
	d.flags(e, c)
	f := c.Flags()
	f.StringVar(&name, "name", "", "name of the service")
	f.StringVar(&id, "id", "", "id of the instance on this agent; default the name")
	f.StringVar(&address, "address", "", "address of the instance; default the node's")
	f.StringVar(&kind, "kind", "", "kind of the service")
	f.IntVar(&port, "port", 0, "port of the instance")
	f.StringArrayVar(&tags, "tag", nil, "tag of the instance (repeat)")
	f.StringArrayVar(&meta, "meta", nil, "name=value (repeat)")
	c.RunE = func(c *cobra.Command, args []string) error {
		if (name == "") == (len(args) == 0) {
			return usagef("give either files or --name with its flags")
		}
		var services []map[string]any
		if name != "" {
			s := map[string]any{"Name": name, "ID": id, "Address": address, "Kind": kind, "Port": port, "Tags": tags}
			pairs := map[string]string{}
			for _, m := range meta {
				k, v, ok := strings.Cut(m, "=")
				if !ok {
					return usagef("--meta %s must be name=value", m)
				}
				pairs[k] = v
			}
			s["Meta"] = pairs
			services = append(services, s)
		}
		for _, path := range args {
			defs, err := config.ReadDefinitions(path, e.in)
			if err == nil && len(defs.Services) == 0 {
				err = fmt.Errorf("%s defines no service", path)
			}
			if err == nil {
				err = checkDefinitions(&defs)
			}
			if err != nil {
				return err
			}
			services = append(services, defs.Services...)
		}
		cl, err := d.client()
		if err != nil {
			return err
		}
		for _, s := range services {
			if err := cl.Register(c.Context(), s); err != nil {
				return fmt.Errorf("register %s: %w", nameOf(s), err)
			}
			fmt.Fprintf(e.out, "Registered service: %s\n", nameOf(s))
		}
		return nil
	}
	return c
}

// nameOf reads a field of a definition whatever its case.
func nameOf(s map[string]any) string {
	for k, v := range s {
		if strings.EqualFold(k, "name") {
			return fmt.Sprint(v)
		}
	}
	return "(without a name)"
}

func (e *env) servicesDeregister() *cobra.Command {
	var d dial
	var id string
	c := &cobra.Command{Use: "deregister ID...", Short: "Deregister services of this agent by id, or as files define them", Args: cobra.ArbitraryArgs}
	d.flags(e, c)
	c.Flags().StringVar(&id, "id", "", "id of the service")
	c.RunE = func(c *cobra.Command, args []string) error {
		if id != "" {
			args = append(args, id)
		}
		if len(args) == 0 {
			return usagef("corbel services deregister wants the id of a service")
		}
		cl, err := d.client()
		if err != nil {
			return err
		}
		var failures []error
		for _, id := range args {
			if err := cl.Deregister(c.Context(), id); err != nil {
				failures = append(failures, err)
				continue
			}
			fmt.Fprintf(e.out, "Deregistered service: %s\n", id)
		}
		return errors.Join(failures...)
	}
	return c
}

func (e *env) nodes(c *cobra.Command) {
	var r reading
	var detailed bool
	c.Args = between(0, 0, "no arguments")
	r.flags(e, c, true)
	c.Flags().BoolVar(&detailed, "detailed", false, "show ids and meta too")
	c.Flags().StringVar(&r.q.Filter, "filter", "", "expression that nodes must match")
	c.Flags().StringVar(&r.q.Near, "near", "", "sort by distance from this node")
	c.RunE = func(c *cobra.Command, args []string) error {
		ctx, stop := signals(c.Context())
		defer stop()
		cl, err := r.client()
		if err != nil {
			return err
		}
		return show(ctx, e, &r, r.q, cl.Nodes, func(w io.Writer, nodes []client.Node) error {
			t := table{head: []string{"NODE", "ADDRESS", "DC"}}
			if detailed {
				t.head = []string{"NODE", "ID", "ADDRESS", "DC", "META"}
			}
			for _, n := range nodes {
				if detailed {
					t.add(n.Node, n.ID, n.Address, n.Datacenter, pairsText(n.Meta))
				} else {
					t.add(n.Node, n.Address, n.Datacenter)
				}
			}
			return t.write(w)
		})
	}
}

// pairsText is a map as name=value, sorted.
func pairsText(m map[string]string) string {
	out := make([]string, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if m[k] != "" {
			out = append(out, k+"="+m[k])
		}
	}
	return strings.Join(out, ",")
}
