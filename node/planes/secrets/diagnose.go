package secretsplane

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/api/vaultapi"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/node/diagnosis"
	"corbel.dev/corbel/node/planes/secrets/seals"
	"corbel.dev/corbel/node/vaultconf"
	"corbel.dev/corbel/secrets/seal"
)

// DiagnoseParts are the checks that Diagnose can leave out.
var DiagnoseParts = []string{"listener", "storage", "autounseal"}

// diagnoseWithin bounds each question to somebody else.
const diagnoseWithin = 10 * time.Second

// DiagnoseConfig says what a server would be started with.
type DiagnoseConfig struct {
	Paths  []string // as for vaultconf.Load
	Getenv func(string) string
	Skip   []string // of DiagnoseParts
}

// vaultDiagnosis is one run.
type vaultDiagnosis struct {
	DiagnoseConfig
	cfg     *vaultconf.Config
	now     time.Time
	running bool // a server answers at one of the listeners
}

// Diagnose checks what a server of the secrets plane needs, as `vault operator diagnose` does, whether one runs
// or not. It writes nothing anywhere and opens no storage; what it asks of others ends within ten seconds each. It
// binds addresses for an instant.
func Diagnose(ctx context.Context, c DiagnoseConfig) *diagnosis.Check {
	d := &vaultDiagnosis{DiagnoseConfig: c, now: time.Now()}
	root := diagnosis.New("Vault Diagnose", "")
	cfg, err := vaultconf.Load(c.Paths, c.Getenv)
	system := timed(func() *diagnosis.Check { return checkSystem(cfg) })
	if err != nil {
		root.Add(system, diagnosis.Failed("Parse Configuration", err))
		for _, name := range []string{"Start Listeners", "Check Storage", "Create Vault Server Configuration Seals"} {
			root.Add(diagnosis.Skip(name, "the configuration cannot be read."))
		}
		root.Settle()
		return root
	}
	d.cfg = cfg
	listeners := timed(func() *diagnosis.Check {
		return d.part("listener", "Start Listeners", func() *diagnosis.Check { return d.checkListeners(ctx) })
	})
	storage := timed(func() *diagnosis.Check {
		return d.part("storage", "Check Storage", func() *diagnosis.Check { return d.checkStorage(ctx) })
	})
	seals := timed(func() *diagnosis.Check {
		return d.part("autounseal", "Create Vault Server Configuration Seals",
			func() *diagnosis.Check { return d.checkSeals(ctx) })
	})
	parsed := diagnosis.New("Parse Configuration", "%s", strings.Join(c.Paths, ", "))
	parsed.Warnings = cfg.Warnings // last: storage and seals have read their keys too
	root.Add(system, parsed, storage, seals, d.checkRedirect(), d.checkCluster(), listeners, d.checkRuntime())
	root.Settle()
	return root
}

// part is a check, unless it is to be left out.
func (d *vaultDiagnosis) part(part, name string, check func() *diagnosis.Check) *diagnosis.Check {
	if slices.Contains(d.Skip, part) {
		return diagnosis.Skip(name, "left out by -skip="+part+".")
	}
	return check()
}

func timed(check func() *diagnosis.Check) *diagnosis.Check {
	start := time.Now()
	c := check()
	c.Millis = time.Since(start).Milliseconds()
	return c
}

// shared reports whether servers share the storage, so that they need to reach each other.
func (d *vaultDiagnosis) shared() bool {
	return d.cfg.Storage.Type != "inmem" && d.cfg.Storage.Type != "file"
}

// host is what storages are told; their services are asked, but nothing is opened.
func (d *vaultDiagnosis) host() *secretsHost {
	return &secretsHost{fs: vfs.OS{}, clock: clock.Real{}, log: slog.New(slog.DiscardHandler), own: true,
		address: "diagnose"}
}

func (d *vaultDiagnosis) checkSeals(ctx context.Context) *diagnosis.Check {
	const name, trial = "Create Vault Server Configuration Seals", "Check Autounseal Encryption"
	made, err := seals.Open(d.cfg.Seals, d.Getenv, slog.New(slog.DiscardHandler))
	if err != nil {
		return diagnosis.Failed(name, err)
	}
	c := diagnosis.New(name, "")
	if made.Now == nil {
		c.Message = "shares of the key unseal this server: people give them."
	}
	for _, one := range []seal.Auto{made.Now, made.Old} {
		if one == nil {
			continue
		}
		c.Add(timed(func() *diagnosis.Check {
			if err := trySeal(ctx, one); err != nil {
				return diagnosis.Failed(trial, fmt.Errorf("seal %q: %w", one.Type(),
					err)).Advise("Without it this server does not unseal by itself.")
			}
			return diagnosis.New(trial, "seal %q encrypts, and decrypts what it encrypted.", one.Type())
		}))
	}
	return c
}

