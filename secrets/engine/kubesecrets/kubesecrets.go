// Package kubesecrets makes tokens of service accounts in a Kubernetes cluster (contract 4.10; mounts of the type
// kubernetes): of an account that is there, or of one that is made with a binding, and with a role where the mount's
// role has rules, and that lives as long as its lease.
//
// What is made is written down before it is made (see elsewhere): all objects of a lease have one name, so an entry
// with it is enough to take away what a crash left. A token of an account that is there ends by its own time alone: the
// cluster knows no revocation.
//
// The cluster is asked as service_account_jwt, else as the account of this process' own pod. Every question has a
// deadline and a bounded answer.
package kubesecrets

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks"
	"corbel.dev/corbel/kit/tokenreview"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/engine/elsewhere"
	"corbel.dev/corbel/secrets/engine/record"
	"corbel.dev/corbel/secrets/storage"
)

// Engine is one mount.
type Engine struct {
	elsewhere.Stepper
	// TTLs are the default and the longest lifetime of the mount.
	TTLs func() (standard, longest time.Duration)
	// Local is the folder with ca.crt and token of this process' own account, where it runs in a pod.
	Local string
	// Getenv reads the environment, where pods are told of their cluster.
	Getenv func(name string) string
}

var (
	_ engine.Leaser  = (*Engine)(nil)
	_ engine.Tender  = (*Engine)(nil)
	_ engine.Stepper = (*Engine)(nil)
	_ engine.Router  = (*Engine)(nil)
)

const (
	configKey = "config"
	roles     = "roles/"
	walPrefix = "wal/"
)

// Special implements engine.Engine.
func (*Engine) Special() engine.Special { return engine.Special{} }

// Serial implements engine.Engine: changes of one record follow each other, those who get tokens wait for nobody.
func (*Engine) Serial(r *secrets.Request) string {
	if r.Op.Writes() && !strings.HasPrefix(r.Rest, "creds/") {
		return r.Rest
	}
	return ""
}

// Exists implements engine.Engine.
func (*Engine) Exists(ctx context.Context, view engine.View, r *secrets.Request) (exists, ok bool, err error) {
	if strings.HasPrefix(r.Rest, roles) && storage.CheckKey(r.Rest) == nil {
		_, exists, err = view.Get(ctx, r.Rest)
		return exists, true, err
	}
	return false, false, nil
}

// Routes implements engine.Router.
func (*Engine) Routes() []engine.Route {
	crud := []secrets.Operation{secrets.Read, secrets.Update, secrets.Delete}
	return []engine.Route{{Path: "config", Ops: crud}, {Path: "check", Ops: []secrets.Operation{secrets.Read}},
		{Path: "roles", Ops: []secrets.Operation{secrets.List}}, {Path: "roles/{name}", Ops: crud},
		{Path: "creds/{name}", Ops: []secrets.Operation{secrets.Update}}}
}

// call is one request with what it needs at hand.
type call struct {
	context.Context
	e    *Engine
	view engine.View
	r    *secrets.Request
	f    *secrets.Fields
	name string
}

type handler = func(*call) (*secrets.Response, error)

var routes = map[string]map[secrets.Operation]handler{
	"config": {secrets.Read: (*call).readConfig, secrets.Update: (*call).writeConfig,
		secrets.Delete: (*call).remove},
	"check": {secrets.Read: (*call).check},
	"roles": {secrets.Read: (*call).readRole, secrets.Update: (*call).writeRole, secrets.Delete: (*call).remove,
		secrets.List: (*call).list},
	"creds": {secrets.Update: (*call).creds},
	"wal":   {secrets.Update: (*call).drop},
}

// Handle implements engine.Engine.
func (e *Engine) Handle(ctx context.Context, view engine.View, r *secrets.Request) (*secrets.Response, error) {
	f, err := r.Fields()
	if err != nil {
		return nil, err
	}
	rest := strings.TrimSuffix(r.Rest, "/")
	kind, name, _ := strings.Cut(rest, "/")
	plain := kind == configKey || kind == "check"
	switch {
	case routes[kind] == nil, plain != (name == "") && r.Op != secrets.List, kind == "wal" && !r.Due:
		return nil, elsewhere.ErrNoPath
	case name != "" && !r.Due && (strings.Contains(name, "/") || storage.CheckKey(rest) != nil):
		return nil, elsewhere.ErrNoPath
	}
	op := r.Op
	if op == secrets.Create {
		op = secrets.Update
	}
	do := routes[kind][op]
	if do == nil || r.Op == secrets.List && name != "" {
		return nil, elsewhere.ErrUnsupported
	}
	return do(&call{ctx, e, view, r, f, name})
}

func (c *call) list() (*secrets.Response, error) { return elsewhere.List(c, c.view, roles, c.f) }

func (c *call) remove() (*secrets.Response, error) {
	return &secrets.Response{Ops: []secrets.Op{storage.Delete(strings.TrimSuffix(c.r.Rest, "/"))}}, nil
}

// config is which cluster is asked, under "config".
type config struct {
	Host    string `json:"kubernetes_host"`
	CA      string `json:"kubernetes_ca_cert,omitempty"`
	Token   string `json:"service_account_jwt,omitempty"` // nobody reads it
	NoLocal bool   `json:"disable_local_ca_jwt,omitempty"`
}

func (cfg *config) params() record.Params {
	return record.Params{{Name: "kubernetes_host", At: &cfg.Host}, {Name: "kubernetes_ca_cert", At: &cfg.CA},
		{Name: "disable_local_ca_jwt", At: &cfg.NoLocal}}
}

