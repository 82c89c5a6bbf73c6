package plughost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"

	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/secrets/plugins"
)

// Config is where plug-ins are.
type Config struct {
	Dir string // plugin_directory
	Tmp string // plugin_tmpdir: of sockets; "": the system's
	Log *slog.Logger
}

// Host runs plug-ins.
type Host struct{ cfg Config }

var _ plugins.Runner = (*Host)(nil)

// New makes a Host. Nothing runs yet.
func New(cfg Config) (*Host, error) {
	if err := checkDir(cfg.Dir); err != nil {
		return nil, err
	}
	if cfg.Tmp != "" {
		if info, err := os.Stat(cfg.Tmp); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("plugin_tmpdir: %s is no folder", cfg.Tmp)
		}
	}
	h := &Host{cfg: cfg}
	h.tidy()
	return h, nil
}

// heldName is the file of a program's folder that its server holds locked while it lives.
const heldName = "held"

// tidy removes the folders that programs of servers left which were killed.
func (h *Host) tidy() {
	list, err := filepath.Glob(filepath.Join(cmp.Or(h.cfg.Tmp, os.TempDir()), "plugin-*"))
	if err != nil {
		return // it is no pattern
	}
	for _, at := range list {
		info, err := os.Lstat(at)
		if err != nil || !info.IsDir() || !ownFolder(info) || time.Since(info.ModTime()) < time.Minute {
			continue // somebody else's, or one that is being made
		}
		name := filepath.Join(at, heldName)
		if _, err := os.Lstat(name); err != nil {
			continue
		}
		if held, err := (vfs.OS{}).Locked(name); err != nil || held {
			continue
		}
		if err := os.RemoveAll(at); err != nil {
			h.cfg.Log.Warn("secrets: what a plug-in left cannot be removed", "folder", at, "error", err)
		}
	}
}

// Open makes a Host of a folder; nil where there is none.
func Open(dir, tmp string, log *slog.Logger) (plugins.Runner, error) {
	if dir == "" {
		return nil, nil
	}
	h, err := New(Config{Dir: dir, Tmp: tmp, Log: log})
	if err != nil {
		return nil, err
	}
	return h, nil
}

// What shows a program that it is run as a plug-in of secrets engines and auth methods, and the protocol's version.
const (
	cookieName  = "VAULT_BACKEND_PLUGIN"
	cookieValue = "6669da05-b1c8-4f49-97d9-c8e5bed98e20"
	protocol    = 5
	backend     = "backend"
)

// passed are the variables of this process's environment that a plug-in has too: none that may be secret.
var passed = []string{"PATH", "TZ", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR"}

// environment is all that a plug-in has of variables, but those of go-plugin.
func environment(l *plugins.Launch, tmp string) []string {
	env := []string{}
	for _, name := range passed {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	env = append(env, l.Env...)
	return append(env, "TMPDIR="+tmp, "VAULT_VERSION="+l.Version, "VAULT_PLUGIN_METADATA_MODE=false",
		"VAULT_PLUGIN_AUTOMTLS_ENABLED=true")
}

// Start implements plugins.Runner.
func (h *Host) Start(ctx context.Context, l plugins.Launch) (plugins.Process, error) {
	file, err := h.open(l.Entry)
	if err != nil {
		return nil, err
	}
	tmp, err := os.MkdirTemp(h.cfg.Tmp, "plugin-")
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	held, err := vfs.OS{}.Lock(filepath.Join(tmp, heldName))
	if err != nil {
		return nil, errors.Join(err, file.Close(), os.RemoveAll(tmp))
	}
	cmd := &exec.Cmd{}
	cmd.Args, cmd.Env, cmd.Dir = append([]string{file.Name()}, l.Args...), environment(&l, tmp), tmp
	program := &program{name: l.Command, file: file, cmd: cmd, ended: make(chan struct{})}
	p := &process{program: program, launch: l, tmp: tmp, held: held}
	within := 10 * time.Second
	if deadline, ok := ctx.Deadline(); ok {
		within = max(time.Until(deadline), time.Millisecond)
	}
	p.client = plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  plugin.HandshakeConfig{MagicCookieKey: cookieName, MagicCookieValue: cookieValue},
		VersionedPlugins: map[int]plugin.PluginSet{protocol: {backend: &dispensed{to: p}}},
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		AutoMTLS:         true, SkipHostEnv: true, StartTimeout: within, Logger: hclog.NewNullLogger(),
		Stderr: newLog(h.cfg.Log, &l), SyncStdout: newLog(h.cfg.Log, &l), SyncStderr: newLog(h.cfg.Log, &l),
		RunnerFunc: func(_ hclog.Logger, said *exec.Cmd, _ string) (runner.Runner, error) {
			cmd.Env = append(cmd.Env, said.Env...)
			return program, nil
		},
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: tmp},
	})
	defer context.AfterFunc(ctx, func() { _ = program.Kill(ctx) })()
	if err = p.connect(); err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = file.Close()
		p.Kill()
		return nil, err
	}
	return p, nil
}

// connect starts the program and waits until it speaks.
func (p *process) connect() error {
	protocol, err := p.client.Client()
	if err != nil {
		return err
	}
	_, err = protocol.Dispense(backend)
	return err
}

// dispensed is how go-plugin hands over the connection of a plug-in.
type dispensed struct {
	plugin.NetRPCUnsupportedPlugin
	to *process
}

// GRPCServer implements plugin.GRPCPlugin: this side serves nothing by it.
func (*dispensed) GRPCServer(*plugin.GRPCBroker, *grpc.Server) error {
	return errors.New("plughost: is no plug-in")
}

// GRPCClient implements plugin.GRPCPlugin.
func (d *dispensed) GRPCClient(_ context.Context, broker *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	d.to.serve(broker, conn)
	return d.to, nil
}

// process is a plug-in that runs.
type process struct {
	program *program
	launch  plugins.Launch
	tmp     string
	held    io.Closer // of tmp
	client  *plugin.Client
	conn    *grpc.ClientConn
	broker  uint32
	serving sync.WaitGroup
	server  chan *grpc.Server // the one that the plug-in reaches, once it is there
	once    sync.Once
}

// Broker implements plugins.Process.
func (p *process) Broker() uint32 { return p.broker }

// Ended implements plugins.Process.
func (p *process) Ended() <-chan struct{} { return p.program.ended }

// Kill implements plugins.Process.
func (p *process) Kill() {
	p.once.Do(func() {
		_ = p.program.Kill(context.Background())
		if p.server != nil {
			select {
			case server := <-p.server:
				server.Stop()
			case <-time.After(time.Second): // its listener could not be opened
			}
		}
		p.client.Kill()
		p.serving.Wait()
		p.program.end()
		_ = p.held.Close()
		_ = os.RemoveAll(p.tmp)
	})
}
