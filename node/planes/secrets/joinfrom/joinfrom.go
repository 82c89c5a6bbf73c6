// Package joinfrom is whom a server of the secrets plane asks to become a member of a cluster: retry_join in the words
// of Vault's configuration, with a server's address or an entry for a cloud that names servers.
package joinfrom

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/node/cloudjoin"
	"corbel.dev/corbel/node/vaultconf"
	"corbel.dev/corbel/secrets/cluster"
)

// Stanza is a retry_join stanza: a server, or servers that a cloud names.
type Stanza struct {
	target cluster.JoinTarget // without an address where cloud names them
	cloud  string             // the entry (node/cloudjoin); "" is none
	scheme string
	port   int
	nobody bool // the entry is for a cloud that nobody can ask
}

// Read takes the stanza's keys. The server joins without a vote where nonVoter says so.
func Read(k *vaultconf.Keys, nonVoter bool) (f Stanza, err error) {
	f.target.NonVoter = nonVoter
	t := &f.target
	t.APIAddr, t.ServerName = k.String("leader_api_addr", ""), k.String("leader_tls_servername", "")
	for name, dst := range map[string]*[]byte{"leader_ca_cert": &t.CACert, "leader_client_cert": &t.ClientCert,
		"leader_client_key": &t.ClientKey} {
		*dst = []byte(k.String(name, ""))
		if file := k.String(name+"_file", ""); file != "" {
			if *dst, err = vfs.ReadFile(vfs.OS{}, file); err != nil {
				return f, fmt.Errorf("retry_join.%s_file: %w", name, err)
			}
		}
	}
	if f.cloud, err = readCloud(k, &f); err != nil {
		return f, err
	}
	k.Done()
	return f, nil
}

// readCloud reads auto_join and what belongs to it.
func readCloud(k *vaultconf.Keys, f *Stanza) (string, error) {
	has, address := k.Has("auto_join"), f.target.APIAddr
	f.scheme, f.port = k.String("auto_join_scheme", "https"), k.Int("auto_join_port", 8200)
	switch {
	case !has && address == "":
		return "", fmt.Errorf("retry_join.leader_api_addr: is missing")
	case has && address != "":
		return "", fmt.Errorf("retry_join: leader_api_addr and auto_join exclude each other")
	case f.scheme != "https" && f.scheme != "http":
		return "", fmt.Errorf("retry_join.auto_join_scheme: %q must be https or http", f.scheme)
	case f.port < 1 || f.port > 65535:
		return "", fmt.Errorf("retry_join.auto_join_port: %d must be 1 to 65535", f.port)
	case !has:
		return "", nil
	}
	if _, err := cloudjoin.Parse(k.Peek("auto_join")); err != nil {
		f.nobody = true
		k.Because("auto_join", err.Error())
		return "", nil
	}
	return k.String("auto_join", ""), nil
}

// Targets are the servers to ask now: of all stanzas, in their order. What a cloud does not tell is the error; the
// targets are good beside it.
func Targets(ctx context.Context, all []Stanza) ([]cluster.JoinTarget, error) {
	var clouds cloudjoin.Asker
	var out []cluster.JoinTarget
	var errs []error
	for i := range all {
		some, err := all[i].targets(ctx, &clouds)
		out, errs = append(out, some...), append(errs, err)
	}
	return out, errors.Join(errs...)
}

func (f *Stanza) targets(ctx context.Context, clouds *cloudjoin.Asker) ([]cluster.JoinTarget, error) {
	switch {
	case f.nobody:
		return nil, nil
	case f.cloud == "":
		return []cluster.JoinTarget{f.target}, nil
	}
	addrs, err := clouds.Resolve(ctx, []string{f.cloud})
	var out []cluster.JoinTarget
	for _, addr := range addrs {
		t := f.target
		t.APIAddr = (&url.URL{Scheme: f.scheme, Host: cloudjoin.WithPort(addr, f.port)}).String()
		out = append(out, t)
	}
	return out, err
}