func (c *call) readConfig() (*secrets.Response, error) {
	cfg, err := elsewhere.Find[config](c, c.view, configKey)
	if err != nil {
		return nil, err
	}
	if cfg == nil {
		return nil, elsewhere.ErrNotFound
	}
	out := map[string]any{}
	cfg.params().Show(out)
	return elsewhere.Answer(out)
}

func (c *call) writeConfig() (*secrets.Response, error) {
	have, err := elsewhere.Find[config](c, c.view, configKey)
	if err != nil {
		return nil, err
	}
	cfg := &config{}
	if have != nil {
		*cfg = *have
	}
	if err := cfg.params().Read(c.f); err != nil {
		return nil, err
	}
	if c.f.Has("service_account_jwt") {
		cfg.Token = c.f.String("service_account_jwt")
	}
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	if cfg.Host != "" {
		err = jwks.CheckURL("kubernetes_host", cfg.Host)
	}
	if err == nil {
		err = jwks.CheckCA("kubernetes_ca_cert", cfg.CA)
	}
	if err != nil {
		return nil, errkind.E(errkind.Invalid, "", err)
	}
	if have != nil && have.Token != "" && !c.f.Has("service_account_jwt") && (have.Host != cfg.Host || have.CA != cfg.CA) {
		return nil, elsewhere.Invalid("field \"service_account_jwt\": must be given again, since it was stored for another " +
			"kubernetes_host or kubernetes_ca_cert")
	}
	if _, err := c.e.cluster(cfg); err != nil {
		return nil, err
	}
	return elsewhere.Store(configKey, cfg)
}

// own is the address of the cluster that this process runs in; "": it runs in none.
func (e *Engine) own() (host string, missing []string) {
	at, port := "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT_HTTPS"
	for _, name := range []string{at, port} {
		if e.Getenv(name) == "" {
			missing = append(missing, name)
		}
	}
	if missing != nil {
		return "", missing
	}
	if host = e.Getenv(at); strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return "https://" + host + ":" + e.Getenv(port), nil
}

// cluster is whom to ask, and as whom: what is not configured is this process' own pod's.
func (e *Engine) cluster(cfg *config) (out tokenreview.Cluster, err error) {
	out = tokenreview.Cluster{Host: cfg.Host, CA: cfg.CA, Reviewer: cfg.Token}
	if out.Host == "" {
		if out.Host, _ = e.own(); out.Host == "" {
			return out, elsewhere.Invalid("field \"kubernetes_host\": is missing, and this server runs in no pod")
		}
	}
	for name, into := range map[string]*string{"ca.crt": &out.CA, "token": &out.Reviewer} {
		if *into != "" || cfg.NoLocal {
			continue
		}
		text, err := os.ReadFile(filepath.Join(e.Local, name)) // each time: Kubernetes renews it
		if err != nil && !os.IsNotExist(err) {
			return out, errkind.E(errkind.Unavailable, "this process' own service account", err)
		}
		*into = strings.TrimSpace(string(text))
	}
	if out.Reviewer == "" {
		return out, elsewhere.Invalid("field \"service_account_jwt\": is missing, and this server has no account of a pod")
	}
	return out, nil
}

func (c *call) cluster() (out tokenreview.Cluster, err error) {
	cfg, err := elsewhere.Find[config](c, c.view, configKey)
	if err == nil && cfg == nil {
		cfg = &config{} // a pod of the cluster needs none
	}
	if err != nil {
		return out, err
	}
	return c.e.cluster(cfg)
}

// check says whether a mount without a configuration would find a cluster.
func (c *call) check() (*secrets.Response, error) {
	if _, missing := c.e.own(); missing != nil {
		return nil, elsewhere.Invalid("Missing environment variables: %s", strings.Join(missing, ", "))
	}
	return &secrets.Response{}, nil
}

// Due implements engine.Tender: objects of crashes to delete.
func (*Engine) Due(ctx context.Context, view engine.View, now time.Time) (out []*secrets.Request, err error) {
	due, err := elsewhere.Due(ctx, view, walPrefix, now)
	for _, r := range due {
		out = append(out, &secrets.Request{Op: secrets.Update, Rest: r.Key})
	}
	return out, err
}

// Renew implements engine.Leaser: a token lives as long as it says.
func (*Engine) Renew(context.Context, engine.View, engine.Lease) (*secrets.Response, error) {
	return nil, elsewhere.Invalid("tokens of service accounts cannot be renewed: ask for another")
}

// Revoke implements engine.Leaser.
func (e *Engine) Revoke(ctx context.Context, view engine.View, l engine.Lease) (*secrets.Response, error) {
	var of live
	if json.Unmarshal(l.Internal, &of) != nil {
		return nil, errkind.New(errkind.Corrupt, "the lease is not what was stored")
	}
	return nil, (&call{Context: ctx, e: e, view: view}).end(&of)
}

// drop deletes what an entry of a crash names, or puts that off.
func (c *call) drop() (*secrets.Response, error) {
	of, err := elsewhere.Find[live](c, c.view, c.r.Rest)
	if err != nil || of == nil {
		return &secrets.Response{}, err
	}
	ops := []secrets.Op{storage.Delete(c.r.Rest)}
	if err := c.end(of); err != nil {
		of.Tries++
		later, err := elsewhere.Put(elsewhere.DueKey(walPrefix, elsewhere.Later(c.r.Now, of.Tries), of.Name), of)
		if err != nil {
			return nil, err
		}
		ops = append(ops, later)
	}
	return &secrets.Response{Ops: ops}, nil
}
