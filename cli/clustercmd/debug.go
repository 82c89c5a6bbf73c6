package clustercmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/cli/bundle"
	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
	"github.com/spf13/cobra"
)

// debugOptions are the flags of debug.
type debugOptions struct {
	command.Dial
	duration, interval time.Duration
	since              time.Duration
	captures, nodes    []string
	output, level      string
	archive, servers   bool
	asJSON             bool
}

// Debug builds debug.
func Debug(e *command.Env, c *cobra.Command) {
	var o debugOptions
	c.Args = command.Between(0, 0, "flags only")
	c.Long = `Collect profiles, metrics over time, logs, cluster state and host facts in one archive
that you can read elsewhere. Its index.json describes each file and its origin, and
lists what is missing. Secrets are removed. This host's agent asks all servers, and the
agents that --node names; members that do not answer are listed and delay nothing.
Profiles need enable_debug = true on the member, or a token with operator:read if ACLs
are on.

  corbel debug --duration 30s
  corbel debug --node web-7 --capture logs --capture metrics --output incident`
	o.Dial.Flags(e, c)
	f := c.Flags()
	f.DurationVar(&o.duration, "duration", defaultDuration(e), "how long to gather")
	f.DurationVar(&o.interval, "interval", 30*time.Second, "time between samples of metrics")
	f.DurationVar(&o.since, "since", 0, "no effect: all that members keep of their log is taken")
	f.StringArrayVar(&o.captures, "capture", nil, "agent, host, cluster, metrics, logs or pprof; default all (repeat)")
	f.StringVar(&o.output, "output", "", "name of the archive, without .tar.gz; default one with the time")
	f.BoolVar(&o.archive, "archive", true, "false: leave a folder instead of an archive")
	f.StringVar(&o.level, "log-level", "debug", "lowest level of the logs")
	f.StringArrayVar(&o.nodes, "node", nil, "another agent to ask: its name, or NAME=http://host:port (repeat)")
	f.BoolVar(&o.servers, "servers", !e.Consul, "ask all servers, not this agent alone")
	f.BoolVar(&o.asJSON, "json", false, "print the index as JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		ctx, stop := command.Signals(c.Context())
		defer stop()
		if o.duration <= 0 || o.interval <= 0 {
			return command.Usagef("--duration and --interval must be above 0")
		}
		return runDebug(ctx, e, &o)
	}
}

// defaultDuration is that of Consul's own where its command line is spoken.
func defaultDuration(e *command.Env) time.Duration {
	if e.Consul {
		return 5 * time.Minute
	}
	return 30 * time.Second
}

// captured reads --capture, with the words of Consul's versions.
func (o *debugOptions) captured() ([]string, error) {
	if len(o.captures) == 0 {
		return bundle.Captures, nil
	}
	var out []string
	for _, c := range o.captures {
		if c == "members" {
			c = "cluster"
		}
		if !slices.Contains(bundle.Captures, c) {
			return nil, command.Usagef("--capture %s must be one of %s", c, strings.Join(bundle.Captures, ", "))
		}
		out = append(out, c)
	}
	return out, nil
}

func runDebug(ctx context.Context, e *command.Env, o *debugOptions) error {
	captures, err := o.captured()
	if err != nil {
		return err
	}
	cl, err := o.Client()
	if err != nil {
		return err
	}
	dialled, err := o.Config()
	if err != nil {
		return err
	}
	nodes, err := debugNodes(ctx, e, o, cl, dialled)
	if err != nil {
		return err
	}
	name := o.output
	if name == "" {
		name = fmt.Sprintf("%s-debug-%s", e.Program(), time.Now().UTC().Format("2006-01-02T15-04-05Z"))
	}
	if !o.asJSON {
		if err := e.Printf("Gathering for %s from %d nodes: %s\n", o.duration, len(nodes),
			strings.Join(captures, ", ")); err != nil {
			return err
		}
	}
	cfg := bundle.Config{Nodes: nodes, Captures: captures, Duration: o.duration, Interval: o.interval, LogLevel: o.level,
		Secrets: []string{dialled.Token, dialled.User}}
	end := showDebug(e, o)
	path, index, err := gather(ctx, cfg, filepath.Clean(name), o.archive)
	end()
	if err != nil {
		return err
	}
	if o.asJSON {
		return command.WriteJSON(e.Out, struct {
			Archive string
			Index   *bundle.Index
		}{path, index}, false)
	}
	return debugSummary(e, path, index)
}

