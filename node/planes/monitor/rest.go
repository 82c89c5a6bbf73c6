package monitorplane

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/api/sensuapi"
	"corbel.dev/corbel/api/sensuapi/sensurest"
	"corbel.dev/corbel/api/sensuapi/ssorows"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/kit/version"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/business"
	"corbel.dev/corbel/monitor/ldaplogin"
	"corbel.dev/corbel/monitor/logins"
	"corbel.dev/corbel/monitor/script"
	"corbel.dev/corbel/monitor/sso"
)

// handler answers on the API's port.
func (m *Plane) handler() (http.Handler, error) {
	rest, err := m.rest()
	if err != nil {
		return nil, err
	}
	open := sensuapi.Open(sensuapi.OpenConfig{Cluster: m.cluster, Lacks: m.Unready, Version: version.SensuContract,
		Own: version.Number, Metrics: m.metricsHandler()})
	mux := http.NewServeMux()
	for _, path := range []string{"/health", "/version", "/ready", "/metrics", "POST /graphql"} {
		mux.Handle(path, open)
	}
	mux.Handle("/", m.whenUp(rest))
	mux.Handle(ssorows.Below, m.whenUp(ssorows.New(m.Web.sso, m.d.Log)))
	mux.HandleFunc(initPath, m.serveInit)
	mux.HandleFunc("GET /api/corbel/v1/events/stored", m.serveStored)
	return mux, nil
}

// rest answers everything on the API's port that needs a login, and the login itself.
func (m *Plane) rest() (http.Handler, error) {
	l, err := m.openLogins()
	if err != nil {
		return nil, err
	}
	m.Web.logins, m.Web.users = l, m.users
	m.Web.people = ldaplogin.New(ldaplogin.Config{Resources: m.Group.Resources, Log: m.d.Log})
	m.Web.sso = sso.New(sso.Config{Resources: m.Group.Resources, Logins: l, Now: m.d.Clock.Now})
	cfg := &m.d.Cfg.Monitor
	return sensurest.New(sensurest.Config{
		Resources: m.Group.Resources, Users: m.users, Logins: l, Events: m.Events.Router, Follow: m.Events.Follow,
		Cluster: m.cluster, Replicators: m.replicators.all, Execute: m.Checks.Scheduler.Execute,
		Compiles: func(ctx context.Context, source string, body bool) error {
			return compiles(ctx, m.d.Scripts, source, body)
		},
		Documents: documents{m.Checks.services, m.Web.people}, Directory: m.Web.people,
		History: m.Events.history(), Fates: m.fates, Now: m.d.Clock.Now, Log: m.d.Log,
		MaxBodyBytes: int64(cfg.RequestMax), MaxRequestTime: cfg.WriteTime,
		SilenceTime: cfg.SilenceTime, SilenceMost: cfg.SilenceMost,
	}), nil
}

// documents are those who know what objects say that are kept as they came.
type documents struct {
	*business.Services
	people *ldaplogin.Directories
}

// Review implements sensurest.Documents.
func (x documents) Review(ctx context.Context, typ string, o monitor.Object) ([]string, error) {
	if typ == "authproviders" {
		return x.people.Review(ctx, typ, o)
	}
	return x.Services.Review(ctx, typ, o)
}

// openLogins reads the keys that sign access tokens, where the configuration names any.
func (m *Plane) openLogins() (*logins.Logins, error) {
	cfg := logins.Config{Resources: m.Group.Resources, Now: m.d.Clock.Now}
	for _, key := range []struct {
		name, file string
		text       *[]byte
	}{
		{"monitor.jwt_private_key_file", m.d.Cfg.Monitor.JWTPrivateKey, &cfg.PrivateKey},
		{"monitor.jwt_public_key_file", m.d.Cfg.Monitor.JWTPublicKey, &cfg.PublicKey},
	} {
		if key.file == "" {
			continue
		}
		text, err := os.ReadFile(key.file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key.name, err)
		}
		*key.text = text
	}
	return logins.New(cfg)
}

// compiles reads a program that somebody wants to store, where programs run.
func compiles(ctx context.Context, engine *script.Engine, source string, body bool) error {
	read := script.NewProgram
	if body {
		read = script.NewBody
	}
	p, err := read(source)
	if err != nil {
		return err
	}
	return engine.Check(ctx, p)
}

// serveStored tells which shards this server has, and the newest sequence of each that is durable here: what a crash
// cannot lose.
func (m *Plane) serveStored(w http.ResponseWriter, r *http.Request) {
	body, err := json.Marshal(map[string]any{"server": m.d.Cfg.Node.Name, "id": m.d.ID,
		"shards": m.Events.Router.Stored()})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	httpx.Write(w, r, http.StatusOK, httpx.JSONType, append(body, '\n'))
}

// cluster is the plane's servers for /health.
func (m *Plane) cluster() sensuapi.Cluster {
	c := sensuapi.Cluster{ID: clusterID(m.d), Self: m.d.ID, Postgres: m.Events.postgresHealth()}
	if g := m.Group.Raft.Raft.Load(); g != nil {
		c.Term = g.Term()
	}
	for _, s := range m.d.Pool.Members(member.ActAskServer) {
		if s.Tags[Tag] == "" || s.Status == member.Left {
			continue
		}
		one := sensuapi.Member{ID: s.Tags["id"], Name: s.Name}
		if s.Status != member.Alive {
			one.Err = "the server is " + s.Status.String()
		}
		if s.Tags["id"] == m.d.ID {
			if lacks := m.Unready(); len(lacks) > 0 {
				one.Err = lacks[0]
			}
		}
		c.Members = append(c.Members, one)
	}
	return c
}
