package meshcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
	"github.com/spf13/cobra"
)

// Mesh builds `mesh`: how the proxies stand.
func Mesh(e *command.Env, c *cobra.Command) {
	command.Group(c, meshStatus(e), meshProxy(e), meshTopology(e), meshCertificates(e))
}

// proxyStatus is a proxy as its host sees it.
type proxyStatus struct {
	Node, ID, Kind, Service, State string
	connection
	Resources, Pending int
	LagMillis          int64
	Refused            uint64
	Refusal            *struct {
		Type, Words string
		Resources   []string
		At          time.Time
	}
	Missing, Problems, Upstreams []string
	Details                      []struct {
		Type, Name, Version, Applied string
		Changed, AppliedAt           time.Time
		TookMillis                   *float64
	}
}

// connection is how a proxy's Envoy is connected to its host.
type connection struct {
	Envoy           string
	Streams         int
	Since, Answered time.Time
}

// silent is a member that did not answer.
type silent struct{ Node, Error string }

func writeSilent(w io.Writer, list []silent) error {
	for _, s := range list {
		if _, err := fmt.Fprintf(w, "No answer from %s: %s\n", s.Node, s.Error); err != nil {
			return err
		}
	}
	return nil
}

type statusAnswer struct {
	Proxies, Hosts int
	States         map[string]int
	List           []proxyStatus
	Silent         []silent
	Unattended     []string
}

// again is how often a command with --watch asks: how proxies stand has no index to block on, and all hosts are asked.
const again = 2 * time.Second

// watched is a command that shows an answer of the mesh, with --watch again when it is another one. The path is read
// after the flags; write says an answer, and may change it.
func watched[T any](e *command.Env, use, short string, path func() string,
	write func(w io.Writer, a *T, trends *command.Trends) error) *cobra.Command {
	var r command.Reading
	c := &cobra.Command{Use: use, Short: short, Args: command.Between(0, 0, "flags only")}
	r.Flags(e, c, true)
	r.FormatFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := r.CheckFormat(); err != nil {
			return err
		}
		ctx, stop := command.Signals(c.Context())
		defer stop()
		cl, err := r.Client()
		if err != nil {
			return err
		}
		ask := func(ctx context.Context) (json.RawMessage, error) {
			var raw json.RawMessage
			_, err := cl.Get(ctx, path(), r.Q, &raw)
			return raw, err
		}
		trends := e.Trends(r.Watch)
		return command.Show(ctx, e, &r, r.Q, command.Changing(again, ask), func(w io.Writer, raw json.RawMessage) error {
			var a T
			if err := json.Unmarshal(raw, &a); err != nil {
				return err
			}
			return write(w, &a, trends)
		})
	}
	return c
}

func meshStatus(e *command.Env) *cobra.Command {
	var all bool
	path := func() string {
		if all {
			return "/v1/internal/mesh/status?all"
		}
		return "/v1/internal/mesh/status"
	}
	seen := map[string]bool{}
	c := watched(e, "status", "Show how many proxies are up to date, and which are not", path,
		func(w io.Writer, a *statusAnswer, trends *command.Trends) error {
			a.keep(seen)
			return a.write(w, trends)
		})
	c.Flags().BoolVar(&all, "all", false, "list all proxies, not only those that are not synced")
	return c
}

// keep has a state that was told before told again where no proxy is in it now: its line stays where it is, and its
// trend goes down.
func (a *statusAnswer) keep(seen map[string]bool) {
	for state := range a.States {
		seen[state] = true
	}
	if a.States == nil {
		a.States = map[string]int{}
	}
	for state := range seen {
		a.States[state] += 0
	}
}

func (a *statusAnswer) write(w io.Writer, trends *command.Trends) error {
	f := command.Fields{Width: 20}
	number := func(name string, n int) { f.Add(name, trends.Beside(strconv.Itoa(n), name, float64(n))) }
	number("Proxies", a.Proxies)
	for _, state := range command.SortedKeys(a.States) {
		number("  "+state, a.States[state])
	}
	if len(a.Unattended) > 0 {
		f.Add("  without an agent", strconv.Itoa(len(a.Unattended)))
	}
	f.Add("Hosts asked", strconv.Itoa(a.Hosts))
	f.Add("Hosts silent", strconv.Itoa(len(a.Silent)))
	if err := f.Write(w); err != nil {
		return err
	}
	if len(a.List) > 0 {
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
		t := command.Table{Head: trends.Head("NODE", "PROXY", "SERVICE", "STATE", "PENDING", "LAG", "REFUSED", "ENVOY")}
		for i := range a.List {
			p := &a.List[i]
			row := []string{p.Node, p.ID, p.Service, p.State, strconv.Itoa(p.Pending), lag(p.LagMillis),
				strconv.FormatUint(p.Refused, 10), p.Envoy}
			t.Add(trends.Row(row, trends.Add(p.Node+"/"+p.ID, float64(p.Pending)))...)
		}
		if err := t.Write(w); err != nil {
			return err
		}
	}
	return writeSilent(w, a.Silent)
}

