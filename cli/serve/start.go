// Package serve holds the commands that run a server or an agent, under each of the
// names that the binary has, and those that work on a server's storage without one.
package serve

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
	"corbel.dev/corbel/node"
	"corbel.dev/corbel/node/config"
	secretsplane "corbel.dev/corbel/node/planes/secrets"
)

// process is a running server, agent or dev.
type process interface {
	// Run owns the process until ctx ends.
	Run(ctx context.Context) error
	// Reload applies a fresh configuration, all or nothing.
	Reload(cfg *config.Config) error
}

// leaver is a process that can leave its cluster before it ends.
type leaver interface {
	Leave(ctx context.Context) error
}

// reloader is a process that reloads when its API is asked to.
type reloader interface {
	OnReload(fn func(context.Context) error)
}

// startOptions are the flags that are no keys.
type startOptions struct {
	config.Options
	dev, isServer bool
	raw           []rawFlag
}

// rawFlag is a flag of the configuration as pflag fills it.
type rawFlag struct {
	flag   config.Flag
	values []string
}

// String, Set, Type and IsBoolFlag make a rawFlag a value of pflag: the text goes
// to the configuration, which knows the types and names all mistakes at once.
func (r *rawFlag) String() string   { return strings.Join(r.values, ",") }
func (r *rawFlag) IsBoolFlag() bool { return r.flag.Bool }

// Set implements pflag.Value.
func (r *rawFlag) Set(v string) error {
	if !r.flag.List {
		r.values = r.values[:0]
	}
	r.values = append(r.values, v)
	return nil
}

// Type implements pflag.Value: the word that --help shows.
func (r *rawFlag) Type() string {
	switch {
	case r.flag.Bool:
		return "bool"
	case r.flag.List:
		return "value..."
	}
	return "value"
}

// paths are the files and folders of both flags in the order of the command line: the later one wins.
type paths []string

// String implements pflag.Value.
func (p *paths) String() string { return strings.Join(*p, ",") }

// Set implements pflag.Value.
func (p *paths) Set(v string) error {
	*p = append(*p, v)
	return nil
}

// Type implements pflag.Value.
func (p *paths) Type() string { return "path" }

func (o *startOptions) flags(c *cobra.Command) {
	f := c.Flags()
	f.Var((*paths)(&o.Files), "config-file", "file of configuration, HCL or JSON (repeat; later ones win)")
	f.Var((*paths)(&o.Files), "config-dir", "folder whose *.hcl and *.json files are read in lexical order (repeat)")
	f.StringVar(&o.Format, "config-format", "", "hcl or json, for files of other names")
	f.StringArrayVar(&o.Fragments, "hcl", nil, "piece of configuration in HCL (repeat)")
	f.IntVar(&o.PortOffset, "port-offset", 0, "add this to all ports, for several processes on one host")
	flags := config.Flags()
	o.raw = make([]rawFlag, len(flags))
	for i, flag := range flags {
		o.raw[i].flag = flag
		f.Var(&o.raw[i], flag.Name, flag.Usage)
		if flag.Bool {
			f.Lookup(flag.Name).NoOptDefVal = "true"
		}
		if strings.HasPrefix(flag.Usage, "no effect") {
			f.Lookup(flag.Name).Hidden = true
		}
	}
}

// load reads the configuration, at start and again at each reload.
func (o *startOptions) load(e *command.Env) (*config.Config, error) {
	opts := o.Options
	opts.Dev, opts.Server, opts.Env = o.dev, o.isServer, e.Environ
	if e.Consul {
		opts.Style = config.Consul
	}
	opts.Flags = nil
	for _, r := range o.raw {
		for _, v := range r.values {
			opts.Flags = append(opts.Flags, config.Setting{Key: r.flag.Key, Value: v, From: "-" + r.flag.Name})
		}
	}
	opts.Sections, opts.Judge = node.Sections(), node.Check
	return config.Load(opts)
}

// Server builds server.
func Server(e *command.Env, c *cobra.Command) {
	c.Long = `Run a member of the control-plane cluster (1, 3 or 5 of them). Traffic beyond this
host needs TLS and a gossip key, or -allow-plaintext and -allow-unencrypted-gossip;
see docs/configuration.md.

  corbel server --data-dir /var/lib/corbel --bind 127.0.0.1 --bootstrap
  corbel server --config-dir /etc/corbel.d`
	o := &startOptions{isServer: true}
	starter(e, c, o)
}

