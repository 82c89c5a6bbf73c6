// Package benchcmd holds `corbel bench`: flags and tables of what package bench measures.
package benchcmd

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"corbel.dev/corbel/bench"
	"corbel.dev/corbel/bench/pairs"
	"corbel.dev/corbel/bench/secretsload"
	"corbel.dev/corbel/bench/sizing"
	"corbel.dev/corbel/cli/command"
)

// benchFlags are the flags of one bench; every bench takes the first group, and
// its own of the second.
type benchFlags struct {
	bench.Options
	json bool
	html string
}

// report is what a bench measured.
type report interface {
	WriteJSON(w io.Writer) error
	WriteText(w io.Writer) error
}

// Bench builds bench.
func Bench(e *command.Env, c *cobra.Command) {
	c.Long = `Measure Corbel, or with --target the system that it replaces, through its public ports.
Without --target, the bench starts real servers on 127.0.0.1 with new, durable data
directories, and stops them at the end. Results include what this machine can do at best
(its floors), so that you can compare machines. Progress goes to stderr.

  corbel bench kv --connections 64
  corbel bench watch --watchers 5000 --json
  corbel bench kv --target 127.0.0.1:8500
  corbel bench compare ./corbel-before ./corbel-after`
	simple := func(name, short string, run func(context.Context, bench.Options) (*bench.Result, error)) *cobra.Command {
		b := &benchFlags{}
		cmd := benchCommand(e, name, short, b)
		runs(e, cmd, b, func(ctx context.Context) (report, error) { return orNil(run(ctx, b.Options)) })
		return cmd
	}
	command.Group(c,
		simple("floor", "What this machine can do at best: fsync, HTTP, gRPC", bench.RunFloor),
		simple("kv", "Writes and reads of the key-value store", bench.RunKV),
		simple("register", "Catalog registrations of distinct nodes and services", bench.RunRegister),
		benchSize(e), benchHealth(e), benchWatch(e), benchDNS(e), benchFleet(e), benchSinks(e), benchDoctor(e),
		benchCompare(e),
		benchHello(e),
		benchPropagation(e), benchSidecars(e), benchHosts(e),
		benchCache(e), benchUsage(e), benchJobs(e), benchJobLists(e), benchDispatch(e),
		benchJobNodes(e), benchUI(e),
		benchSecrets(e), benchLeases(e), benchAgents(e), benchEvents(e), benchPlayAgents(e),
		benchVaultSimple(e, "tokens", "Service tokens made", secretsload.RunTokens),
		benchVaultSimple(e, "logins", "Logins by password", secretsload.RunLogins),
		benchVaultSimple(e, "pki", "Certificates issued", secretsload.RunPKI),
		benchVaultSimple(e, "transit", "Signatures made", secretsload.RunTransit))
}

// benchCommand makes a command with the flags that all benches share.
func benchCommand(e *command.Env, name, short string, b *benchFlags) *cobra.Command {
	c := &cobra.Command{Use: name, Short: short, Args: command.Between(0, 0, "flags only")}
	f := c.Flags()
	f.StringVar(&b.Target, "target", "", "HTTP address of a running server or agent; empty starts servers")
	f.StringVar(&b.DNSTarget, "dns-target", "", "DNS address that goes with --target")
	f.IntVar(&b.Servers, "servers", 1, "how many servers to start: 1, 3 or 5")
	f.IntVarP(&b.Connections, "connections", "c", 0,
		"client connections, or sockets for dns (0 is the bench's own number)")
	f.DurationVarP(&b.Duration, "duration", "d", 0, "how long the measured part runs (0 is 10s; compare 3s)")
	f.StringVar(&b.Token, "token", "", "token for --target")
	f.StringVar(&b.Binary, "binary", "", "the corbel to start (empty is this one)")
	f.BoolVar(&b.SkipFloors, "no-floors", false, "do not measure this machine's floors")
	f.StringVar(&b.KeepDir, "keep-dir", "", "keep the started servers' data directories in this folder")
	f.BoolVar(&b.json, "json", false, "print JSON")
	return c
}

