// Package clustercmd holds the commands that look after the cluster: its members,
// its servers, and what an agent tells about itself.
package clustercmd

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
	"github.com/spf13/cobra"
)

// memberPoll is how often members --watch looks: the agent's list has no index to block on.
const memberPoll = time.Second

// Members builds members.
func Members(e *command.Env, c *cobra.Command) {
	var r command.Reading
	var o memberOptions
	c.Args = command.Between(0, 0, "no arguments")
	r.Flags(e, c, true)
	c.Flags().StringVar(&o.status, "status", "",
		"only members in this status: alive, leaving, left or failed, or a pattern of these")
	c.Flags().StringVar(&r.Q.Filter, "filter", "", "expression that members must match")
	c.Flags().BoolVar(&o.detailed, "detailed", false, "print each member's tags")
	c.Flags().BoolVar(&o.wan, "wan", false, "the servers of all datacenters")
	c.Flags().StringVar(&o.segment, "segment", "", "no effect: there is one segment")
	_ = c.Flags().MarkHidden("segment") // fails for an unknown flag only
	c.RunE = func(c *cobra.Command, args []string) error {
		ctx, stop := command.Signals(c.Context())
		defer stop()
		wanted, err := regexp.Compile("^(" + o.status + ")$")
		if err != nil {
			return command.Usagef("--status %q is no pattern: %w", o.status, err)
		}
		cl, err := r.Client()
		if err != nil {
			return err
		}
		list := func(ctx context.Context) ([]client.Member, error) {
			now, err := cl.MembersOf(ctx, o.wan, r.Q)
			now = slices.DeleteFunc(now, func(m client.Member) bool {
				return o.status != "" && !wanted.MatchString(m.StatusText())
			})
			slices.SortFunc(now, func(a, b client.Member) int { return strings.Compare(a.Name, b.Name) })
			return now, err
		}
		found, trends := 0, e.Trends(r.Watch)
		read := command.Changing(memberPoll, list)
		err = command.Show(ctx, e, &r, r.Q, read, func(w io.Writer, members []client.Member) error {
			found = len(members)
			switch {
			case o.detailed:
				return writeMemberTags(w, members, e.Consul)
			case e.Consul && found == 0:
				return nil
			case e.Consul:
				return writeConsulMembers(w, members)
			}
			return writeMembers(w, members, trends)
		})
		if err == nil && e.Consul && found == 0 && !r.JSON {
			return command.ExitCode(2) // scripts ask for members in a status that way
		}
		return err
	}
}

// memberOptions are the flags of members.
type memberOptions struct {
	status, segment string
	detailed, wan   bool
}

func memberKind(m *client.Member) string {
	if m.Tags["role"] == "consul" {
		return "server"
	}
	return "client"
}

// illness is how far from alive a member is, for its trend: one that comes and goes again and again is seen at once.
var illness = map[string]float64{"alive": 0, "leaving": 1, "left": 2, "failed": 3}

func writeMembers(w io.Writer, members []client.Member, trends *command.Trends) error {
	t := command.Table{Head: trends.Head("NODE", "ADDRESS", "STATUS", "TYPE", "VERSION", "DC")}
	for i := range members {
		m := &members[i]
		version, _, _ := strings.Cut(m.Tags["build"], ":")
		row := []string{m.Name, net.JoinHostPort(m.Addr, strconv.Itoa(m.Port)), m.StatusText(), memberKind(m), version,
			m.Tags["dc"]}
		t.Add(trends.Row(row, trends.Add(m.Name, illness[m.StatusText()]))...)
	}
	return t.Write(w)
}

// writeConsulMembers prints the columns that scripts cut out of `consul members`.
func writeConsulMembers(w io.Writer, members []client.Member) error {
	t := command.Table{Head: []string{"Node", "Address", "Status", "Type", "Build", "Protocol", "DC", "Partition",
		"Segment"}}
	for i := range members {
		m := &members[i]
		version, _, _ := strings.Cut(m.Tags["build"], ":")
		kind, segment := memberKind(m), "<default>"
		if kind == "server" {
			segment = "<all>"
		}
		t.Add(m.Name, net.JoinHostPort(m.Addr, strconv.Itoa(m.Port)), m.StatusText(), kind, version,
			cmp.Or(m.Tags["vsn"], strconv.Itoa(int(m.ProtocolCur))), m.Tags["dc"], "default", segment)
	}
	return t.Write(w)
}

