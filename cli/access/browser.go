package access

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"

	"corbel.dev/corbel/cli/browserlogin"
	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
	"github.com/spf13/cobra"
)

// browserLogin logs in at an OIDC provider, by a method of the secrets plane, and keeps the token.
type browserLogin struct {
	role  string
	port  int
	print bool
}

func (b *browserLogin) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&b.role, "role", "", "role of an OIDC method; default the method's own")
	f.IntVar(&b.port, "callback-port", 8250, "port of this machine that the browser comes back to; 0 takes a free one")
	f.BoolVar(&b.print, "no-browser", false, "print the provider's address, open no browser")
}

func (b *browserLogin) run(ctx context.Context, e *command.Env, method string) error {
	cl, err := dialSecrets(e)
	if err != nil {
		return err
	}
	defer cl.Close()
	place, err := browserlogin.Listen(ctx, net.JoinHostPort("localhost", strconv.Itoa(b.port)))
	if err != nil {
		return fmt.Errorf("%w: name another port with --callback-port", err)
	}
	defer place.Close()
	redirect, nonce := "http://"+net.JoinHostPort("localhost", place.Port())+browserlogin.Path, rand.Text()
	path := "auth/" + method + "/oidc/"
	begun, err := cl.Do(ctx, "PUT", path+"auth_url", nil, map[string]string{"role": b.role, "redirect_uri": redirect,
		"client_nonce": nonce})
	if err != nil {
		return fmt.Errorf("the method %q of the secrets plane at %s: %w", method, cl.Address(), err)
	}
	address, _ := begun.Data["auth_url"].(string)
	if address == "" {
		return fmt.Errorf("allowed_redirect_uris of the role do not have %s: add it, here and at the provider", redirect)
	}
	back, err := place.Go(ctx, e.Err, address, !b.print)
	if err != nil {
		return err
	}
	a, err := cl.Do(ctx, "GET", path+"callback", url.Values{"state": {back.State}, "code": {back.Code},
		"client_nonce": {nonce}}, nil)
	if err != nil {
		return err
	}
	return keepSecrets(ctx, e, cl, a)
}

// typeOIDC is the type of auth methods that log in with a browser.
const typeOIDC = "oidc"

// catalogBrowser logs in at an OIDC provider, by a method of the catalog.
type catalogBrowser struct {
	method, listen string
	meta           map[string]string
	print          bool // open no browser
}

func (b *catalogBrowser) run(ctx context.Context, e *command.Env, cl *client.Client, q client.Query,
	token *client.Token) error {
	host, _, err := net.SplitHostPort(b.listen)
	if err != nil {
		return command.Usagef("--oidc-callback-listen-addr %q must be host:port", b.listen)
	}
	place, err := browserlogin.Listen(ctx, b.listen)
	if err != nil {
		return fmt.Errorf("%w: name another address with --oidc-callback-listen-addr", err)
	}
	defer place.Close()
	nonce := rand.Text()
	var begun struct{ AuthURL string }
	err = cl.Send(ctx, http.MethodPost, "/v1/acl/oidc/auth-url", q.Values(), map[string]any{"AuthMethod": b.method,
		"RedirectURI": "http://" + net.JoinHostPort(host, place.Port()) + browserlogin.Path, "ClientNonce": nonce,
		"Meta": b.meta}, &begun)
	if err != nil {
		return err
	}
	back, err := place.Go(ctx, e.Err, begun.AuthURL, !b.print)
	if err != nil {
		return err
	}
	return cl.Send(ctx, http.MethodPost, "/v1/acl/oidc/callback", q.Values(), map[string]any{"AuthMethod": b.method,
		"State": back.State, "Code": back.Code, "ClientNonce": nonce}, token)
}
