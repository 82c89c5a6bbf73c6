package catalogcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/meshcmd"
	"corbel.dev/corbel/client"
	"corbel.dev/corbel/node"
	"corbel.dev/corbel/node/config"
	"github.com/spf13/cobra"
)

// Services builds services.
func Services(e *command.Env, c *cobra.Command) {
	c.Long = "List, show, register and deregister services.\n\n  corbel services register --name web --port 8000\n  " +
		"corbel services list\n  corbel services show web --watch\n  corbel services deregister web"
	if e.Consul {
		c.Long = ""
		command.Group(c, servicesRegister(e), servicesDeregister(e), meshcmd.ExportServices(e))
		return
	}
	command.Group(c, servicesList(e), servicesShow(e), servicesRegister(e), servicesDeregister(e), servicesDrain(e),
		meshcmd.ExportServices(e))
}

func servicesList(e *command.Env) *cobra.Command {
	var r command.Reading
	c := &cobra.Command{Use: "list", Short: "List all services with their health, the worst first",
		Args: command.Between(0, 0, "no arguments")}
	r.Flags(e, c, true)
	c.Flags().StringVar(&r.Q.Filter, "filter", "", "expression that services must match")
	c.RunE = func(c *cobra.Command, args []string) error {
		ctx, stop := command.Signals(c.Context())
		defer stop()
		cl, err := r.Client()
		if err != nil {
			return err
		}
		trends := e.Trends(r.Watch)
		read := func(ctx context.Context, q client.Query) ([]client.ServiceCount, client.Meta, error) {
			return countServices(ctx, cl, q)
		}
		return command.Show(ctx, e, &r, r.Q, read, func(w io.Writer, counts []client.ServiceCount) error {
			t := command.Table{Head: trends.Head("SERVICE", "INSTANCES", "PASSING", "WARNING", "CRITICAL", "TAGS")}
			for i := range counts {
				c := &counts[i]
				row := append(append([]string{c.Name}, tallyCells(&c.Tally)...), strings.Join(c.Tags, ","))
				t.Add(trends.Row(row, trends.Add(c.Name, float64(c.Warning+c.Critical)))...)
			}
			return t.Write(w)
		})
	}
	return c
}

// tallyCells are the columns INSTANCES, PASSING, WARNING and CRITICAL.
func tallyCells(t *client.Tally) []string {
	return []string{strconv.Itoa(t.Instances), strconv.Itoa(t.Passing), strconv.Itoa(t.Warning), strconv.Itoa(t.Critical)}
}

func servicesShow(e *command.Env) *cobra.Command {
	var r command.Reading
	var passing bool
	c := &cobra.Command{Use: "show NAME", Short: "Show the instances of a service and their health",
		Args: command.Between(1, 1, "the name of one service")}
	r.Flags(e, c, true)
	r.CompleteServices(c)
	c.Flags().BoolVar(&passing, "passing", false, "only instances with all checks passing")
	c.Flags().StringVar(&r.Q.Filter, "filter", "", "expression that instances must match")
	c.RunE = func(c *cobra.Command, args []string) error {
		ctx, stop := command.Signals(c.Context())
		defer stop()
		cl, err := r.Client()
		if err != nil {
			return err
		}
		read := func(ctx context.Context, q client.Query) ([]client.ServiceEntry, client.Meta, error) {
			entries, meta, err := cl.Service(ctx, args[0], passing, q)
			if err == nil && len(entries) == 0 && !r.Watch {
				err = fmt.Errorf("no instances of %s; see `corbel services list`", args[0])
			}
			return entries, meta, err
		}
		return command.Show(ctx, e, &r, r.Q, read, writeInstances)
	}
	return c
}

func writeInstances(w io.Writer, entries []client.ServiceEntry) error {
	t := command.Table{Head: []string{"NODE", "ID", "ADDRESS", "STATUS", "TAGS", "FAILING CHECKS"}}
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
		t.Add(en.Node.Node, en.Service.ID, net.JoinHostPort(host, strconv.Itoa(en.Service.Port)), en.Status(),
			strings.Join(en.Service.Tags, ","), strings.Join(failing, ","))
	}
	return t.Write(w)
}