func writeMemberTags(w io.Writer, members []client.Member, asConsul bool) error {
	t := command.Table{Head: []string{"NODE", "ADDRESS", "STATUS", "TAGS"}}
	if asConsul {
		t.Head = []string{"Node", "Address", "Status", "Tags"}
	}
	for i := range members {
		m := &members[i]
		t.Add(m.Name, net.JoinHostPort(m.Addr, strconv.Itoa(m.Port)), m.StatusText(),
			strings.ReplaceAll(command.AllPairs(m.Tags), ", ", ","))
	}
	return t.Write(w)
}

// Join builds join.
func Join(e *command.Env, c *cobra.Command) {
	var d command.Dial
	c.Use = "join ADDRESS..."
	c.Args = command.Between(1, -1, "the address of at least one member")
	var wan bool
	d.Flags(e, c)
	c.Flags().BoolVar(&wan, "wan", false, "join servers of other datacenters")
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := d.Client()
		if err != nil {
			return err
		}
		var failures []error
		for _, addr := range args {
			if err := cl.Join(c.Context(), addr, wan); err != nil {
				failures = append(failures, fmt.Errorf("Error joining address '%s': %w", addr, err))
			}
		}
		if joined := len(args) - len(failures); joined > 0 {
			fmt.Fprintf(e.Out, "Successfully joined cluster by contacting %d nodes.\n", joined)
		}
		return errors.Join(failures...)
	}
}

// Leave builds leave.
func Leave(e *command.Env, c *cobra.Command) {
	var d command.Dial
	c.Args = command.Between(0, 0, "no arguments")
	d.Flags(e, c)
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := d.Client()
		if err == nil {
			err = cl.Leave(c.Context())
		}
		if err == nil {
			_, err = fmt.Fprintln(e.Out, "Graceful leave complete")
		}
		return err
	}
}

// ForceLeave builds force-leave.
func ForceLeave(e *command.Env, c *cobra.Command) {
	var d command.Dial
	var prune bool
	c.Use = "force-leave NODE"
	c.Args = command.Between(1, 1, "the name of one node")
	d.Flags(e, c)
	c.Flags().BoolVar(&prune, "prune", false, "forget the member immediately")
	var wan bool
	c.Flags().BoolVar(&wan, "wan", false, "a server of another datacenter")
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := d.Client()
		if err != nil {
			return err
		}
		return cl.ForceLeave(c.Context(), args[0], prune, wan)
	}
}

// Reload builds reload.
func Reload(e *command.Env, c *cobra.Command) {
	var d command.Dial
	c.Args = command.Between(0, 0, "no arguments")
	d.Flags(e, c)
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := d.Client()
		if err == nil {
			err = cl.Reload(c.Context())
		}
		if err == nil {
			_, err = fmt.Fprintln(e.Out, "Configuration reload triggered")
		}
		return err
	}
}

