package command

import (
	"corbel.dev/corbel/cli/keptlogin"
	"corbel.dev/corbel/client"
	"github.com/spf13/cobra"
)

// Dial is how a command reaches its agent.
type Dial struct {
	Q client.Query

	env                  *Env
	cfg                  client.Config
	tokenFile            string
	namespace, partition string
}

// Flags gives c the flags that say which agent to ask and how.
func (d *Dial) Flags(e *Env, c *cobra.Command) {
	d.env = e
	name := e.Words("CORBEL", "CONSUL")
	f := c.Flags()
	f.StringVar(&d.cfg.Address, "http-addr", "", "agent to talk to: host:port, https://… or unix:///path ("+name+
		"_HTTP_ADDR; default 127.0.0.1:8500)")
	f.StringVar(&d.cfg.Token, "token", "", "token to use ("+e.Words("CORBEL_TOKEN", "CONSUL_HTTP_TOKEN")+")")
	f.StringVar(&d.tokenFile, "token-file", "", "file that holds the token ("+name+"_HTTP_TOKEN_FILE)")
	f.StringVar(&d.cfg.CAFile, "ca-file", "", "CA certificates to trust, PEM ("+name+"_CACERT)")
	f.StringVar(&d.cfg.CAPath, "ca-path", "", "folder of such files ("+name+"_CAPATH)")
	f.StringVar(&d.cfg.CertFile, "client-cert", "", "client certificate, PEM ("+name+"_CLIENT_CERT)")
	f.StringVar(&d.cfg.KeyFile, "client-key", "", "its private key, PEM ("+name+"_CLIENT_KEY)")
	f.StringVar(&d.cfg.ServerName, "tls-server-name", "", "name that the agent's certificate must have ("+name+
		"_TLS_SERVER_NAME)")
	f.StringVar(&d.Q.Datacenter, "datacenter", "", "datacenter to ask; default the agent's")
	f.BoolVar(&d.Q.Stale, "stale", false, "let any server answer, even without a leader")
	if e.Consul {
		f.StringVar(&d.namespace, "namespace", "", "default, or nothing (CONSUL_NAMESPACE)")
		f.StringVar(&d.partition, "partition", "", "default, or nothing (CONSUL_PARTITION)")
	}
}

// Config lays the flags over the environment.
func (d *Dial) Config() (client.Config, error) {
	cfg, err := client.FromEnv(d.env.Getenv)
	if err != nil {
		return cfg, AsUsage(err)
	}
	if err := d.tenancy(); err != nil {
		return cfg, err
	}
	if d.tokenFile != "" && d.cfg.Token == "" {
		if d.cfg.Token, err = client.ReadToken(d.tokenFile); err != nil {
			return cfg, err
		}
	}
	for _, over := range []struct{ dst, flag *string }{{&cfg.Address, &d.cfg.Address}, {&cfg.Token, &d.cfg.Token},
		{&cfg.CAFile, &d.cfg.CAFile}, {&cfg.CAPath, &d.cfg.CAPath}, {&cfg.CertFile, &d.cfg.CertFile},
		{&cfg.KeyFile, &d.cfg.KeyFile}, {&cfg.ServerName, &d.cfg.ServerName}} {
		if *over.flag != "" {
			*over.dst = *over.flag
		}
	}
	if cfg.Token == "" && !d.env.Consul {
		cfg.Token = keptlogin.Of(d.env.Getenv, keptlogin.Catalog, cfg.Address).Token
	}
	return cfg, nil
}

// Client makes the client of Config. It is closed when the command ends.
func (d *Dial) Client() (*client.Client, error) {
	cfg, err := d.Config()
	if err != nil {
		return nil, err
	}
	cl, err := client.New(cfg)
	if err == nil {
		d.env.OnClose(cl.Close)
	}
	return cl, err
}

// tenancy refuses what there is none of rather than act in another place than was meant.
func (d *Dial) tenancy() error {
	for _, t := range []struct{ what, flag, variable string }{{"namespace", d.namespace, "CONSUL_NAMESPACE"},
		{"partition", d.partition, "CONSUL_PARTITION"}} {
		value := t.flag
		if value == "" && d.env.Consul {
			value = d.env.Getenv(t.variable)
		}
		if value != "" && value != "default" {
			return Usagef("there is no %s %q: there is only default; leave out -%s and %s", t.what, value, t.what, t.variable)
		}
	}
	return nil
}