func lag(millis int64) string {
	if millis == 0 {
		return ""
	}
	d := time.Duration(millis) * time.Millisecond
	if d >= time.Minute {
		d = d.Round(time.Second)
	}
	return d.String()
}

func meshProxy(e *command.Env) *cobra.Command {
	return command.Read(e, "proxy NAME", "Show what a proxy should have, has, and refused",
		command.Between(1, 1, "the proxy's ID, or its service"),
		func(ctx context.Context, r *command.Reading, cl *client.Client, args []string) error {
			var raw json.RawMessage
			if _, err := cl.Get(ctx, "/v1/internal/mesh/find/"+client.Escape(args[0]), r.Q, &raw); err != nil {
				return err
			}
			if r.JSON {
				return command.WriteJSON(e.Out, raw, false)
			}
			var a struct {
				List   []proxyStatus
				Silent []silent
				More   int
			}
			if err := json.Unmarshal(raw, &a); err != nil {
				return err
			}
			for i := range a.List {
				if i > 0 {
					e.Say("\n")
				}
				if err := a.List[i].write(e.Out); err != nil {
					return err
				}
			}
			if a.More > 0 {
				e.Say("\n%d more proxies are not shown: ask for one by its ID\n", a.More)
			}
			return writeSilent(e.Out, a.Silent)
		})
}

func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05.000")
}

func (p *proxyStatus) write(w io.Writer) error {
	f := command.Fields{Width: 20}
	f.Add("Proxy", p.ID)
	f.Add("Node", p.Node)
	f.Add("Kind", p.Kind)
	f.Add("Service", p.Service)
	f.Add("State", p.State)
	f.Add("Envoy", p.Envoy)
	f.Add("Streams", strconv.Itoa(p.Streams))
	f.Add("Since", moment(p.Since))
	f.Add("Last answer", moment(p.Answered))
	f.Add("Upstreams", strings.Join(p.Upstreams, ", "))
	f.Add("Resources", fmt.Sprintf("%d, %d not acknowledged", p.Resources, p.Pending))
	if p.LagMillis > 0 {
		f.Add("Lag", lag(p.LagMillis))
	}
	f.Add("Refused", strconv.FormatUint(p.Refused, 10))
	if r := p.Refusal; r != nil {
		f.Add("Last refusal", moment(r.At)+" "+r.Type+" "+strings.Join(r.Resources, ", "))
		f.Add("Envoy says", r.Words)
	}
	for _, m := range p.Missing {
		f.Add("Waits for", m)
	}
	for _, m := range p.Problems {
		f.Add("Problem", m)
	}
	if err := f.Write(w); err != nil || len(p.Details) == 0 {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	t := command.Table{Head: []string{"TYPE", "NAME", "VERSION", "ACKNOWLEDGED", "AT", "TOOK"}}
	for _, d := range p.Details {
		took, acked := "", d.Applied
		if d.Applied == d.Version {
			acked = "same"
		}
		if d.TookMillis != nil {
			took = strconv.FormatFloat(*d.TookMillis, 'f', 1, 64) + "ms"
		}
		t.Add(d.Type, d.Name, d.Version, acked, moment(d.AppliedAt), took)
	}
	return t.Write(w)
}

// topologyAnswer is who calls whom.
type topologyAnswer struct {
	Services map[string]int
	Edges    []struct {
		Source, Destination, Datacenter, Reason string
		Proxies                                 int
		Allowed, PerRequest                     bool
	}
}

func meshTopology(e *command.Env) *cobra.Command {
	path := func() string { return "/v1/internal/mesh/topology" }
	return watched(e, "topology", "Show which services call which, and whether intentions allow it", path,
		writeTopology)
}

func writeTopology(w io.Writer, a *topologyAnswer, trends *command.Trends) error {
	t := command.Table{Head: trends.Head("SERVICE", "PROXIES", "CALLS", "FROM", "ALLOWED", "BECAUSE OF")}
	calls := map[string]bool{}
	for _, edge := range a.Edges {
		allowed := map[bool]string{true: "yes", false: "no"}[edge.Allowed]
		if edge.PerRequest {
			allowed = "by request"
		}
		calls[edge.Source] = true
		to := edge.Destination
		if edge.Datacenter != "" {
			to += " in " + edge.Datacenter
		}
		row := []string{edge.Source, strconv.Itoa(a.Services[edge.Source]), to, strconv.Itoa(edge.Proxies), allowed,
			edge.Reason}
		t.Add(trends.Row(row, trends.Add(edge.Source+" "+to, float64(edge.Proxies)))...)
	}
	for _, name := range command.SortedKeys(a.Services) {
		if n := a.Services[name]; !calls[name] {
			t.Add(trends.Row([]string{name, strconv.Itoa(n), "", "", "", ""}, trends.Add(name, float64(n)))...)
		}
	}
	return t.Write(w)
}
