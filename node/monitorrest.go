package node

import (
	"context"
	"fmt"
	"net/http"
	"os"

	"corbel.dev/corbel/api/sensuapi/sensurest"
	"corbel.dev/corbel/monitor/logins"
	"corbel.dev/corbel/monitor/script"
)

// openLogins reads the keys that sign access tokens, where the configuration names any.
func (m *monitorPlane) openLogins() (err error) {
	cfg := logins.Config{Resources: m.resources, Now: m.p.Clock.Now}
	for _, key := range []struct {
		name, file string
		text       *[]byte
	}{
		{"monitor.jwt_private_key_file", m.p.Cfg.Monitor.JWTPrivateKey, &cfg.PrivateKey},
		{"monitor.jwt_public_key_file", m.p.Cfg.Monitor.JWTPublicKey, &cfg.PublicKey},
	} {
		if key.file == "" {
			continue
		}
		if *key.text, err = os.ReadFile(key.file); err != nil {
			return fmt.Errorf("%s: %w", key.name, err)
		}
	}
	m.logins, err = logins.New(cfg)
	return err
}

// rest answers everything on the API's port that needs a login, and the login itself.
func (m *monitorPlane) rest() http.Handler {
	return sensurest.New(sensurest.Config{
		Resources: m.resources, Users: m.users, Logins: m.logins, Events: m.router, Follow: m.follow, Cluster: m.cluster,
		Replicators: m.replicators, Execute: m.scheduler.Execute, Compiles: m.compiles, History: m.history(),
		Now: m.p.Clock.Now, Log: m.log,
		MaxBodyBytes: int64(m.p.Cfg.Monitor.RequestMax), MaxRequestTime: m.p.Cfg.Monitor.WriteTime,
		SilenceTime: m.p.Cfg.Monitor.SilenceTime, SilenceMost: m.p.Cfg.Monitor.SilenceMost,
	})
}

// compiles reads a program that somebody wants to store, where programs run.
func (m *monitorPlane) compiles(ctx context.Context, source string, body bool) error {
	return compiles(ctx, m.p.Scripts, source, body)
}

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
