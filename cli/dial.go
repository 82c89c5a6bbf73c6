package cli

import (
	"corbel.dev/corbel/client"
	"github.com/spf13/cobra"
)

// dial is how a command reaches its agent.
type dial struct {
	env       *env
	cfg       client.Config
	tokenFile string
	q         client.Query
}

func (d *dial) flags(e *env, c *cobra.Command) {
	d.env = e
	f := c.Flags()
	f.StringVar(&d.cfg.Address, "http-addr", "", "agent to talk to: host:port, https://… or unix:///path (CORBEL_HTTP_ADDR; default 127.0.0.1:8500)")
	f.StringVar(&d.cfg.Token, "token", "", "token to use (CORBEL_TOKEN)")
	f.StringVar(&d.tokenFile, "token-file", "", "file that holds the token (CORBEL_HTTP_TOKEN_FILE)")
	f.StringVar(&d.cfg.CAFile, "ca-file", "", "authorities to trust, PEM (CORBEL_CACERT)")
	f.StringVar(&d.cfg.CAPath, "ca-path", "", "folder of such files (CORBEL_CAPATH)")
	f.StringVar(&d.cfg.CertFile, "client-cert", "", "client certificate, PEM (CORBEL_CLIENT_CERT)")
	f.StringVar(&d.cfg.KeyFile, "client-key", "", "its private key, PEM (CORBEL_CLIENT_KEY)")
	f.StringVar(&d.cfg.ServerName, "tls-server-name", "", "name that the agent's certificate must have (CORBEL_TLS_SERVER_NAME)")
	f.StringVar(&d.q.Datacenter, "datacenter", "", "datacenter to ask; default the agent's")
	f.BoolVar(&d.q.Stale, "stale", false, "let any server answer, also without a leader")
}

// client lays the flags over the environment. It is closed when the command ends.
func (d *dial) client() (*client.Client, error) {
	cfg, err := client.FromEnv(d.env.getenv)
	if err != nil {
		return nil, usageError{err}
	}
	if d.tokenFile != "" && d.cfg.Token == "" {
		if d.cfg.Token, err = client.ReadToken(d.tokenFile); err != nil {
			return nil, err
		}
	}
	for _, over := range []struct{ dst, flag *string }{{&cfg.Address, &d.cfg.Address}, {&cfg.Token, &d.cfg.Token},
		{&cfg.CAFile, &d.cfg.CAFile}, {&cfg.CAPath, &d.cfg.CAPath}, {&cfg.CertFile, &d.cfg.CertFile},
		{&cfg.KeyFile, &d.cfg.KeyFile}, {&cfg.ServerName, &d.cfg.ServerName}} {
		if *over.flag != "" {
			*over.dst = *over.flag
		}
	}
	cl, err := client.New(cfg)
	if err == nil {
		d.env.closers = append(d.env.closers, cl.Close)
	}
	return cl, err
}
