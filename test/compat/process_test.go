package compat

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
)

// bin is the binary under test, set by TestMain.
var bin string

// child is a process that a test started; it ends before the test does.
type child struct {
	cmd  *exec.Cmd
	logs logBuffer
	done chan struct{}
	err  error // valid once done is closed
}

// logBuffer is what a child printed, safe to read while it prints.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// launch starts a program in a process group of its own, so that nothing outlives it.
func launch(program string, args ...string) (*child, error) {
	c := &child{cmd: exec.Command(program, args...), done: make(chan struct{})}
	// What is CORBEL_ in our environment is meant for us: the server would take it for options.
	c.cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "CORBEL_") })
	c.cmd.Stdout, c.cmd.Stderr = &c.logs, &c.logs
	c.cmd.WaitDelay = 5 * time.Second
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(c.done)
		c.err = c.cmd.Wait()
	}()
	return c, nil
}

// kill ends the group at once, as kill -9 does, and waits.
func (c *child) kill() {
	_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL)
	<-c.done
}

// finish stops the process as an operator does; one that does not go, or that panicked, is an error.
func (c *child) finish() error {
	select {
	case <-c.done:
		return fmt.Errorf("ended on its own: %v\n%s", c.err, c.logs.String())
	default:
	}
	if err := c.cmd.Process.Signal(syscall.SIGINT); err != nil {
		return err
	}
	timer := time.NewTimer(20 * time.Second)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
		c.kill()
		return fmt.Errorf("did not stop within 20 s\n%s", c.logs.String())
	}
	if strings.Contains(c.logs.String(), "panic:") || strings.Contains(c.logs.String(), "DATA RACE") {
		return fmt.Errorf("panicked:\n%s", c.logs.String())
	}
	if c.err != nil {
		return fmt.Errorf("ended with %w\n%s", c.err, c.logs.String())
	}
	return nil
}

// node is a running corbel and its addresses.
type node struct {
	*child
	name, http, dns, gossip string
	args                    []string

	once sync.Once
	api  *api.Client
}

// newNode chooses ports and makes the command line: kind is dev, server or agent.
func newNode(kind, name string, args ...string) (*node, error) {
	ports, err := freePorts(5)
	if err != nil {
		return nil, err
	}
	addr := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", ports[i]) }
	n := &node{name: name, http: addr(0), dns: addr(1), gossip: addr(3)}
	n.args = append([]string{kind, "-node=" + name, "-bind=127.0.0.1",
		fmt.Sprintf("-http-port=%d", ports[0]), fmt.Sprintf("-dns-port=%d", ports[1]),
		fmt.Sprintf("-server-port=%d", ports[2]),
		fmt.Sprintf("-serf-lan-port=%d", ports[3]), fmt.Sprintf("-grpc-port=%d", ports[4])}, args...)
	return n, nil
}

func (n *node) start() (err error) {
	n.child, err = launch(bin, n.args...)
	return err
}

// await polls until the node answers, has a leader, and is in the catalog itself.
func (n *node) await() error {
	begin := time.Now()
	for {
		err := n.ready()
		if err == nil {
			return nil
		}
		timer := time.NewTimer(30 * time.Millisecond)
		select {
		case <-n.done:
			return fmt.Errorf("%s ended at once: %v\n%s", n.name, n.err, n.logs.String())
		case <-timer.C:
		}
		if time.Since(begin) > 30*time.Second {
			n.kill()
			return fmt.Errorf("%s was not ready within 30 s: %w\n%s", n.name, err, n.logs.String())
		}
	}
}

func (n *node) ready() error {
	idle := &http.Transport{}
	defer idle.CloseIdleConnections()
	client, err := api.NewClient(&api.Config{Address: n.http, HttpClient: &http.Client{Timeout: 2 * time.Second,
		Transport: idle}})
	if err != nil {
		return err
	}
	if leader, err := client.Status().Leader(); err != nil || leader == "" {
		return fmt.Errorf("leader %q, error %v", leader, err)
	}
	checks, _, err := client.Health().Node(n.name, nil)
	if err == nil && len(checks) == 0 {
		err = errors.New("the node is not in the catalog")
	}
	return err
}

// client is the one client of a node: each has a pool of connections, and a server takes 200 from one address.
func (n *node) client(t *testing.T) *api.Client {
	t.Helper()
	n.once.Do(func() { n.api, _ = api.NewClient(&api.Config{Address: n.http}) })
	if n.api == nil {
		t.Fatalf("no client for %s", n.http)
	}
	return n.api
}

// run starts a node for one test and ends it with the test.
func run(t *testing.T, kind, name string, args ...string) *node {
	t.Helper()
	n, err := newNode(kind, name, args...)
	must(t, err)
	must(t, n.start())
	t.Cleanup(func() {
		select {
		case <-n.done: // the test killed it
		default:
			if err := n.finish(); err != nil {
				t.Errorf("%s %s", n.name, err)
			}
		}
	})
	return n
}

// notRun ends the test as not run, in the form that test/all counts as skipped.
func notRun(t *testing.T, format string, args ...any) {
	t.Helper()
	reason := "NOT RUN: " + fmt.Sprintf(format, args...)
	fmt.Fprintf(os.Stderr, "NOT RUN: %s: %s\n", t.Name(), reason)
	t.Skip(reason)
}
