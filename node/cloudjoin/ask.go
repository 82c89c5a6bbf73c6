package cloudjoin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/procgroup"
)

const (
	// MaxAddrs bounds what one entry may find.
	MaxAddrs = 1000
	// Deadline is how long a cloud may take.
	Deadline = 30 * time.Second
	// maxAnswer bounds what a child may print, in bytes.
	maxAnswer = 1 << 20
)

// ChildCommand is the command line's word that makes a process a child: it calls Serve.
const ChildCommand = "cloud-child"

// Asker asks clouds. It is safe for concurrent use; the zero value asks by this process's own binary.
type Asker struct {
	// Command starts a child: a program that calls Serve with its standard input and output. Empty is this
	// process's own binary, also after the file was replaced by a newer one.
	Command []string
}

func (a *Asker) command() []string {
	if len(a.Command) > 0 {
		return a.Command
	}
	return procgroup.Own(ChildCommand)
}

// Resolve replaces the entries for clouds among the addresses to join by what they find now, and leaves the other
// addresses as they are. What could not be asked is told by the error; the addresses are good beside it.
func (a *Asker) Resolve(ctx context.Context, addrs []string) ([]string, error) {
	var out []string
	var errs []error
	for _, addr := range addrs {
		if !Is(addr) {
			out = append(out, addr)
			continue
		}
		e, err := Parse(addr)
		if err == nil {
			var found []string
			if found, err = a.Addrs(ctx, e); err == nil && len(found) == 0 {
				err = errkind.Errorf(errkind.Unavailable, "%s: nobody is found", e)
			}
			out = append(out, found...)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return out, errors.Join(errs...)
}

// WithPort is an address with its own port, or with this one where it has none.
func WithPort(addr string, port int) string {
	if _, _, err := net.SplitHostPort(addr); err == nil {
		return addr
	}
	return net.JoinHostPort(strings.Trim(addr, "[]"), strconv.Itoa(port))
}

// reply is what a child prints.
type reply struct {
	Addrs []string `json:"addrs,omitempty"`
	Error string   `json:"error,omitempty"`
}

// Addrs asks an entry's cloud, for Deadline at most. The addresses are IPs or names, with a port or without. It fails
// with kind Unavailable.
func (a *Asker) Addrs(ctx context.Context, e Entry) ([]string, error) {
	const op = "ask a cloud for addresses"
	ctx, cancel := context.WithTimeout(ctx, Deadline)
	defer cancel()
	in, err := json.Marshal(e.args)
	if err != nil {
		return nil, err
	}
	args := a.command()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	procgroup.Apart(cmd)
	cmd.WaitDelay = time.Second
	out := &bounded{most: maxAnswer}
	cmd.Stdin, cmd.Stdout = bytes.NewReader(in), out
	if err := cmd.Run(); err != nil {
		switch {
		case ctx.Err() != nil:
			err = fmt.Errorf("no answer in time: %w", ctx.Err())
		case out.refused != nil: // which ends the child too: by its pipe, or by an exit code
			err = out.refused
		}
		return nil, errkind.E(errkind.Unavailable, op, fmt.Errorf("%s: %w", e, err))
	}
	var r reply
	if err := json.Unmarshal(out.buf.Bytes(), &r); err != nil {
		return nil, errkind.E(errkind.Unavailable, op, fmt.Errorf("%s: the child's answer: %w", e, err))
	}
	if r.Error != "" {
		return nil, errkind.E(errkind.Unavailable, op, fmt.Errorf("%s: %s", e, e.Hide(r.Error)))
	}
	return r.Addrs, nil
}

// bounded keeps what is written to it, up to a bound; more is an error of the writer.
type bounded struct {
	buf     bytes.Buffer
	most    int
	refused error
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.buf.Len()+len(p) > b.most {
		b.refused = fmt.Errorf("more than %d bytes", b.most)
		return 0, b.refused
	}
	return b.buf.Write(p)
}

// Provider asks one cloud; it may take as long as it likes.
type Provider interface {
	Addrs(args map[string]string) ([]string, error)
}

// Serve is a child: it reads one question, asks the provider of its name, and prints the answer.
func Serve(in io.Reader, out io.Writer, providers map[string]Provider) error {
	var args map[string]string
	if err := json.NewDecoder(io.LimitReader(in, maxAnswer)).Decode(&args); err != nil {
		return fmt.Errorf("read the question: %w", err)
	}
	var r reply
	if err := check(args); err != nil {
		r.Error = err.Error()
	} else if p := providers[args["provider"]]; p == nil {
		r.Error = "this binary does not know the provider"
	} else if addrs, err := p.Addrs(args); err != nil {
		r.Error = err.Error()
	} else if r.Addrs, err = usable(addrs); err != nil {
		r = reply{Error: err.Error()}
	}
	return json.NewEncoder(out).Encode(r)
}

// usable keeps each address once, and refuses what is none.
func usable(addrs []string) ([]string, error) {
	if len(addrs) > MaxAddrs {
		return nil, fmt.Errorf("%d machines are found, more than %d: narrow it down by a tag", len(addrs), MaxAddrs)
	}
	seen := map[string]bool{}
	var out []string
	for _, addr := range addrs {
		if addr = strings.TrimSpace(addr); addr == "" || seen[addr] {
			continue
		}
		if !isAddr(addr) {
			return nil, fmt.Errorf("%q is no address", shorten(addr))
		}
		seen[addr] = true
		out = append(out, addr)
	}
	return out, nil
}

func isAddr(addr string) bool {
	if _, err := netip.ParseAddr(addr); err == nil {
		return true
	}
	host := addr
	if h, port, err := net.SplitHostPort(addr); err == nil {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return false
		}
		host = h
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return host != "" && len(host) <= 253 && !strings.ContainsFunc(host, func(r rune) bool {
		return r != '.' && r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
}
