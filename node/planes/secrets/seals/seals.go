// Package seals makes what the seal stanzas of a server's configuration ask for. It asks nobody.
package seals

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
	"corbel.dev/corbel/secrets/seal/cloudseal"
)

// Seals are the seal to use and the one to come from; nil is Shamir's shares.
type Seals struct {
	Now, Old seal.Auto
	Parts    []life.Part // that run while the server does
}

// Open makes the seals of the stanzas. Errors name the stanza and the key.
func Open(blocks []vaultconf.Block, getenv func(string) string, log *slog.Logger) (s Seals, err error) {
	shamir := false
	for _, b := range blocks {
		disabled := b.Keys.Bool("disabled", false)
		one, err := open(b, getenv, log)
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
		case disabled && s.Old == nil:
			s.Old = one
		case !disabled && s.Now == nil:
			s.Now = one
		default:
			return s, errors.New("seal: of two stanzas one must have disabled = true: the seal to come from")
		}
		if t, ok := one.(*seal.Transit); ok {
			s.Parts = append(s.Parts, life.Part{Name: "transit seal",
				Run: func(ctx context.Context) error { return t.Run(ctx) }})
		}
	}
	if shamir && s.Now != nil {
		return s, errors.New("seal: of two stanzas one must have disabled = true: the seal to come from")
	}
	return s, nil
}

// open makes one; nil is Shamir's.
func open(b vaultconf.Block, getenv func(string) string, log *slog.Logger) (seal.Auto, error) {
	k := b.Keys
	k.Ignore("name", "priority")
	or := func(key string, names ...string) string { // what the stanza does not say, the variables do that clients take
		said := k.String(key, "")
		for _, name := range names {
			said = cmp.Or(said, getenv(name))
		}
		return said
	}
	switch b.Type {
	case "shamir":
		return nil, nil
	case "static":
		return static(k, getenv)
	case "transit":
		return transit(k, getenv, or, log)
	case "awskms":
		return some(cloudseal.NewAWS(cloudseal.AWSConfig{KeyID: or("kms_key_id"),
			Region: or("region", "AWS_REGION", "AWS_DEFAULT_REGION"), Endpoint: or("endpoint", "AWS_KMS_ENDPOINT"),
			AccessKey: or("access_key"), SecretKey: or("secret_key"), SessionToken: or("session_token"),
			SharedFile: or("shared_creds_filename"), SharedProfile: or("shared_creds_profile"), Log: log}))
	case "gcpckms":
		k.Ignore("user_agent")
		return some(cloudseal.NewGoogle(cloudseal.GoogleConfig{Project: or("project", "GOOGLE_PROJECT"),
			Region: or("region", "GOOGLE_REGION"), KeyRing: or("key_ring"), CryptoKey: or("crypto_key"),
			Credentials:  or("credentials", "GOOGLE_CREDENTIALS", "GOOGLE_APPLICATION_CREDENTIALS"),
			MetadataHost: getenv("GCE_METADATA_HOST"), Log: log}))
	case "azurekeyvault":
		return some(cloudseal.NewAzure(cloudseal.AzureConfig{TenantID: or("tenant_id", "AZURE_TENANT_ID"),
			ClientID: or("client_id", "AZURE_CLIENT_ID"), ClientSecret: or("client_secret", "AZURE_CLIENT_SECRET"),
			FederatedTokenFile: getenv("AZURE_FEDERATED_TOKEN_FILE"),
			Environment:        or("environment", "AZURE_ENVIRONMENT"), Resource: or("resource", "AZURE_AD_RESOURCE"),
			VaultName: or("vault_name"), KeyName: or("key_name"), Authority: getenv("AZURE_AUTHORITY_HOST"), Log: log}))
	}
	return nil, errors.New("the type is unknown: it is shamir, static, transit, awskms, gcpckms or azurekeyvault; " +
		"for another cloud or an HSM, let a transit engine that has it hold the key")
}

// some makes no seal of one that was refused.
func some(s *cloudseal.Seal, err error) (seal.Auto, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

func static(k *vaultconf.Keys, getenv func(string) string) (seal.Auto, error) {
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
	s, err := seal.NewStatic(k.String("current_key_id", ""), current, k.String("previous_key_id", ""), previous)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func transit(k *vaultconf.Keys, getenv func(string) string, or func(string, ...string) string, log *slog.Logger) (
	seal.Auto, error) {
	either := func(key, name string) string { return or(key, "BAO_"+name, "VAULT_"+name) }
	skip, _ := strconv.ParseBool(cmp.Or(getenv("BAO_SKIP_VERIFY"), getenv("VAULT_SKIP_VERIFY")))
	s, err := seal.NewTransit(seal.TransitConfig{Address: either("address", "ADDR"), Token: either("token", "TOKEN"),
		KeyName:   k.String("key_name", ""),
		MountPath: k.String("mount_path", ""), Namespace: either("namespace", "NAMESPACE"),
		CACertFile:     either("tls_ca_cert", "CACERT"),
		ClientCertFile: either("tls_client_cert", "CLIENT_CERT"), ClientKeyFile: either("tls_client_key", "CLIENT_KEY"),
		ServerName: either("tls_server_name", "TLS_SERVER_NAME"),
		SkipVerify: k.Bool("tls_skip_verify", skip), NoRenewal: k.Bool("disable_renewal", false), Log: log})
	if err != nil {
		return nil, err
	}
	return s, nil
}
