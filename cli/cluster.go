package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/client"
	"github.com/spf13/cobra"
)

// memberPoll is how often members --watch looks: the agent's list has no index to block on.
const memberPoll = time.Second

func (e *env) members(c *cobra.Command) {
	var r reading
	var status string
	c.Args = between(0, 0, "no arguments")
	r.flags(e, c, true)
	c.Flags().StringVar(&status, "status", "", "only members in this status: alive, leaving, left or failed")
	c.Flags().StringVar(&r.q.Filter, "filter", "", "expression that members must match")
	c.RunE = func(c *cobra.Command, args []string) error {
		ctx, stop := signals(c.Context())
		defer stop()
		cl, err := r.client()
		if err != nil {
			return err
		}
		var before []client.Member
		var version uint64
		read := func(ctx context.Context, q client.Query) ([]client.Member, client.Meta, error) {
			for {
				now, err := cl.Members(ctx, r.q)
				now = slices.DeleteFunc(now, func(m client.Member) bool { return status != "" && m.StatusText() != status })
				slices.SortFunc(now, func(a, b client.Member) int { return strings.Compare(a.Name, b.Name) })
				if err != nil || version == 0 || !reflect.DeepEqual(before, now) {
					before = now
					version++
					return now, client.Meta{Index: version}, err
				}
				timer := time.NewTimer(memberPoll)
				select {
				case <-ctx.Done():
					timer.Stop()
					return nil, client.Meta{}, ctx.Err()
				case <-timer.C:
				}
			}
		}
		return show(ctx, e, &r, r.q, read, writeMembers)
	}
}

func writeMembers(w io.Writer, members []client.Member) error {
	t := table{head: []string{"NODE", "ADDRESS", "STATUS", "TYPE", "VERSION", "DC"}}
	for i := range members {
		m := &members[i]
		kind := "client"
		if m.Tags["role"] == "consul" {
			kind = "server"
		}
		version, _, _ := strings.Cut(m.Tags["build"], ":")
		t.add(m.Name, net.JoinHostPort(m.Addr, strconv.Itoa(m.Port)), m.StatusText(), kind, version, m.Tags["dc"])
	}
	return t.write(w)
}

func (e *env) join(c *cobra.Command) {
	var d dial
	c.Use = "join ADDRESS..."
	c.Args = between(1, -1, "the address of at least one member")
	d.flags(e, c)
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := d.client()
		if err != nil {
			return err
		}
		var failures []error
		for _, addr := range args {
			if err := cl.Join(c.Context(), addr); err != nil {
				failures = append(failures, fmt.Errorf("join %s: %w", addr, err))
			}
		}
		if joined := len(args) - len(failures); joined > 0 {
			fmt.Fprintf(e.out, "Successfully joined cluster by contacting %d nodes.\n", joined)
		}
		return errors.Join(failures...)
	}
}

func (e *env) leave(c *cobra.Command) {
	var d dial
	c.Args = between(0, 0, "no arguments")
	d.flags(e, c)
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := d.client()
		if err == nil {
			err = cl.Leave(c.Context())
		}
		if err == nil {
			_, err = fmt.Fprintln(e.out, "Graceful leave complete")
		}
		return err
	}
}

func (e *env) forceLeave(c *cobra.Command) {
	var d dial
	var prune bool
	c.Use = "force-leave NODE"
	c.Args = between(1, 1, "the name of one node")
	d.flags(e, c)
	c.Flags().BoolVar(&prune, "prune", false, "forget the member at once")
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := d.client()
		if err != nil {
			return err
		}
		return cl.ForceLeave(c.Context(), args[0], prune)
	}
}

func (e *env) reload(c *cobra.Command) {
	var d dial
	c.Args = between(0, 0, "no arguments")
	d.flags(e, c)
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := d.client()
		if err == nil {
			err = cl.Reload(c.Context())
		}
		if err == nil {
			_, err = fmt.Fprintln(e.out, "Configuration reload triggered")
		}
		return err
	}
}

func (e *env) info(c *cobra.Command) {
	var r reading
	c.Args = between(0, 0, "no arguments")
	r.flags(e, c, false)
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := r.client()
		if err != nil {
			return err
		}
		self, err := cl.Self(c.Context())
		if err != nil {
			return err
		}
		if r.json {
			return writeJSON(e.out, self.Stats, false)
		}
		for _, section := range slices.Sorted(maps.Keys(self.Stats)) {
			fmt.Fprintf(e.out, "%s:\n", section)
			for _, key := range slices.Sorted(maps.Keys(self.Stats[section])) {
				if _, err := fmt.Fprintf(e.out, "\t%s = %s\n", key, self.Stats[section][key]); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

func (e *env) monitor(c *cobra.Command) {
	var d dial
	var level string
	var asJSON bool
	c.Args = between(0, 0, "no arguments")
	d.flags(e, c)
	c.Flags().StringVar(&level, "log-level", "info", "lowest level to show: trace, debug, info, warn or error")
	c.Flags().BoolVar(&asJSON, "log-json", false, "one JSON object per line")
	c.Flags().BoolVar(&asJSON, "json", false, "same as --log-json")
	c.RunE = func(c *cobra.Command, args []string) error {
		ctx, stop := signals(c.Context())
		defer stop()
		cl, err := d.client()
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
			if _, err := fmt.Fprintln(e.out, lines.Text()); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return nil // interrupted: what it was for
		}
		return errors.Join(errors.New("the agent ended the stream"), lines.Err())
	}
}

func (e *env) maint(c *cobra.Command) {
	var r reading
	var enable, disable bool
	var service, reason string
	c.Args = between(0, 0, "no arguments")
	c.Long = "Put this agent's node, or one of its services, in or out of maintenance. Without\n--enable or --disable it lists what is in maintenance."
	r.flags(e, c, false)
	c.Flags().BoolVar(&enable, "enable", false, "begin maintenance")
	c.Flags().BoolVar(&disable, "disable", false, "end maintenance")
	c.Flags().StringVar(&service, "service", "", "id of the service; default the whole node")
	c.Flags().StringVar(&reason, "reason", "", "text for others to read")
	c.RunE = func(c *cobra.Command, args []string) error {
		if enable && disable || !enable && !disable && (service != "" || reason != "") {
			return usagef("give one of --enable and --disable")
		}
		cl, err := r.client()
		if err != nil {
			return err
		}
		if !enable && !disable {
			return e.maintList(c.Context(), &r, cl)
		}
		if err := cl.Maintenance(c.Context(), service, enable, reason); err != nil {
			return err
		}
		what, state := "Node", "enabled"
		if service != "" {
			what = "Service " + service
		}
		if disable {
			state = "disabled"
		}
		_, err = fmt.Fprintf(e.out, "%s maintenance is now %s\n", what, state)
		return err
	}
}

func (e *env) maintList(ctx context.Context, r *reading, cl *client.Client) error {
	checks, err := cl.AgentChecks(ctx)
	if err != nil {
		return err
	}
	list := []client.Check{}
	t := table{head: []string{"NODE", "SERVICE", "REASON"}}
	for _, id := range slices.Sorted(maps.Keys(checks)) {
		if check := checks[id]; client.Worst([]client.Check{check}) == "maintenance" {
			list = append(list, check)
			t.add(check.Node, check.ServiceID, check.Notes)
		}
	}
	if r.json {
		return writeJSON(e.out, list, false)
	}
	return t.write(e.out)
}