// Agent builds agent.
func Agent(e *command.Env, c *cobra.Command) {
	c.Long = `Run the agent of a host: its services and health checks, and the HTTP API and DNS
for the processes on it. It takes the flags that Consul's agent takes.

  corbel agent --data-dir /var/lib/corbel --retry-join 10.0.0.5 --config-dir /etc/corbel.d
  corbel agent -dev`
	if e.Consul {
		c.Long = "Run an agent, or with -server a server, with Consul's defaults.\n\n  consul agent -dev\n  consul agent " +
			"-server -bootstrap-expect=3 -data-dir=/var/lib/consul -config-dir=/etc/consul.d"
	}
	o := &startOptions{}
	if e.Nomad {
		c.Long = "Run the agent of a host, or with -server a server. Its configuration is Corbel's, whatever it is\n" +
			"called by: `corbel agent` and docs/configuration.md have it.\n\n  nomad agent -dev\n  nomad agent " +
			"-config /etc/corbel.d -data-dir /var/lib/corbel"
		c.Flags().Var((*paths)(&o.Files), "config", "same as -config-file and -config-dir")
	}
	c.Flags().BoolVar(&o.dev, "dev", false, "same as `corbel dev`")
	c.Flags().BoolVar(&o.isServer, "server", false, "same as `corbel server`")
	starter(e, c, o)
}

// Dev builds dev.
func Dev(e *command.Env, c *cobra.Command) {
	c.Long = `Run server and agent in one process on this host's loopback, with nothing to
configure. State is in memory unless --data-dir says where to keep it. Requests need
no token; the token root has all rights.

  corbel dev
  corbel dev --http-port 9500 --dns-port 9600 --server-port 9300 --serf-lan-port 9301`
	starter(e, c, &startOptions{dev: true, isServer: true})
}

func starter(e *command.Env, c *cobra.Command, o *startOptions) {
	c.Args = command.Between(0, 0, "flags only")
	o.flags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		cfg, err := o.load(e)
		if err != nil {
			err = fmt.Errorf("cannot start: %w", err)
			e.Service.Failed(err)
			return err
		}
		for _, w := range cfg.Warnings {
			fmt.Fprintf(e.Err, "warning: %s\n", w)
		}
		return start(c.Context(), e, cfg, func() (*config.Config, error) { return o.load(e) })
	}
}

// start builds the process that cfg describes and runs it; load reads the configuration again.
func start(ctx context.Context, e *command.Env, cfg *config.Config, load func() (*config.Config, error)) error {
	if err := refuseServer(cfg.Server || cfg.Dev); err != nil {
		e.Service.Failed(err)
		return err
	}
	m, err := supervise(ctx, e)
	if err != nil {
		return err
	}
	defer m.end()
	if err := refuseForeign(cfg.DataDir); err != nil {
		return m.failed(err)
	}
	if err := introduce(ctx, e, cfg); err != nil {
		return m.failed(err)
	}
	guardMemory(e, secretsplane.LocksMemory(cfg))
	cfg.Sockets = m.sockets
	p, err := newProcess(cfg)
	if err != nil {
		return m.failed(err)
	}
	m.opened(p)
	reload := func() error {
		return m.service.Reload(func() error {
			fresh, err := load()
			if err != nil {
				return err
			}
			return p.Reload(fresh)
		})
	}
	if r, ok := p.(reloader); ok {
		r.OnReload(func(context.Context) error { return reload() })
	}
	return runProcess(ctx, e, p, cfg, m, reload)
}