// serviceFlags are the flags of register that make up a definition.
type serviceFlags struct {
	name, id, address, kind, socket string
	port                            int
	tags, meta, tagged              []string
}

func (s *serviceFlags) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&s.name, "name", "", "name of the service")
	f.StringVar(&s.id, "id", "", "id of the instance on this agent; default the name")
	f.StringVar(&s.address, "address", "", "address of the instance; default the node's")
	f.StringVar(&s.kind, "kind", "", "kind of the service")
	f.IntVar(&s.port, "port", 0, "port of the instance")
	f.StringVar(&s.socket, "socket", "", "path of the instance's unix socket, instead of a port")
	f.StringArrayVar(&s.tags, "tag", nil, "tag of the instance (repeat)")
	f.StringArrayVar(&s.meta, "meta", nil, "name=value (repeat)")
	f.StringArrayVar(&s.tagged, "tagged-address", nil, "name=host:port, another address of the instance (repeat)")
}

// definition is what the flags say.
func (s *serviceFlags) definition() (map[string]any, error) {
	meta, err := command.Pairs("meta", s.meta)
	if err != nil {
		return nil, err
	}
	out := map[string]any{"Name": s.name, "ID": s.id, "Address": s.address, "Kind": s.kind, "Port": s.port, "Tags": s.tags,
		"Meta": meta}
	if s.socket != "" {
		out["SocketPath"] = s.socket
	}
	tagged, err := command.Pairs("tagged-address", s.tagged)
	if err != nil {
		return nil, err
	}
	addresses := map[string]any{}
	for name, text := range tagged {
		host, port, err := net.SplitHostPort(text)
		number, errPort := strconv.Atoi(port)
		if err != nil || errPort != nil {
			return nil, command.Usagef("--tagged-address %s=%s must be name=host:port", name, text)
		}
		addresses[name] = map[string]any{"Address": host, "Port": number}
	}
	if len(addresses) > 0 {
		out["TaggedAddresses"] = addresses
	}
	return out, nil
}

// definedIn reads the services of files.
func definedIn(e *command.Env, paths []string) ([]map[string]any, error) {
	var services []map[string]any
	for _, path := range paths {
		defs, err := config.ReadDefinitions(path, e.In)
		if err == nil && len(defs.Services) == 0 {
			err = fmt.Errorf("%s defines no service", path)
		}
		if err == nil {
			err = node.CheckDefinitions(&defs)
		}
		if err != nil {
			return nil, err
		}
		services = append(services, defs.Services...)
	}
	return services, nil
}

func servicesRegister(e *command.Env) *cobra.Command {
	var d command.Dial
	var s serviceFlags
	c := &cobra.Command{Use: "register [FILE...]", Short: "Register services from files (- is stdin) or from flags",
		Args: cobra.ArbitraryArgs}
	d.Flags(e, c)
	s.flags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if (s.name == "") == (len(args) == 0) {
			return command.Usagef("give either files or --name with its flags")
		}
		services, err := definedIn(e, args)
		if err != nil {
			return err
		}
		if s.name != "" {
			one, err := s.definition()
			if err != nil {
				return err
			}
			services = append(services, one)
		}
		cl, err := d.Client()
		if err != nil {
			return err
		}
		for _, s := range services {
			if err := cl.Register(c.Context(), s); err != nil {
				return fmt.Errorf("register %s: %w", fieldOf(s, "name"), err)
			}
			fmt.Fprintf(e.Out, "Registered service: %s\n", fieldOf(s, "name"))
		}
		return nil
	}
	return c
}

// fieldOf reads a field of a definition whatever its case.
func fieldOf(s map[string]any, name string) string {
	for k, v := range s {
		if strings.EqualFold(k, name) {
			return fmt.Sprint(v)
		}
	}
	return ""
}