// Info builds info.
func Info(e *command.Env, c *cobra.Command) {
	var r command.Reading
	c.Args = command.Between(0, 0, "no arguments")
	r.Flags(e, c, false)
	ready := c.Flags().Bool("ready", false, "only tell whether clients may come, with all planes: exit code 1 until then")
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := r.Client()
		if err != nil {
			return err
		}
		if *ready {
			return cl.Ready(c.Context())
		}
		self, err := cl.Self(c.Context())
		if err != nil {
			return err
		}
		if r.JSON {
			return command.WriteJSON(e.Out, self.Stats, false)
		}
		for _, section := range slices.Sorted(maps.Keys(self.Stats)) {
			fmt.Fprintf(e.Out, "%s:\n", section)
			for _, key := range slices.Sorted(maps.Keys(self.Stats[section])) {
				if _, err := fmt.Fprintf(e.Out, "\t%s = %s\n", key, self.Stats[section][key]); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// Monitor builds monitor.
func Monitor(e *command.Env, c *cobra.Command) {
	var d command.Dial
	var level string
	var asJSON bool
	c.Args = command.Between(0, 0, "no arguments")
	d.Flags(e, c)
	c.Flags().StringVar(&level, "log-level", "info", "lowest level to show: trace, debug, info, warn or error")
	c.Flags().BoolVar(&asJSON, "log-json", false, "one JSON object per line")
	c.Flags().BoolVar(&asJSON, "json", false, "same as --log-json")
	c.RunE = func(c *cobra.Command, args []string) error {
		ctx, stop := command.Signals(c.Context())
		defer stop()
		cl, err := d.Client()
		if err != nil {
			return err
		}
		stream, err := cl.Monitor(ctx, level, asJSON)
		if err != nil {
			return err
		}
		defer stream.Close()
		lines := bufio.NewScanner(stream)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if _, err := fmt.Fprintln(e.Out, lines.Text()); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return nil // interrupted: what it was for
		}
		return errors.Join(errors.New("the agent ended the stream"), lines.Err())
	}
}

// Maint builds maint.
func Maint(e *command.Env, c *cobra.Command) {
	var r command.Reading
	var enable, disable bool
	var service, reason string
	c.Args = command.Between(0, 0, "no arguments")
	c.Long = "Put this agent's node, or one of its services, in or out of maintenance. Without\n--enable or --disable " +
		"it lists what is in maintenance."
	r.Flags(e, c, false)
	c.Flags().BoolVar(&enable, "enable", false, "begin maintenance")
	c.Flags().BoolVar(&disable, "disable", false, "end maintenance")
	c.Flags().StringVar(&service, "service", "", "id of the service; default the whole node")
	c.Flags().StringVar(&reason, "reason", "", "description for other operators")
	c.RunE = func(c *cobra.Command, args []string) error {
		if enable && disable || !enable && !disable && (service != "" || reason != "") {
			return command.Usagef("give one of --enable and --disable")
		}
		cl, err := r.Client()
		if err != nil {
			return err
		}
		if !enable && !disable {
			return maintList(c.Context(), e, &r, cl)
		}
		if err := cl.Maintenance(c.Context(), service, enable, reason); err != nil {
			return err
		}
		state := "enabled"
		if disable {
			state = "disabled"
		}
		switch {
		case service == "":
			return e.Printf("Node maintenance is now %s\n", state)
		case e.Consul:
			return e.Printf("Service maintenance is now %s for %q\n", state, service)
		}
		return e.Printf("Service %s maintenance is now %s\n", service, state)
	}
}

func maintList(ctx context.Context, e *command.Env, r *command.Reading, cl *client.Client) error {
	checks, err := cl.AgentChecks(ctx)
	if err != nil {
		return err
	}
	list := []client.Check{}
	t := command.Table{Head: []string{"NODE", "SERVICE", "REASON"}}
	for _, id := range slices.Sorted(maps.Keys(checks)) {
		if check := checks[id]; client.Worst([]client.Check{check}) == "maintenance" {
			list = append(list, check)
			t.Add(check.Node, check.ServiceID, check.Notes)
		}
	}
	switch {
	case r.JSON:
		return command.WriteJSON(e.Out, list, false)
	case e.Consul:
		return writeMaintained(ctx, e, cl, list)
	}
	return t.Write(e.Out)
}

// writeMaintained prints what is in maintenance as Consul's command line does.
func writeMaintained(ctx context.Context, e *command.Env, cl *client.Client, list []client.Check) error {
	self, err := cl.Self(ctx)
	if err != nil {
		return err
	}
	for _, check := range list {
		name, head := "  Name:   "+fmt.Sprint(self.Config["NodeName"]), "Node:"
		if check.ServiceID != "" {
			name, head = "  ID:     "+check.ServiceID, "Service:"
		}
		e.Say("%s\n%s\n  Reason: %s\n\n", head, name, check.Notes)
	}
	return nil
}