// runProcess runs p until a signal says otherwise: SIGHUP reloads, SIGINT and
// SIGTERM end it, after draining it, and leaving the cluster where the configuration
// wants that. Each further signal cuts short what goes on.
func runProcess(ctx context.Context, e *command.Env, p process, cfg *config.Config, m *supervised,
	reload func() error) error {
	if cfg.PIDFile != "" {
		if err := os.WriteFile(cfg.PIDFile, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o644); err != nil {
			return fmt.Errorf("pid_file: %w", err)
		}
		defer os.Remove(cfg.PIDFile)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	sig := make(chan os.Signal, 4) // four signals may wait; more say nothing new
	signal.Notify(sig, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(sig)
	e.Service.Notify(sig)
	defer e.Service.Forget(sig)
	done := make(chan error, 1)
	go func() {
		done <- p.Run(ctx)
		stop() // nothing is left to drain
	}()
	greeted := make(chan struct{})
	go func() {
		defer close(greeted)
		if cfg.Dev && !e.Consul {
			greet(ctx, e, cfg, planesOf(p))
		}
	}()
	defer func() {
		stop()
		<-greeted
		if cfg.Dev && !e.Consul {
			logUserOut(e, planesOf(p))
		}
	}()
	for {
		select {
		case err := <-done:
			return err
		case s := <-sig:
			if s == syscall.SIGHUP {
				if err := reload(); err != nil {
					fmt.Fprintf(e.Err, "corbel: not reloaded, the former configuration stays: %v\n", err)
				}
				continue
			}
			m.stopping(cfg)
			leaves := s == os.Interrupt && !cfg.Leave.SkipOnInterrupt || s == syscall.SIGTERM && cfg.Leave.OnTerminate
			drainProcess(ctx, e, p, sig, leaves)
			if leaves {
				leaveProcess(ctx, e, p, sig)
			}
			stop()
			return <-done
		}
	}
}

// drainProcess takes the process out of use, until that is done or the next signal.
func drainProcess(ctx context.Context, e *command.Env, p process, again <-chan os.Signal, leaves bool) {
	d, ok := p.(interface {
		Drain(ctx context.Context, leaves bool)
	})
	if !ok {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.Drain(ctx, leaves)
	}()
	for {
		select {
		case <-done:
			return
		case s := <-again:
			if s != syscall.SIGHUP {
				cancel()
				<-done
				return
			}
		}
	}
}

// leaveProcess leaves within ten seconds or until the next signal.
func leaveProcess(ctx context.Context, e *command.Env, p process, again <-chan os.Signal) {
	l, ok := p.(leaver)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	left := make(chan error, 1)
	go func() { left <- l.Leave(ctx) }()
	select {
	case err := <-left:
		if err != nil {
			fmt.Fprintf(e.Err, "corbel: leave: %v\n", err)
		}
	case <-again:
		cancel()
		<-left
	}
}

// greet waits until all planes of dev are ready and says how to use it.
func greet(ctx context.Context, e *command.Env, cfg *config.Config, planes planeAddrs) {
	if len(cfg.Listen.HTTP) == 0 || cfg.Ports.HTTP == 0 {
		return // nowhere to point at; the log says what was opened
	}
	addr := cfg.Listen.HTTP[0]
	cl, err := client.New(client.Config{Address: addr, Token: cfg.ACL.InitialManagement, Timeout: time.Second})
	if err != nil {
		return
	}
	defer cl.Close()
	for ctx.Err() == nil {
		if err := cl.Ready(ctx); err == nil {
			logUserIn(e, planes)
			fmt.Fprint(e.Out, greeting(cfg, addr, planes))
			return
		}
		command.Wait(ctx, 10*time.Millisecond)
	}
}

// planeAddrs are where the planes beside the catalog answer, "" where one is off.
type planeAddrs struct{ secrets, monitor, agents, jobs string }

func planesOf(p process) (a planeAddrs) {
	if s, ok := p.(interface{ SecretsAddr() net.Addr }); ok {
		if addr := s.SecretsAddr(); addr != nil {
			a.secrets = addr.String()
		}
	}
	if m, ok := p.(interface{ MonitorAddrs() (api, agents string) }); ok {
		a.monitor, a.agents = m.MonitorAddrs()
	}
	if j, ok := p.(interface{ JobsAddr() string }); ok {
		a.jobs = j.JobsAddr()
	}
	return a
}

// greeting is what dev prints once it answers.
func greeting(cfg *config.Config, addr string, planes planeAddrs) string {
	flag := ""
	if cfg.Ports.HTTP != 8500 || strings.HasPrefix(addr, "unix://") {
		flag = " --http-addr " + addr
	}
	var b strings.Builder
	url := "http://" + addr
	if strings.HasPrefix(addr, "unix://") {
		url = addr
	}
	b.WriteString("\nCorbel is ready.\n\n")
	if cfg.UI.Enabled && !strings.HasPrefix(addr, "unix://") {
		fmt.Fprintf(&b, "  Web UI     %s/ui\n", url)
	}
	fmt.Fprintf(&b, "  HTTP API   %s\n", url)
	if len(cfg.Listen.DNS) > 0 {
		fmt.Fprintf(&b, "  DNS        %s (domain %s)\n", cfg.Listen.DNS[0], strings.TrimSuffix(cfg.DNS.Domain, "."))
	}
	if planes.secrets != "" {
		fmt.Fprintf(&b, "  Secrets    http://%s (Vault's API, token root, in memory)\n", planes.secrets)
	}
	if planes.monitor != "" && planes.agents != "" {
		fmt.Fprintf(&b, "  Monitor    http://%s (Sensu's API, admin, P@ssw0rd!), agents at ws://%s\n", planes.monitor,
			planes.agents)
	}
	if planes.jobs != "" {
		fmt.Fprintf(&b, "  Jobs       http://%s (Nomad's API; NOMAD_ADDR tells commands)\n", planes.jobs)
	}
	token := cfg.ACL.InitialManagement
	if token == "" {
		token = "none needed"
	}
	where := cfg.DataDir
	if where == "" {
		where = "in memory: gone when this process ends"
	}
	fmt.Fprintf(&b, "  Token      %s\n  Data       %s\n\nTry:\n", token, where)
	// Five commands that lead through all planes; doctor judges those of mesh and usage too.
	fmt.Fprintf(&b, "  corbel services register --name web --port 8000%s\n", flag)
	if planes.secrets != "" {
		fmt.Fprintf(&b, "  corbel secrets put%s secret/web password=hidden\n", other(" --address http://", planes.secrets,
			"127.0.0.1:8200"))
	}
	if planes.monitor != "" {
		fmt.Fprintf(&b, "  corbel entities list%s\n", other(" --monitor-addr http://", planes.monitor, "127.0.0.1:8080"))
	}
	if planes.jobs != "" {
		fmt.Fprintf(&b, "  corbel jobs status%s\n", other(" --address http://", planes.jobs, "127.0.0.1:4646"))
	}
	fmt.Fprintf(&b, "  corbel doctor%s\n", flag)
	return b.String() + "\n"
}

// other is a flag with an address, where that is not the usual one.
func other(flag, addr, usual string) string {
	if addr == usual {
		return ""
	}
	return flag + addr
}