func servicesDeregister(e *command.Env) *cobra.Command {
	var d command.Dial
	var id string
	c := &cobra.Command{Use: e.Words("deregister ID...", "deregister [FILE...]"),
		Short: e.Words("Deregister services of this agent by id",
			"Deregister services of this agent, as files define them or by -id"), Args: cobra.ArbitraryArgs}
	d.Flags(e, c)
	if !e.Consul {
		d.CompleteOwnServices(c)
	}
	c.Flags().StringVar(&id, "id", "", "id of the service")
	c.RunE = func(c *cobra.Command, args []string) error {
		if e.Consul {
			services, err := definedIn(e, args)
			if err != nil {
				return err
			}
			args = args[:0]
			for _, s := range services {
				args = append(args, cmp.Or(fieldOf(s, "id"), fieldOf(s, "name")))
			}
		}
		if id != "" {
			args = append(args, id)
		}
		if len(args) == 0 {
			return command.Usagef("%s needs the id of a service; see the ids with `corbel services show NAME`", c.CommandPath())
		}
		cl, err := d.Client()
		if err != nil {
			return err
		}
		var failures []error
		for _, id := range args {
			if err := cl.Deregister(c.Context(), id); err != nil {
				failures = append(failures, err)
				continue
			}
			fmt.Fprintf(e.Out, "Deregistered service: %s\n", id)
		}
		return errors.Join(failures...)
	}
	return c
}

func nodes(e *command.Env, c *cobra.Command) {
	var r command.Reading
	var detailed bool
	c.Args = command.Between(0, 0, "no arguments")
	r.Flags(e, c, true)
	var service string
	var meta []string
	c.Flags().StringVar(&service, "service", "", "only nodes with an instance of this service")
	r.CompleteServiceFlag(c, "service")
	c.Flags().StringArrayVar(&meta, "node-meta", nil, "only nodes with this key=value (repeat)")
	c.Flags().BoolVar(&detailed, "detailed", false, "also show ids and meta")
	c.Flags().StringVar(&r.Q.Filter, "filter", "", "expression that nodes must match")
	c.Flags().StringVar(&r.Q.Near, "near", "", "sort by distance from this node")
	c.RunE = func(c *cobra.Command, args []string) error {
		ctx, stop := command.Signals(c.Context())
		defer stop()
		cl, err := r.Client()
		if err != nil {
			return err
		}
		if r.Q.NodeMeta, err = command.Pairs("node-meta", meta); err != nil {
			return err
		}
		read := cl.Nodes
		if service != "" {
			read = func(ctx context.Context, q client.Query) ([]client.Node, client.Meta, error) {
				return nodesOf(ctx, cl, service, q)
			}
		}
		if e.Consul {
			return command.Show(ctx, e, &r, r.Q, read, func(w io.Writer, nodes []client.Node) error {
				return writeNodes(w, nodes, detailed)
			})
		}
		trends := e.Trends(r.Watch)
		count := func(ctx context.Context, q client.Query) ([]nodeLine, client.Meta, error) {
			return countNodes(ctx, cl, q, read)
		}
		return command.Show(ctx, e, &r, r.Q, count, func(w io.Writer, lines []nodeLine) error {
			return writeNodeLines(w, lines, detailed, trends)
		})
	}
}

func writeNodeLines(w io.Writer, lines []nodeLine, detailed bool, trends *command.Trends) error {
	head := []string{"NODE", "ADDRESS", "DC", "STATUS", "INSTANCES", "PASSING", "WARNING", "CRITICAL"}
	if detailed {
		head = append(head, "ID", "META")
	}
	t := command.Table{Head: trends.Head(head...)}
	for i := range lines {
		n := &lines[i]
		row := append([]string{n.Node.Node, n.Address, n.Datacenter, n.Status}, tallyCells(&n.Tally)...)
		if detailed {
			row = append(row, n.ID, pairsText(n.Meta))
		}
		t.Add(trends.Row(row, trends.Add(n.Node.Node, float64(n.Warning+n.Critical)))...)
	}
	return t.Write(w)
}

// nodesOf lists the nodes that have an instance of a service, each once.
func nodesOf(ctx context.Context, cl *client.Client, service string, q client.Query) ([]client.Node,
	client.Meta, error) {
	entries, meta, err := cl.Service(ctx, service, false, q)
	nodes := []client.Node{}
	for _, en := range entries {
		if !slices.ContainsFunc(nodes, func(n client.Node) bool { return n.Node == en.Node.Node }) {
			nodes = append(nodes, en.Node)
		}
	}
	return nodes, meta, err
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
