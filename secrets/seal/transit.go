package seal

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"corbel.dev/corbel/kit/clienttls"
	"corbel.dev/corbel/kit/errkind"
)

// TransitConfig says which transit engine, of any server with Vault's API, seals.
type TransitConfig struct {
	Address, Token, KeyName, MountPath, Namespace string
	CACertFile, ClientCertFile, ClientKeyFile     string
	ServerName                                    string
	SkipVerify                                    bool
	NoRenewal                                     bool // the token is not renewed
	Log                                           *slog.Logger
}

// Transit is a seal by a key that another server keeps: see TransitConfig.
type Transit struct {
	cfg  TransitConfig
	http *http.Client
}

const (
	transitWithin = 20 * time.Second
	transitMax    = 1 << 20
	renewEvery    = 10 * time.Minute // a token that lives shorter needs disable_renewal and somebody who renews it
)

// NewTransit checks the configuration; it asks nobody.
func NewTransit(cfg TransitConfig) (*Transit, error) {
	u, err := url.Parse(cfg.Address)
	switch {
	case cfg.Address == "" || err != nil || u.Host == "":
		return nil, fmt.Errorf("address: %q must be a URL such as https://vault.example:8200", cfg.Address)
	case cfg.KeyName == "":
		return nil, errors.New("key_name: is missing")
	case cfg.Token == "":
		return nil, errors.New("token: is missing")
	}
	if cfg.MountPath = strings.Trim(cfg.MountPath, "/"); cfg.MountPath == "" {
		cfg.MountPath = "transit"
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	secure, err := clienttls.Files{CA: cfg.CACertFile, Cert: cfg.ClientCertFile, Key: cfg.ClientKeyFile}.Config(
		clienttls.Files{CA: "tls_ca_cert", Cert: "tls_client_cert", Key: "tls_client_key"})
	if err != nil {
		return nil, err
	}
	secure.ServerName, secure.InsecureSkipVerify = cfg.ServerName, cfg.SkipVerify
	return &Transit{cfg, &http.Client{Timeout: transitWithin, Transport: &http.Transport{TLSClientConfig: secure,
		Proxy: http.ProxyFromEnvironment}}}, nil
}

// Type implements Auto.
func (t *Transit) Type() string { return "transit" }

// Wrap implements Auto.
func (t *Transit) Wrap(ctx context.Context, plain []byte) ([]byte, error) {
	var out struct {
		Ciphertext string `json:"ciphertext"`
	}
	err := t.call(ctx, t.cfg.MountPath+"/encrypt/"+url.PathEscape(t.cfg.KeyName),
		map[string]string{"plaintext": base64.StdEncoding.EncodeToString(plain)}, &out)
	if err == nil && out.Ciphertext == "" {
		err = errkind.New(errkind.Unavailable, "seal transit: the answer has no ciphertext")
	}
	return []byte(out.Ciphertext), err
}

// Unwrap implements Auto.
func (t *Transit) Unwrap(ctx context.Context, wrapped []byte) ([]byte, error) {
	var out struct {
		Plaintext string `json:"plaintext"`
	}
	err := t.call(ctx, t.cfg.MountPath+"/decrypt/"+url.PathEscape(t.cfg.KeyName),
		map[string]string{"ciphertext": string(wrapped)}, &out)
	if err != nil {
		return nil, err
	}
	plain, err := base64.StdEncoding.DecodeString(out.Plaintext)
	return plain, errkind.E(errkind.Unavailable, "seal transit: the plaintext in the answer", err)
}

func (t *Transit) call(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, strings.TrimSuffix(t.cfg.Address, "/")+"/v1/"+path,
		bytes.NewReader(body))
	if err != nil {
		return errkind.E(errkind.Invalid, "seal transit", err)
	}
	req.Header.Set("X-Vault-Token", t.cfg.Token)
	req.Header.Set("X-Vault-Request", "true")
	if t.cfg.Namespace != "" {
		req.Header.Set("X-Vault-Namespace", t.cfg.Namespace)
	}
	resp, err := t.http.Do(req)
	if err != nil {
		return errkind.E(errkind.Unavailable, "seal transit", err)
	}
	defer resp.Body.Close()
	var answer struct {
		Data   json.RawMessage `json:"data"`
		Errors []string        `json:"errors"`
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, transitMax))
	if err == nil {
		err = json.Unmarshal(raw, &answer)
	}
	switch {
	case resp.StatusCode != http.StatusOK:
		return errkind.Errorf(errkind.Unavailable, "seal transit: %s answered with status %d: %s", t.cfg.Address,
			resp.StatusCode, strings.Join(answer.Errors, "; "))
	case err != nil:
		return errkind.E(errkind.Unavailable, "seal transit: the answer", err)
	case out == nil:
		return nil
	}
	return errkind.E(errkind.Unavailable, "seal transit: the answer", json.Unmarshal(answer.Data, out))
}

// Run renews the token, until ctx ends.
func (t *Transit) Run(ctx context.Context) error {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for !t.cfg.NoRenewal {
		if err := t.call(ctx, "auth/token/renew-self", map[string]string{}, nil); err != nil && ctx.Err() == nil {
			t.cfg.Log.Warn("secrets: the token of the transit seal was not renewed", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
	<-ctx.Done()
	return nil
}
