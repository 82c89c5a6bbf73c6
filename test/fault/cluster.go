package faultrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
)

// Cluster is some servers, and a client of theirs.
type Cluster struct {
	*harness.Cluster

	Admin *Client // the driver's own; one goroutine
}

// Server is one member.
type Server = harness.Server

// Open makes a cluster, starts it, and waits until every member serves.
func (l *Lab) Open(ctx context.Context, shape harness.Config) (*Cluster, error) {
	var err error
	if shape.Dir, err = os.MkdirTemp(l.Dir, "cluster"); err != nil {
		return nil, err
	}
	shape.Binary, shape.Servers = l.Binary, l.Size(shape.Servers)
	made, err := harness.New(shape)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Cluster: made, Admin: NewClient(made.Servers[0].HTTP)}
	if err = c.Start(); err == nil {
		err = c.Ready(ctx, harness.StartLimit)
	}
	if err != nil {
		err = fmt.Errorf("a fresh cluster of %d: %w\n%s", len(c.Servers), err, c.Logs())
		c.Close()
		return nil, err
	}
	return c, nil
}

// StartAgent starts a client agent beside the servers.
func (c *Cluster) StartAgent() (*Server, error) {
	s, err := c.Agent("agent", len(c.Servers))
	if err == nil {
		err = s.Start()
	}
	return s, err
}

// Converged waits until every member has the newest state: a value written now is read stale everywhere.
func (c *Cluster) Converged(ctx context.Context, limit time.Duration) error {
	value := strconv.FormatInt(time.Now().UnixNano(), 36)
	err := spawn.Until(ctx, limit, "a write", func() error {
		if r := c.Admin.Do(ctx, "PUT", "/v1/kv/converged", []byte(value)); r.Status != 200 {
			return errors.New(r.String())
		}
		return nil
	})
	if err != nil {
		return err
	}
	return spawn.Until(ctx, limit, "the newest write on every member", func() error {
		for _, s := range c.Servers {
			if r := c.Admin.At(s.HTTP).Do(ctx, "GET", "/v1/kv/converged?raw&stale", nil); string(r.Body) != value {
				return fmt.Errorf("%s: %s", s.Name, r)
			}
		}
		return nil
	})
}

// Transfer hands leadership over to whom the leader chooses.
func (c *Cluster) Transfer(ctx context.Context) error {
	r := c.Admin.Do(ctx, "POST", "/v1/operator/raft/transfer-leader", nil)
	var answer struct{ Success bool }
	if r.Status != 200 || json.Unmarshal(r.Body, &answer) != nil || !answer.Success {
		return fmt.Errorf("transfer leadership: %s", r)
	}
	return nil
}

// Close kills all members and removes the folder.
func (c *Cluster) Close() {
	c.Cluster.Close()
	c.Admin.Close()
}
