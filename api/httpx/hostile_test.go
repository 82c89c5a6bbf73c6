package httpx

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestSlowloris: who sends a byte now and then, in the head or in the body, is cut off when its time is over,
// while others are served; who sends slowly but steadily is not.
func TestSlowloris(t *testing.T) {
	s, err := NewServer(ServerConfig{Name: "t", Listen: []Listen{{Address: "127.0.0.1:0"}},
		ReadHeaderTimeout: 500 * time.Millisecond, BodyGrace: 500 * time.Millisecond,
		MaxHeaderBytes: 64 << 10, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/unread" {
				return
			}
			n, err := io.Copy(io.Discard, r.Body)
			if err != nil {
				w.WriteHeader(http.StatusBadRequest)
			}
			fmt.Fprintln(w, n)
		})})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Bind(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	addr := s.Addrs()[0].String()
	slow := map[string]string{
		"head": "GET / HTTP/1.1\r\nHost: x\r\n", "nothing": "G",
		"body":           "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n",
		"body of nobody": "PUT /unread HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n",
		"chunks":         "PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n186a0\r\n",
	}
	ended := make(chan string, len(slow))
	for name, head := range slow {
		go func() {
			if err := trickle(addr, head); err != nil {
				ended <- fmt.Sprintf("%s: %v", name, err)
				return
			}
			ended <- ""
		}()
	}
	for range slow {
		resp, err := http.Post("http://"+addr, "", strings.NewReader(strings.Repeat("x", 1<<20)))
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("another client: %v %v", resp, err)
		} else {
			resp.Body.Close()
		}
		if problem := <-ended; problem != "" {
			t.Error(problem)
		}
	}
	steady(t, addr)
}

// trickle sends a byte every 50 ms until the server closes; nil when it did.
func trickle(addr, head string) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := io.WriteString(c, head); err != nil {
		return err
	}
	closed := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, c)
		close(closed)
	}()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(time.Minute)
	for {
		select {
		case <-closed:
			return nil
		case <-limit:
			return fmt.Errorf("is still connected after a minute")
		case <-tick.C:
			_, _ = io.WriteString(c, "a")
		}
	}
}

// steady sends a body in parts that, together, take longer than the grace.
func steady(t *testing.T, addr string) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	const parts, part = 20, 64 << 10
	fmt.Fprintf(c, "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", parts*part)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for range parts {
		<-tick.C
		if _, err := io.WriteString(c, strings.Repeat("x", part)); err != nil {
			t.Fatal(err)
		}
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("a slow but steady client: %v %v", resp, err)
	}
}

// TestWriteTimeout: who does not take an answer within the write timeout loses it; others are served on the same
// listener.
func TestWriteTimeout(t *testing.T) {
	cut := make(chan error, 1)
	s, _, _ := serve(t, ServerConfig{Name: "t", WriteTimeout: 300 * time.Millisecond,
		Listen: []Listen{{Address: "127.0.0.1:0"}},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/quick" {
				return
			}
			var err error
			for chunk := make([]byte, 1<<20); err == nil; {
				_, err = w.Write(chunk)
			}
			cut <- err
		})})
	addr := s.Addrs()[0].String()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-cut:
	case <-time.After(30 * time.Second):
		t.Fatal("the answer still waits for its reader")
	}
	resp, err := http.Get("http://" + addr + "/quick")
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("afterwards: %v, %v", resp, err)
	}
	resp.Body.Close()
}
