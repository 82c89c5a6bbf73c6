// Package flood presses all ports of a server at once with what is large, and with readers that do not read.
package flood

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/kit/spawn/harness"
	"corbel.dev/corbel/kit/testport"

	faultrun "corbel.dev/corbel/test/fault"
)

// Config is how hard Run presses.
type Config struct {
	// Clients press each port at a time, from several addresses.
	Clients int
	// Budget is limits.request_memory.
	Budget int64
	// Rounds of all ports at once; in each, who is let stays for Lasts.
	Rounds int
	Lasts  time.Duration
}

// Report tells what large requests did to a server.
type Report struct {
	// RSSBefore and RSSMost are in bytes.
	RSSBefore, RSSMost int64
	// Ports is what became of the clients of each port, by outcome.
	Ports map[string]map[Outcome]int
	// Beside are the times of small writes to the catalog and to secrets meanwhile.
	Beside []time.Duration
}

// Outcome is what became of one client.
type Outcome string

// The outcomes. Denied is who may not send it, Refused who found no room and was told so in its protocol's words,
// Taken who got an answer, Held who was let stay with what it had sent, Cut whose connection was closed, Stalled whose
// write the disk beneath the server kept waiting, which other work on the machine does.
const (
	Denied  Outcome = "denied"
	Refused Outcome = "refused"
	Taken   Outcome = "taken"
	Held    Outcome = "held"
	Cut     Outcome = "cut"
	Stalled Outcome = "stalled"
)

const bytesHCL = `limits { request_memory = %d }
secrets {
  storage "inmem" {}
  listener "tcp" {
    address = "%s"
    tls_disable = true
  }
}`

// floodSources are the addresses that the clients come from.
const floodSources = 4

// Run is B12: clients of every port send what is large, or do not read what is, all at once: without a right and
// with one, to the end, or nearly. The server holds no more than its budget and a fifth, says in each protocol that it
// has no room and when to come again, takes small writes all the while, and large ones again once they have gone.
func Run(ctx context.Context, l *faultrun.Lab, cfg Config) (report Report, err error) {
	ports, err := testport.Free(1)
	if err != nil {
		return report, err
	}
	secrets := fmt.Sprintf("127.0.0.1:%d", ports[0])
	c, err := l.Open(ctx, harness.Config{Servers: 1, Mesh: true, Monitor: true, DNS: true,
		HCL: []string{faultrun.MonitorHCL, fmt.Sprintf(bytesHCL, cfg.Budget, secrets)}})
	if err != nil {
		return report, err
	}
	defer c.Close()
	f := &flood{server: c.Servers[0], admin: faultrun.NewClient(c.Servers[0].HTTP), cfg: cfg,
		secrets: secrets, dns: c.Servers[0].DNS, counts: map[string]map[Outcome]int{}, bad: map[string]error{}}
	f.admin.Timeout = time.Minute // what is judged is that it is answered; a busy machine is no fault
	if err := f.prepare(ctx); err != nil {
		return report, err
	}
	s := f.server
	report.RSSBefore = s.RSS()
	for round := 0; round < cfg.Rounds || round < cfg.Rounds+moreRounds && len(f.unseen()) > 0; round++ {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			f.round(ctx)
		}()
		for under := true; under; {
			select {
			case <-ended:
				under = false
			default:
			}
			report.RSSMost = max(report.RSSMost, s.RSS())
			took, besideErr := f.beside(ctx)
			err, report.Beside = errors.Join(err, besideErr), append(report.Beside, took)
		}
	}
	report.Ports = f.counts
	err = errors.Join(err, f.judge(&report), until(ctx, func() error {
		if got := f.large(ctx, 0, f.root, false); got != Taken {
			return fmt.Errorf("a large body afterwards was %s", got)
		}
		return nil
	}))
	return report, errors.Join(err, c.Damage())
}

// judge says what should not have happened.
func (f *flood) judge(r *Report) error {
	var errs []error
	if bound := r.RSSBefore + f.cfg.Budget + f.cfg.Budget/5; r.RSSBefore > 0 && r.RSSMost > bound {
		errs = append(errs, fmt.Errorf("memory grew from %d to %d MiB, beyond %d", r.RSSBefore>>20, r.RSSMost>>20, bound>>20))
	}
	for _, port := range slices.Sorted(maps.Keys(f.bad)) {
		errs = append(errs, fmt.Errorf("%s: %w", port, f.bad[port]))
	}
	return errors.Join(append(errs, f.unseen()...)...)
}

// moreRounds follow where a machine is too slow for one: clients who do not get to send are not refused.
const moreRounds = 3

// unseen says which outcomes nobody has had that somebody must have. Secrets, agents and gRPC each ask for more than
// there is.
func (f *flood) unseen() (errs []error) {
	for _, want := range []struct {
		port    string
		outcome Outcome
	}{{"secrets", Denied}, {"monitor", Denied}, {"secrets", Refused}, {"agents", Refused}, {"grpc", Refused}} {
		if f.counts[want.port][want.outcome] == 0 {
			errs = append(errs, fmt.Errorf("%s: nobody was %s", want.port, want.outcome))
		}
	}
	return errs
}