// showDebug tells on a terminal how many seconds of the gathering have passed, until end.
func showDebug(e *command.Env, o *debugOptions) (end func()) {
	p := e.Progress("gathering", "s", int64(o.duration.Seconds()))
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		defer p.End()
		t := time.NewTicker(time.Second)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				p.Add(1)
			case <-stop:
				return
			}
		}
	}()
	return func() { close(stop); <-ended }
}

// gather writes an archive, or a folder.
func gather(ctx context.Context, cfg bundle.Config, name string, archive bool) (string, *bundle.Index, error) {
	if !archive {
		if _, err := os.Stat(name); err == nil {
			return "", nil, fmt.Errorf("%s is there already: give another name with -output", name)
		}
		cfg.Sink = bundle.Folder{Path: name}
		index, err := bundle.Gather(ctx, cfg)
		return name, index, err
	}
	path := strings.TrimSuffix(name, ".tar.gz") + ".tar.gz"
	a, err := bundle.CreateArchive(path)
	if err != nil {
		return "", nil, err
	}
	cfg.Sink = a
	index, err := bundle.Gather(ctx, cfg)
	interrupted := errors.Is(err, context.Canceled) // what there is until then is of use
	err = errors.Join(err, a.Close(err == nil || interrupted))
	if interrupted && index != nil {
		err = nil
	}
	return path, index, err
}

// debugSummary says what could not be had, and where the archive is.
func debugSummary(e *command.Env, path string, index *bundle.Index) error {
	failed := map[string]int{}
	for _, n := range index.Nodes {
		if n.Error != "" {
			fmt.Fprintf(e.Err, "warning: %s did not answer: %s\n", n.Name, n.Error)
		}
	}
	for _, f := range index.Files {
		if f.Error != "" {
			failed[f.Kind]++
		}
	}
	for _, kind := range command.SortedKeys(failed) {
		fmt.Fprintf(e.Err, "warning: %d files of kind %s could not be had; index.json says why\n", failed[kind], kind)
	}
	return e.Printf("Saved debug archive: %s\n", path)
}

// debugNodes lists whom to ask: this agent first, then the servers, then those of --node.
func debugNodes(ctx context.Context, e *command.Env, o *debugOptions, cl *client.Client,
	dialled client.Config) ([]bundle.Node,
	error) {
	self, err := cl.Self(ctx)
	if err != nil {
		return nil, err
	}
	own := fmt.Sprint(self.Config["NodeName"])
	role := "agent"
	if self.Config["Server"] == true {
		role = "server"
	}
	nodes := []bundle.Node{{Name: own, Role: role, Client: cl, Via: cl.Address()}}
	members, err := cl.Members(ctx, client.Query{})
	if err != nil {
		return nil, err
	}
	add := func(m *client.Member, role string) {
		if slices.ContainsFunc(nodes, func(n bundle.Node) bool { return n.Name == m.Name }) {
			return
		}
		n := bundle.Node{Name: m.Name, Role: role, Client: cl, Via: cl.Address(), Prefix: "/v1/internal/reach/" +
			client.Escape(m.Name)}
		if s := m.StatusText(); s != "alive" {
			n.Error = "gossip says it is " + s
		}
		nodes = append(nodes, n)
	}
	for i := range members {
		if o.servers && memberKind(&members[i]) == "server" && members[i].StatusText() != "left" {
			add(&members[i], "server")
		}
	}
	for _, given := range o.nodes {
		name, addr, direct := strings.Cut(given, "=")
		if direct {
			there := dialled
			there.Address = addr
			other, err := client.New(there)
			if err != nil {
				return nil, err
			}
			e.OnClose(other.Close)
			nodes = append(nodes, bundle.Node{Name: name, Role: "agent", Client: other, Via: addr})
			continue
		}
		i := slices.IndexFunc(members, func(m client.Member) bool { return m.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("--node %s: there is no such member; see `%s members`, or give its address as "+
				"%s=http://host:port", name, e.Program(), name)
		}
		add(&members[i], memberKind(&members[i]))
	}
	return nodes, nil
}
