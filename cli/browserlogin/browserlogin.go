// Package browserlogin sends a person to a provider's pages and takes what their browser comes back with, at a port of
// this machine. It decides nothing: who is let in is the server's business, which is told state and code.
package browserlogin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"runtime"
	"time"
)

// wait is what a person has at the provider's pages; the server keeps a login that was begun no longer.
const wait = 5 * time.Minute

// Back is what the provider's answer in the browser brought.
type Back struct {
	State, Code string
	Refused     string // the provider's word for why; whoever made a link to here may have chosen it
}

// Place is where the browser comes back to. Close it, unless Go was called.
type Place struct{ listener net.Listener }

// Listen opens an address of this machine, such as localhost:8250; port 0 takes a free one.
func Listen(ctx context.Context, address string) (*Place, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &Place{l}, nil
}

// Close opens the port to others; it may be called again.
func (p *Place) Close() { _ = p.listener.Close() } // nobody waits at it

// Port is where it listens.
func (p *Place) Port() string {
	_, port, err := net.SplitHostPort(p.listener.Addr().String())
	if err != nil {
		return "" // a TCP address has one
	}
	return port
}

// Path is where the browser comes back to at the port.
const Path = "/oidc/callback"

// Go tells the person on out to open the address, opens it where open is wanted, and waits for the browser.
func (p *Place) Go(ctx context.Context, out io.Writer, address string, open bool) (Back, error) {
	if open {
		fmt.Fprintf(out, "Complete the login via your OIDC provider. Launching browser to:\n\n    %s\n\n\n", address)
		show(address)
	} else {
		fmt.Fprintf(out, "Complete the login via your OIDC provider. Open the following link in your browser:\n\n    "+
			"%s\n\n\n", address)
	}
	fmt.Fprintln(out, "Waiting for OIDC authentication to complete...")
	got, err := p.await(ctx)
	if err == nil && got.Refused != "" {
		err = fmt.Errorf("the provider refused the login: %.200q", got.Refused)
	}
	return got, err
}

// show tries to open a browser; the address stands on the terminal as well, so that it does not work is no error.
func show(address string) {
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

// await serves the address that the provider sends the browser back to, until it comes.
func (p *Place) await(ctx context.Context) (Back, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	came := make(chan Back, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Path, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		select {
		case came <- Back{q.Get("state"), q.Get("code"), q.Get("error")}:
		default: // a second one: the first counts
		}
		// Nothing of the address is repeated: whoever made a link to here chose it.
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = fmt.Fprintln(w, "This window may be closed: go on in the terminal.")
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(p.listener) }()
	var got Back
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