// runs makes c measure until done or interrupted and print the report. A report
// beside an error (compare has one) is printed too.
func runs(e *command.Env, c *cobra.Command, b *benchFlags, measure func(context.Context) (report, error)) {
	if c.Flags().Lookup("html") == nil { // propagation draws its own
		c.Flags().StringVar(&b.html, "html", "", "also write the result as a page into this file")
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		ctx, stop := command.Signals(c.Context())
		defer stop()
		b.Progress = e.Err
		r, err := measure(ctx)
		if r == nil {
			return err
		}
		write := r.WriteText
		if b.json {
			write = r.WriteJSON
		}
		if werr := write(e.Out); werr != nil && err == nil {
			return werr
		}
		if b.html != "" {
			if werr := savePage(c.Name(), b.html, r); werr != nil && err == nil {
				return werr
			}
		}
		return err
	}
}

// orNil keeps a nil result a nil report: a typed nil in an interface is not nil.
func orNil(r *bench.Result, err error) (report, error) {
	if r == nil {
		return nil, err
	}
	return r, err
}

func benchHealth(e *command.Env) *cobra.Command {
	b, o := &benchFlags{}, bench.HealthOptions{}
	c := benchCommand(e, "health", "Health queries of one large service", b)
	c.Flags().IntVar(&o.Instances, "instances", 120, "instances of the service; 120 make an answer of 88 kB")
	runs(e, c, b, func(ctx context.Context) (report, error) {
		o.Options = b.Options
		return orNil(bench.RunHealth(ctx, o))
	})
	return c
}

func benchSize(e *command.Env) *cobra.Command {
	b, o := &benchFlags{}, sizing.Options{}
	c := benchCommand(e, "size", "What servers a fleet needs: cores, memory and disk, from samples on this machine", b)
	c.Long = `Measure samples of a fleet's parts on this machine and add up what each server of the whole fleet
needs: cores, memory and fsyncs a second. Under the line stands what each part of it was derived
from, which bench measures that part for itself, and what was assumed. Parts that are not asked for
are not measured.

  corbel bench size --nodes 2000 --services 12000 --watchers 4000
  corbel bench size --nodes 10000 --services 60000 --proxies 178000 --leases 100000 --agents 10000`
	for _, hidden := range []string{"target", "dns-target", "token", "servers", "connections"} {
		c.Flags().Lookup(hidden).Hidden = true // the bench decides
	}
	f := c.Flags()
	f.IntVar(&o.Nodes, "nodes", 0, "nodes of the fleet")
	f.IntVar(&o.Services, "services", 0, "instances of services on all nodes together")
	f.IntVar(&o.Watchers, "watchers", 0, "blocking queries that wait at the same time")
	f.IntVar(&o.Proxies, "proxies", 0, "proxies of the mesh on all nodes together")
	f.IntVar(&o.Leases, "leases", 0, "leases of secrets that live at the same time")
	f.IntVar(&o.Agents, "agents", 0, "monitoring agents")
	f.Float64Var(&o.ChangesPerSecond, "changes", 0, "changes of the catalog a second (0 is one for 20 nodes)")
	f.IntVar(&o.Sample, "sample", 0, "how many of each part are measured at most (0 is 2000)")
	runs(e, c, b, func(ctx context.Context) (report, error) {
		o.Options = b.Options
		r, err := sizing.Run(ctx, o)
		if r == nil {
			return nil, err
		}
		return r, err
	})
	return c
}

func benchWatch(e *command.Env) *cobra.Command {
	b, o := &benchFlags{}, bench.WatchOptions{}
	c := benchCommand(e, "watch", "How long one change takes to reach all blocking queries", b)
	f := c.Flags()
	f.IntVar(&o.Slow, "slow", 0, "additional watchers that read one byte per second")
	f.IntVar(&o.Watchers, "watchers", 1000, "blocking queries, each on its own connection")
	f.IntVar(&o.Instances, "instances", 10, "instances of the watched service; 10 make an answer of 7 kB, 94 one of 69 kB")
	f.IntVar(&o.Rounds, "rounds", 10, "how many changes are made, one after the other")
	f.IntVar(&o.FleetNodes, "fleet-nodes", 0, "also register a fleet of this many nodes")
	runs(e, c, b, func(ctx context.Context) (report, error) {
		o.Options = b.Options
		return orNil(bench.RunWatch(ctx, o))
	})
	return c
}

