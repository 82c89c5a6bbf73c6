package vaultcmd

import (
	"crypto/rand"
	"fmt"
	"net"

	"corbel.dev/corbel/cli/browserlogin"
	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client/vault"
)

// loginBrowser logs in at an OIDC provider: the browser is sent there, and comes back to a port of this machine.
func loginBrowser(c *Call, mount string, data map[string]any) (*vault.Answer, error) {
	word := func(name, def string) string {
		if text := PlainText(data[name]); data[name] != nil && text != "" {
			return text
		}
		return def
	}
	place, err := browserlogin.Listen(c.Ctx(), net.JoinHostPort(word("listenaddress", "localhost"), word("port", "8250")))
	if err != nil {
		return nil, fmt.Errorf("%w: name another port with port=N, which allowed_redirect_uris of the role must allow", err)
	}
	defer place.Close()
	redirect := word("callbackmethod", "http") + "://" + net.JoinHostPort(word("callbackhost", "localhost"),
		word("callbackport", place.Port())) + browserlogin.Path
	nonce := rand.Text()
	path := "auth/" + mount + "/oidc/"
	c.Client = c.Client.WithToken("")
	begun, err := c.Do("PUT", path+"auth_url", map[string]any{"role": word("role", ""), "redirect_uri": redirect,
		"client_nonce": nonce})
	if err != nil {
		return nil, err
	}
	address := PlainText(begun.Data["auth_url"])
	if address == "" || begun.Data["auth_url"] == nil {
		return nil, fmt.Errorf("unable to authorize role %q with redirect_uri %q: allowed_redirect_uris of the role do "+
			"not have it", word("role", ""), redirect)
	}
	got, err := place.Go(c.Ctx(), c.Err, address, word("skip_browser", "false") != "true")
	if err != nil {
		return nil, err
	}
	return c.Ask("GET", path+"callback", map[string]string{"state": got.State, "code": got.Code, "client_nonce": nonce},
		nil)
}

// browserWords are what -method=oidc takes.
var browserWords = map[string]bool{"role": true, "port": true, "listenaddress": true, "callbackhost": true,
	"callbackport": true, "callbackmethod": true, "skip_browser": true}

func checkBrowserWords(data map[string]any) error {
	for name := range data {
		if !browserWords[name] {
			return command.Usagef("-method=oidc takes no %s", name)
		}
	}
	return nil
}
