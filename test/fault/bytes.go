package faultrun

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// BytesReport tells what large requests did to a server.
type BytesReport struct {
	// RSSBefore and RSSMost are in bytes; Budget is what large requests may hold.
	RSSBefore, RSSMost, Budget int64
	// Denied are those without a token, Refused those that found no room, Taken the rest that was answered, Cut had no
	// answer.
	Denied, Refused, Taken, Cut int64
	// Beside counts writes to the catalog meanwhile.
	Beside int
}

const bytesHCL = `limits { request_memory = %d }
secrets {
  storage "inmem" {}
  listener "tcp" {
    address = "%s"
    tls_disable = true
  }
}`

// RunBytes is B12: clients that send bodies of 31 MiB to the secrets' port, all at once, without a token and then
// with one, of which half never send the end. The server holds no more than its budget, says 503 with Retry-After,
// and its catalog goes on.
func (l *Lab) RunBytes(ctx context.Context, clients int, budget int64) (report BytesReport, err error) {
	probe, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return report, err
	}
	addr := probe.Addr().String()
	_ = probe.Close()
	c, err := l.Open(ctx, Shape{Servers: 1, HCL: []string{fmt.Sprintf(bytesHCL, budget, addr)}})
	if err != nil {
		return report, err
	}
	defer c.Close()
	root, err := openSecrets(ctx, addr)
	if err != nil {
		return report, err
	}
	s := c.Servers[0]
	report.Budget, report.RSSBefore = budget, s.rssBytes()
	f := &flood{addr: addr, report: &report}
	for _, token := range []string{"", root} {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			f.send(ctx, clients, token)
		}()
		for under := true; under; {
			select {
			case <-ended:
				under = false
			default:
			}
			report.RSSMost = max(report.RSSMost, s.rssBytes())
			if r := c.admin.At(s.HTTP).Do(ctx, "PUT", "/v1/kv/beside", []byte("x")); r.Status != http.StatusOK {
				err = errors.Join(err, fmt.Errorf("the catalog beside: %s", r))
			}
			report.Beside++
		}
	}
	switch bound := report.RSSBefore + budget + budget/5; {
	case report.RSSBefore > 0 && report.RSSMost > bound:
		err = errors.Join(err, fmt.Errorf("memory grew beyond %d bytes", bound))
	case f.bad.Load() != nil:
		err = errors.Join(err, *f.bad.Load())
	case report.Refused == 0 || report.Denied == 0:
		err = errors.Join(err, errors.New("nothing was refused"))
	}
	return report, errors.Join(err, c.Damage())
}

// flood is clients that send large bodies.
type flood struct {
	addr   string
	report *BytesReport
	bad    atomic.Pointer[error]
}

const floodBytes = 31 << 20

// send has all send at once, and waits for their answers. Each second one keeps its last byte.
func (f *flood) send(ctx context.Context, clients int, token string) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", f.addr)
			if err != nil {
				atomic.AddInt64(&f.report.Cut, 1)
				return
			}
			defer nc.Close()
			defer context.AfterFunc(ctx, func() { _ = nc.Close() })()
			wg.Go(func() { sendLarge(nc, token, i%2 == 1) }) // ends with the connection
			resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
			if err != nil {
				atomic.AddInt64(&f.report.Cut, 1)
				return
			}
			f.judge(resp, token)
		})
	}
	wg.Wait()
}

func sendLarge(nc net.Conn, token string, slow bool) {
	_, _ = fmt.Fprintf(nc, "PUT /v1/cubbyhole/x HTTP/1.1\r\nHost: x\r\nX-Vault-Token: %s\r\nContent-Length: %d\r\n\r\n", token, floodBytes)
	piece := []byte(strings.Repeat("x", 1<<20))
	for sent := 0; sent < floodBytes; sent += len(piece) {
		if slow && sent+len(piece) >= floodBytes {
			return
		}
		if _, err := nc.Write(piece); err != nil {
			return
		}
	}
}

func (f *flood) judge(resp *http.Response, token string) {
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusForbidden && token == "":
		atomic.AddInt64(&f.report.Denied, 1)
	case resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != "":
		atomic.AddInt64(&f.report.Refused, 1)
	case token != "" && resp.StatusCode == http.StatusBadRequest: // it is no JSON
		atomic.AddInt64(&f.report.Taken, 1)
	default:
		err := fmt.Errorf("a large body with token %q got %s", token, resp.Status)
		f.bad.Store(&err)
	}
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