// flood is clients that bring, or ask for, what is large.
type flood struct {
	server       *faultrun.Server
	admin        *faultrun.Client
	cfg          Config
	secrets, dns string // host:port
	root, access string // tokens of secrets, and of the monitor's API

	mu     sync.Mutex // guards what follows
	counts map[string]map[Outcome]int
	bad    map[string]error // an answer that none should get, by port
}

// prepare makes what the clients ask for, and gets the tokens.
func (f *flood) prepare(ctx context.Context) (err error) {
	if f.root, err = openSecrets(ctx, f.secrets); err != nil {
		return err
	}
	if r := f.admin.Do(ctx, "PUT", "/v1/kv/large", []byte(strings.Repeat("x", 500<<10))); r.Status != http.StatusOK {
		return fmt.Errorf("a large value: %s", r)
	}
	for i := range 150 {
		body := fmt.Appendf(nil, `{"Node":"n%[1]d","Address":"10.0.0.%[1]d","Service":{"Service":"large","Port":80}}`, i)
		if r := f.admin.Do(ctx, "PUT", "/v1/catalog/register", body); r.Status != http.StatusOK {
			return fmt.Errorf("a service of many instances: %s", r)
		}
	}
	return until(ctx, func() error {
		f.access, err = monitorToken(ctx, f.server.Monitor)
		return err
	})
}

// round has all clients of all ports at work at once, and waits for them.
func (f *flood) round(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Lasts)
	defer cancel()
	var wg sync.WaitGroup
	for port, press := range map[string]func(ctx context.Context, i int) (Outcome, error){
		"secrets": f.pressSecrets, "catalog": f.pressCatalog, "readers": f.pressReaders, "monitor": f.pressMonitor,
		"agents": f.pressAgents, "grpc": f.pressGRPC, "dns": f.pressDNS, "rpc": f.pressRPC,
	} {
		for i := range f.cfg.Clients {
			wg.Go(func() {
				got, err := press(ctx, i)
				f.mu.Lock()
				defer f.mu.Unlock()
				if err != nil {
					f.bad[port] = err
					return
				}
				if f.counts[port] == nil {
					f.counts[port] = map[Outcome]int{}
				}
				f.counts[port][got]++
			})
		}
	}
	wg.Wait()
}

// beside writes a key and a secret, which are small.
func (f *flood) beside(ctx context.Context) (took time.Duration, err error) {
	began := time.Now()
	if r := f.admin.Do(ctx, "PUT", "/v1/kv/beside", []byte("x")); r.Status != http.StatusOK {
		err = fmt.Errorf("the catalog beside: %s", r)
	}
	secret := strings.NewReader(`{"x":"y"}`)
	req, reqErr := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+f.secrets+"/v1/cubbyhole/beside", secret)
	if reqErr != nil {
		return 0, errors.Join(err, reqErr)
	}
	req.Header.Set("X-Vault-Token", f.root)
	resp, respErr := http.DefaultClient.Do(req)
	if respErr != nil {
		return 0, errors.Join(err, respErr)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		err = errors.Join(err, fmt.Errorf("secrets beside: %s", resp.Status))
	}
	return time.Since(began), err
}

// dial connects from one of the addresses; the connection ends with ctx.
func (f *flood) dial(ctx context.Context, i int, addr string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i%floodSources))}}
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = nc.Close() })
	return nc, nil
}

// until asks again for a minute, until there is no error.
func until(ctx context.Context, ask func() error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		t := time.NewTimer(20 * time.Millisecond)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return err
		}
	}
}

var errNoToken = errors.New("which is no token")

// monitorToken logs the administrator in.
func monitorToken(ctx context.Context, addr string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/auth", http.NoBody)
	if err != nil {
		return "", err
	}
	req.SetBasicAuth("admin", "P@ssw0rd!")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var got struct {
		Token string `json:"access_token"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || got.Token == "" {
		return "", fmt.Errorf("the monitor's administrator got %s, %w", resp.Status, errors.Join(err, errNoToken))
	}
	return got.Token, nil
}

// openSecrets initialises and unseals; the root token.
func openSecrets(ctx context.Context, addr string) (string, error) {
	var first struct {
		Keys []string `json:"keys"`
		Root string   `json:"root_token"`
	}
	ask := func(path, body string, out any) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+addr+"/v1/sys/"+path, strings.NewReader(body))
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("sys/%s: %s %s", path, resp.Status, text)
		}
		return errors.Join(err, json.Unmarshal(text, out))
	}
	if err := ask("init", `{"secret_shares":1,"secret_threshold":1}`, &first); err != nil {
		return "", err
	}
	return first.Root, ask("unseal", fmt.Sprintf(`{"key":%q}`, first.Keys[0]), &struct{}{})
}
