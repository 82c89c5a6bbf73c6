package vaultcmd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"runtime"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client/vault"
)

// browserWait is what a person has at the provider's pages; the server keeps a login that was begun no longer.
const browserWait = 5 * time.Minute

// back is what the provider's answer in the browser brought.
type back struct{ state, code, refused string }

// loginBrowser logs in at an OIDC provider: the browser is sent there, and comes back to a port of this machine.
func loginBrowser(c *Call, mount string, data map[string]any) (*vault.Answer, error) {
	word := func(name, def string) string {
		if text := PlainText(data[name]); data[name] != nil && text != "" {
			return text
		}
		return def
	}
	listener, err := (&net.ListenConfig{}).Listen(c.Ctx(), "tcp", net.JoinHostPort(word("listenaddress", "localhost"),
		word("port", "8250")))
	if err != nil {
		return nil, fmt.Errorf("%w: name another port with port=N, which allowed_redirect_uris of the role must allow", err)
	}
	defer func() { _ = listener.Close() }() // closed by the server below, unless it did not come so far
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return nil, err
	}
	redirect := word("callbackmethod", "http") + "://" + net.JoinHostPort(word("callbackhost", "localhost"),
		word("callbackport", port)) + "/oidc/callback"
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
	if word("skip_browser", "false") == "true" {
		fmt.Fprintf(c.Err, "Complete the login via your OIDC provider. Open the following link in your browser:\n\n    "+
			"%s\n\n\n", address)
	} else {
		fmt.Fprintf(c.Err, "Complete the login via your OIDC provider. Launching browser to:\n\n    %s\n\n\n", address)
		openBrowser(address)
	}
	fmt.Fprintln(c.Err, "Waiting for OIDC authentication to complete...")
	got, err := awaitBrowser(c.Ctx(), listener)
	if err != nil {
		return nil, err
	}
	if got.refused != "" {
		return nil, fmt.Errorf("the provider refused the login: %.200q", got.refused)
	}
	return c.Ask("GET", path+"callback", map[string]string{"state": got.state, "code": got.code, "client_nonce": nonce},
		nil)
}

// openBrowser tries to; the address stands on the terminal as well, so that it does not work is no error.
func openBrowser(address string) {
	if u, err := url.Parse(address); err != nil || (u.Scheme != "http" && u.Scheme != "https") {
		return // the server is trusted with secrets, but not with what a machine opens
	}
	name := map[string]string{"darwin": "open"}[runtime.GOOS]
	if name == "" {
		name = "xdg-open"
	}
	if path, err := exec.LookPath(name); err == nil {
		cmd := exec.Command(path, address)
		if cmd.Start() == nil {
			go func() { _ = cmd.Wait() }() // it ends by itself, or outlives the command
		}
	}
}

// awaitBrowser serves the address that the provider sends the browser back to, until it comes.
func awaitBrowser(ctx context.Context, listener net.Listener) (back, error) {
	ctx, cancel := context.WithTimeout(ctx, browserWait)
	defer cancel()
	came := make(chan back, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /oidc/callback", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		select {
		case came <- back{q.Get("state"), q.Get("code"), q.Get("error")}:
		default: // a second one: the first counts
		}
		// Nothing of the address is repeated: whoever made a link to here chose it.
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = fmt.Fprintln(w, "This window may be closed: go on in the terminal.")
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(listener) }()
	var got back
	var err error
	select {
	case got = <-came:
	case <-ctx.Done():
		err = errors.New("timed out waiting for response from provider")
	}
	stop, done := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer done()
	_ = s.Shutdown(stop) // the page is on its way; past the deadline it is cut
	<-ended
	return got, err
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