// trySeal has a few bytes encrypted and decrypted.
func trySeal(ctx context.Context, s seal.Auto) error {
	ctx, cancel := context.WithTimeout(ctx, diagnoseWithin)
	defer cancel()
	plain := []byte("diagnose " + rand.Text())
	wrapped, err := s.Wrap(ctx, plain)
	if err != nil {
		return err
	}
	back, err := s.Unwrap(ctx, wrapped)
	if err == nil && string(back) != string(plain) {
		err = errors.New("what was decrypted is not what was encrypted")
	}
	return err
}

func (d *vaultDiagnosis) checkRedirect() *diagnosis.Check {
	const name = "Determine Redirect Address"
	if d.cfg.APIAddr == "" {
		c := diagnosis.New(name, "api_addr is not set: %s is derived from the first listener.",
			listenerURL(&d.cfg.Listeners[0]))
		if d.shared() {
			return c.As(diagnosis.Warn).Advise("Set api_addr, or VAULT_API_ADDR, to the address at which clients reach this " +
				"server: others send them there.")
		}
		return c
	}
	u, err := url.Parse(d.cfg.APIAddr)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
		return diagnosis.Failed(name, fmt.Errorf("api_addr: %q must be a URL such as https://vault-1.example:8200",
			d.cfg.APIAddr))
	}
	return diagnosis.New(name, "%s", d.cfg.APIAddr)
}

func (d *vaultDiagnosis) checkCluster() *diagnosis.Check {
	const name = "Check Cluster Address"
	bind, err := d.clusterBind()
	switch {
	case !d.shared():
		return diagnosis.Skip(name, "the storage is of one server.")
	case err != nil:
		return diagnosis.Failed(name, err)
	case d.cfg.ClusterAddr == "":
		return diagnosis.New(name, "cluster_addr is not set: it is derived from api_addr and %s.", bind)
	}
	u, err := url.Parse(d.cfg.ClusterAddr)
	if err != nil || u.Hostname() == "" {
		return diagnosis.Failed(name, fmt.Errorf("cluster_addr: %q must be a URL such as https://10.0.0.1:8201",
			d.cfg.ClusterAddr))
	}
	if ip := net.ParseIP(u.Hostname()); ip != nil && ip.IsUnspecified() {
		return diagnosis.Failed(name, fmt.Errorf("cluster_addr: %q is every address of a host, and others cannot reach that",
			d.cfg.ClusterAddr))
	}
	return diagnosis.New(name, "%s", d.cfg.ClusterAddr)
}

// clusterBind is where this server listens for others.
func (d *vaultDiagnosis) clusterBind() (string, error) {
	l := &d.cfg.Listeners[0]
	if l.ClusterAddress != "" {
		_, _, err := net.SplitHostPort(l.ClusterAddress)
		return l.ClusterAddress, err
	}
	bind, err := vaultconf.NextPort(l.Address)
	if err != nil {
		err = fmt.Errorf("listener.cluster_address: is needed beside the address %s", l.Address)
	}
	return bind, err
}

// checkRuntime judges what a server reads only when it starts.
func (d *vaultDiagnosis) checkRuntime() *diagnosis.Check {
	var wrong []error
	_, err := vaultLevel(d.cfg)
	wrong = append(wrong, err)
	_, err = (&Server{cfg: d.cfg}).requestLog()
	wrong = append(wrong, err)
	for i := range d.cfg.Listeners {
		l := &d.cfg.Listeners[i]
		_, err := proxied(l)
		wrong = append(wrong, err)
		_, err = forwardedFor(&l.ForwardedFor)
		wrong = append(wrong, err)
		if _, err = vaultapi.NewResponseHeaders(l.ResponseHeaders, nil); err != nil {
			wrong = append(wrong, fmt.Errorf("listener: %w", err))
		}
	}
	if err := errors.Join(wrong...); err != nil {
		return diagnosis.Failed("Check Server Before Runtime", err)
	}
	return diagnosis.New("Check Server Before Runtime", "")
}