func benchDNS(e *command.Env) *cobra.Command {
	b, o := &benchFlags{}, bench.DNSOptions{}
	c := benchCommand(e, "dns", "DNS A queries for one service over UDP", b)
	c.Flags().IntVar(&o.Instances, "instances", 10, "instances of the requested service")
	runs(e, c, b, func(ctx context.Context) (report, error) {
		o.Options = b.Options
		return orNil(bench.RunDNS(ctx, o))
	})
	return c
}

func benchFleet(e *command.Env) *cobra.Command {
	b, o := &benchFlags{}, bench.FleetOptions{}
	c := benchCommand(e, "fleet", "Keep up a simulated fleet: memory, reads beside changes, restart after kill -9", b)
	c.Flags().IntVar(&o.Nodes, "nodes", 10000, "nodes, each with six instances and four checks")
	c.Flags().IntVar(&o.ChangesPerSecond, "changes", 500, "check changes a second")
	runs(e, c, b, func(ctx context.Context) (report, error) {
		o.Options = b.Options
		return orNil(bench.RunFleet(ctx, o))
	})
	return c
}

func benchSinks(e *command.Env) *cobra.Command {
	b, o := &benchFlags{}, pairs.SinksOptions{}
	c := benchCommand(e, "sinks", "What telemetry sinks that take nothing cost the writes, in pairs of runs", b)
	c.Flags().IntVar(&o.Pairs, "pairs", 20, "pairs of runs, one with and one without the sinks")
	runs(e, c, b, func(ctx context.Context) (report, error) {
		o.Options = b.Options
		return orNil(pairs.RunSinks(ctx, o))
	})
	return c
}

func benchDoctor(e *command.Env) *cobra.Command {
	b, o := &benchFlags{}, pairs.DoctorOptions{}
	c := benchCommand(e, "doctor", "What the doctor's accounting, probes and profiles cost, in pairs of runs", b)
	c.Flags().IntVar(&o.Pairs, "pairs", 20, "pairs of runs of each load, one with and one without the doctor")
	c.Flags().StringSliceVar(&o.Loads, "loads", nil, "loads to measure, with commas: kv, secrets, events (default all)")
	runs(e, c, b, func(ctx context.Context) (report, error) {
		o.Options = b.Options
		return orNil(pairs.RunDoctor(ctx, o))
	})
	return c
}

func benchCompare(e *command.Env) *cobra.Command {
	b, o := &benchFlags{}, pairs.CompareOptions{}
	c := benchCommand(e, "compare", "Measure two binaries pair by pair; exit code 1 when the new one is slower", b)
	c.Use = "compare OLD NEW"
	c.Args = command.Between(2, 2, "the paths of two corbel binaries, the old one first")
	own := []string{"target", "dns-target", "binary", "no-floors", "token"}
	for _, name := range own {
		c.Flags().Lookup(name).Hidden = true // compare starts what it measures
	}
	c.Flags().IntVar(&o.Pairs, "pairs", 7, "pairs of runs for each figure")
	c.Flags().Float64Var(&o.LossPercent, "loss-percent", 5, "a median loss that is more than noise")
	c.Flags().StringVar(&o.Only, "only", "", `figures whose name begins with this, as "secrets" (empty is all)`)
	runs(e, c, b, func(ctx context.Context) (report, error) {
		for _, name := range own {
			if c.Flags().Changed(name) {
				return nil, command.Usagef("compare starts the binaries itself: --%s means nothing to it", name)
			}
		}
		o.Options = b.Options
		o.Old, o.New = c.Flags().Arg(0), c.Flags().Arg(1)
		r, err := pairs.RunCompare(ctx, o)
		if r == nil {
			return nil, err
		}
		return r, err
	})
	return c
}

// benchHello is the bare server of the HTTP floor; the bench starts it.
func benchHello(e *command.Env) *cobra.Command {
	addr := ""
	c := &cobra.Command{Use: "hello", Short: "Serve the HTTP floor", Hidden: true,
		Args: command.Between(0, 0, "flags only")}
	c.Flags().StringVar(&addr, "addr", "127.0.0.1:0", "address to listen on")
	c.RunE = func(c *cobra.Command, _ []string) error {
		ctx, stop := command.Signals(c.Context())
		defer stop()
		return bench.ServeHello(ctx, addr, e.Out)
	}
	return c
}
