package secretsplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"

	"corbel.dev/corbel/kit/life"
	"corbel.dev/corbel/node/vaultconf"
	"corbel.dev/corbel/secrets/seal"
)

// secretsSeals are the seal to use and the one to come from; nil is Shamir's shares.
type secretsSeals struct {
	now, old seal.Auto
	parts    []life.Part
}

// openSeals makes what the seal stanzas ask for.
func openSeals(blocks []vaultconf.Block, getenv func(string) string, log *slog.Logger) (s secretsSeals, err error) {
	shamir := false
	for _, b := range blocks {
		disabled := b.Keys.Bool("disabled", false)
		one, err := openSeal(b, getenv, log)
		if err == nil {
			err = b.Keys.Err()
		}
		if err != nil {
			return s, fmt.Errorf("seal %q: %w", b.Type, err)
		}
		b.Keys.Done()
		switch {
		case one == nil && !disabled:
			shamir = true
		case one == nil:
		case disabled && s.old == nil:
			s.old = one
		case !disabled && s.now == nil:
			s.now = one
		default:
			return s, errors.New("seal: of two stanzas one must have disabled = true: the seal to come from")
		}
		if t, ok := one.(*seal.Transit); ok {
			s.parts = append(s.parts, life.Part{Name: "transit seal",
				Run: func(ctx context.Context) error { return t.Run(ctx) }})
		}
	}
	if shamir && s.now != nil {
		return s, errors.New("seal: of two stanzas one must have disabled = true: the seal to come from")
	}
	return s, nil
}

// openSeal makes one; nil is Shamir's.
func openSeal(b vaultconf.Block, getenv func(string) string, log *slog.Logger) (seal.Auto, error) {
	k := b.Keys
	k.Ignore("name", "priority")
	switch b.Type {
	case "shamir":
		return nil, nil
	case "static":
		current, err := seal.ParseKey(k.String("current_key", ""), getenv)
		if err != nil {
			return nil, fmt.Errorf("current_key: %w", err)
		}
		var previous []byte
		if text := k.String("previous_key", ""); text != "" {
			if previous, err = seal.ParseKey(text, getenv); err != nil {
				return nil, fmt.Errorf("previous_key: %w", err)
			}
		}
		return seal.NewStatic(k.String("current_key_id", ""), current, k.String("previous_key_id", ""), previous)
	case "transit":
		or := func(key, name string) string { // what the stanza does not say, the variables do that clients take
			return cmp.Or(k.String(key, ""), getenv("BAO_"+name), getenv("VAULT_"+name))
		}
		skip, _ := strconv.ParseBool(cmp.Or(getenv("BAO_SKIP_VERIFY"), getenv("VAULT_SKIP_VERIFY")))
		return seal.NewTransit(seal.TransitConfig{Address: or("address", "ADDR"), Token: or("token", "TOKEN"),
			KeyName:   k.String("key_name", ""),
			MountPath: k.String("mount_path", ""), Namespace: or("namespace", "NAMESPACE"),
			CACertFile:     or("tls_ca_cert", "CACERT"),
			ClientCertFile: or("tls_client_cert", "CLIENT_CERT"), ClientKeyFile: or("tls_client_key", "CLIENT_KEY"),
			ServerName: or("tls_server_name", "TLS_SERVER_NAME"),
			SkipVerify: k.Bool("tls_skip_verify", skip), NoRenewal: k.Bool("disable_renewal", false), Log: log})
	}
	return nil, errors.New("the type is unknown: it is shamir, static or transit")
}
