package doctorcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/client"
	"corbel.dev/corbel/client/vault"
	"corbel.dev/corbel/doctor"
)

// askTime bounds how long anybody is waited for, so that the report is there within five seconds, whatever state the
// members are in: the one that is asked gives others two.
const askTime = 4 * time.Second

// cluster gathers the evidence of the member that is asked and of those of --also, side by side, or reads it. Who
// does not answer is named in it; only when nobody does, that is an error.
func (o *options) cluster(ctx context.Context) (*doctor.Cluster, error) {
	if o.from != "" {
		return read(o.from)
	}
	cfg, err := o.dial.Config()
	if err != nil {
		return nil, err
	}
	type said struct {
		cluster *doctor.Cluster
		err     error
	}
	answers := make([]said, 1+len(o.also))
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() {
			one := cfg
			if i > 0 {
				one.Address = o.also[i-1]
			}
			answers[i].cluster, answers[i].err = o.ask(ctx, one)
		})
	}
	wg.Wait()
	all := &doctor.Cluster{At: time.Now()}
	for i, a := range answers {
		switch {
		case a.err != nil && i == 0:
			all.Silent = append(all.Silent, doctor.Silent{Member: orDefault(cfg.Address, "127.0.0.1:8500"),
				Role: doctor.RoleServer, Reason: a.err.Error()})
		case a.err != nil:
			all.Silent = append(all.Silent, doctor.Silent{Member: o.also[i-1], Role: doctor.RoleServer, Reason: a.err.Error()})
		case i == 0:
			all.Members, all.Silent = a.cluster.Members, append(all.Silent, a.cluster.Silent...)
		default:
			join(all, a.cluster, o.also[i-1])
		}
	}
	if len(all.Members) == 0 && answers[0].err != nil {
		return nil, fmt.Errorf("%w\nThe member that was asked did not answer. Name another one with --http-addr: any "+
			"server or agent can tell about the cluster", answers[0].err)
	}
	return all, nil
}

// join adds what another member gathered. Members that are known already are left out; those of another cluster carry
// its address, and where one is called as one here, before its name too.
func join(all, more *doctor.Cluster, addr string) {
	known := func(e *doctor.Evidence) (name, same bool) {
		for i := range all.Members {
			o := &all.Members[i]
			if o.Member == e.Member {
				name = true
				same = same || slices.ContainsFunc(o.Addresses, func(a string) bool { return slices.Contains(e.Addresses, a) })
			}
		}
		return name, same
	}
	own := false // it is a member of the same cluster
	for i := range more.Members {
		_, same := known(&more.Members[i])
		own = own || same
	}
	added := make([]doctor.Evidence, 0, len(more.Members))
	for _, e := range more.Members {
		name, same := known(&e)
		if same {
			continue
		}
		if !own {
			e.Cluster = addr
			if name {
				e.Member = addr + " " + e.Member
			}
		}
		added = append(added, e)
	}
	all.Members, all.Silent = append(all.Members, added...), append(all.Silent, more.Silent...)
}

func orDefault(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// ask has a member gather its cluster's evidence: one of a catalog, or a server of the secrets plane alone.
func (o *options) ask(ctx context.Context, cfg client.Config) (*doctor.Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	cl, err := client.New(cfg)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	var out doctor.Cluster
	_, err = cl.Get(ctx, "/v1/doctor/evidence?cluster", client.Query{}, &out)
	var refused *client.Error
	switch {
	case !errors.As(err, &refused):
		return &out, err
	case isSecrets(refused):
		return o.askSecrets(ctx, cfg)
	case refused.Code == http.StatusNotFound:
		return nil, fmt.Errorf("%s has no doctor: it is an older Corbel, or none", cl.Address())
	}
	return nil, err
}

// isSecrets tells from its refusal that a server speaks the contract of the secrets store, whose errors are JSON.
func isSecrets(e *client.Error) bool { return strings.Contains(e.Error(), `{"errors":`) }

// secrets is the client of a server of the secrets plane at cfg's address, with the token of Vault's environment or
// its file.
func (o *options) secrets(cfg client.Config) (*vault.Client, error) {
	v, err := vault.FromEnv(o.env.Getenv)
	if err != nil {
		return nil, err
	}
	v.Address = cfg.Address
	if !strings.Contains(v.Address, "://") {
		v.Address = "http://" + v.Address
	}
	for _, part := range []struct {
		own, given *string
	}{{&v.CAFile, &cfg.CAFile}, {&v.CAPath, &cfg.CAPath}, {&v.CertFile, &cfg.CertFile}, {&v.KeyFile, &cfg.KeyFile},
		{&v.ServerName, &cfg.ServerName}} {
		*part.own = orDefault(*part.given, *part.own)
	}
	v.SkipVerify = v.SkipVerify || cfg.SkipVerify
	if v.Token == "" {
		text, err := os.ReadFile(filepath.Join(o.env.Getenv("HOME"), ".vault-token"))
		if v.Token = strings.TrimSpace(string(text)); err != nil {
			v.Token = cfg.Token
		}
	}
	return vault.New(v)
}

func (o *options) askSecrets(ctx context.Context, cfg client.Config) (*doctor.Cluster, error) {
	v, err := o.secrets(cfg)
	if err != nil {
		return nil, err
	}
	defer v.Close()
	a, err := v.Do(ctx, http.MethodGet, "sys/doctor/evidence", url.Values{"cluster": {""}}, nil)
	if err != nil {
		return nil, fmt.Errorf("%w\nThe doctor of a server of secrets needs a token that may read sys/doctor and what is "+
			"below it (VAULT_TOKEN)", err)
	}
	var out doctor.Cluster
	if err := json.Unmarshal(a.Raw, &out); err != nil {
		return nil, fmt.Errorf("the evidence of %s cannot be read: %w", v.Address(), err)
	}
	return &out, nil
}
