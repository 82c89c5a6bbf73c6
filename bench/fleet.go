package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/kit/spawn/harness"
)

// FleetOptions are the options of the fleet bench.
type FleetOptions struct {
	Options
	// Nodes of the simulated fleet, each with six instances and four checks.
	Nodes int
	// ChangesPerSecond is the rate of check flips while the fleet is kept up.
	ChangesPerSecond int
}

// Shape of a simulated host: 10,000 of them make 60,000 instances and 40,000 checks.
const (
	fleetInstancesPerNode = 6
	fleetChecksPerNode    = 4
	fleetServiceNames     = 2000
	fleetNodesPerTxn      = 5 // 11 operations a node, at most 64 a transaction
)

// fillFleet registers the fleet's nodes by transactions.
func fillFleet(ctx context.Context, c *Target, nodes int) error {
	c.Opts.Say("registering %d nodes, %d instances, %d checks ...", nodes, nodes*fleetInstancesPerNode,
		nodes*fleetChecksPerNode)
	txns := (nodes + fleetNodesPerTxn - 1) / fleetNodesPerTxn
	_, err := RunCount(ctx, c.HTTP, 8, txns, func(i int) []byte {
		var b bytes.Buffer
		b.WriteByte('[')
		for n := i * fleetNodesPerTxn; n < min((i+1)*fleetNodesPerTxn, nodes); n++ {
			if b.Len() > 1 {
				b.WriteByte(',')
			}
			fleetNode(&b, n)
		}
		b.WriteByte(']')
		return Request("PUT", c.HTTP, "/v1/txn", c.Opts.Token, b.Bytes())
	})
	if err != nil {
		return fmt.Errorf("register the fleet: %w", err)
	}
	return nil
}

func fleetService(node, i int) string {
	return fmt.Sprintf("app-%04d", (node*fleetInstancesPerNode+i*331)%fleetServiceNames)
}

func fleetNode(b *bytes.Buffer, n int) {
	fmt.Fprintf(b, `{"Node":{"Verb":"set","Node":{"ID":"%s","Node":"fleet-%05d","Address":"10.%d.%d.%d",`+
		`"Datacenter":"dc1",`+
		`"Meta":{"rack":"r%02d","kernel":"6.1"}}}}`, FleetNodeID(n), n, n>>16&255, n>>8&255, n&255, n%40)
	for i := range fleetInstancesPerNode {
		name := fleetService(n, i)
		fmt.Fprintf(b, `,{"Service":{"Verb":"set","Node":"fleet-%05d","Service":{"ID":"%s-%d","Service":"%s","Port":%d,`+
			`"Tags":["v%d","blue"],"Meta":{"version":"1.2.%d"},"Weights":{"Passing":1,"Warning":1}}}}`,
			n, name, i, name, 20000+i, i, n%10)
	}
	for i := range fleetChecksPerNode {
		b.WriteByte(',')
		fleetCheck(b, n, i, "passing")
	}
}

func fleetCheck(b *bytes.Buffer, n, i int, status string) {
	name := fleetService(n, i)
	fmt.Fprintf(b, `{"Check":{"Verb":"set","Check":{"Node":"fleet-%05d","CheckID":"service:%s-%d","Name":"Service '%s' `+
		`check",`+
		`"Status":"%s","ServiceID":"%s-%d","ServiceName":"%s","Output":"HTTP GET http://127.0.0.1:%d/health: 200 OK"}}}`,
		n, name, i, name, status, name, i, name, 20000+i)
}

func FleetNodeID(n int) string { return fmt.Sprintf("f1ee7000-0000-4000-8000-%012d", n) }

// RunFleet keeps up a simulated fleet: fills it, measures the resident size,
// reads and writes while checks flip, and the time from kill -9 to the next
// acknowledged write, first from the log and then from a snapshot.
func RunFleet(ctx context.Context, o FleetOptions) (*Result, error) {
	if o.Nodes == 0 {
		o.Nodes = 10000
	}
	if o.ChangesPerSecond == 0 {
		o.ChangesPerSecond = 500
	}
	if o.Nodes < 1 || o.Nodes > 100000 {
		return nil, fmt.Errorf("--nodes: must be between 1 and 100000, not %d", o.Nodes)
	}
	if err := o.Complete(); err != nil {
		return nil, err
	}
	c, err := OpenTarget(ctx, &o.Options)
	if err != nil {
		return nil, err
	}
	defer c.Stop()
	r := NewResult("fleet", &o.Options)
	start := time.Now()
	if err := fillFleet(ctx, c, o.Nodes); err != nil {
		return nil, err
	}
	objects := o.Nodes * (1 + fleetInstancesPerNode + fleetChecksPerNode)
	r.Rows = append(r.Rows, Row{What: "fill by transactions", Requests: int64(objects),
		PerSecond: float64(objects) / time.Since(start).Seconds(), RSSBytes: c.rssBytes(), Note: "objects"})
	if err := churnFleet(ctx, c, &o, r); err != nil {
		return nil, err
	}
	if o.Target == "" && o.Servers == 1 {
		if err := restartFleet(ctx, c, r); err != nil {
			return nil, err
		}
	}
	o.Connections = 64
	return r, r.AddFloors(ctx, &o.Options)
}

// churnFleet flips checks at the asked rate while health queries run beside them.
func churnFleet(ctx context.Context, c *Target, o *FleetOptions, r *Result) error {
	o.Say("flipping %d checks a second for %s beside health queries ...", o.ChangesPerSecond, o.Duration)
	var wg sync.WaitGroup
	var flips *LoadResult
	var flipErr error
	const writers = 4
	pace := time.Duration(writers) * time.Second / time.Duration(o.ChangesPerSecond)
	wg.Go(func() {
		flips, flipErr = RunLoad(ctx, LoadSpec{Addr: c.HTTP, Connections: writers, Duration: o.Duration, Pace: pace,
			Next: func(_ int, n int64) []byte {
				var b bytes.Buffer
				b.WriteByte('[')
				status := "warning"
				if n%2 == 1 {
					status = "passing"
				}
				fleetCheck(&b, rand.IntN(o.Nodes), rand.IntN(fleetChecksPerNode), status)
				b.WriteByte(']')
				return Request("PUT", c.HTTP, "/v1/txn", o.Token, b.Bytes())
			}})
	})
	reads, readErr := RunLoad(ctx, LoadSpec{Addr: c.HTTP, Connections: o.Connections, Duration: o.Duration,
		Next: func(int, int64) []byte {
			path := "/v1/health/service/" + fleetService(rand.IntN(o.Nodes), rand.IntN(fleetInstancesPerNode)) + "?passing"
			return Request("GET", c.HTTP, path, o.Token, nil)
		}})
	wg.Wait()
	if err := errors.Join(flipErr, readErr); err != nil {
		return err
	}
	flipRow := flips.Row("check flips (txn)", "")
	flipRow.RSSBytes = c.rssBytes()
	r.Rows = append(r.Rows, flipRow, reads.Row(fmt.Sprintf("health queries beside them -c%d", o.Connections), FloorHTTP))
	return nil
}

// restartFleet kills the server and times it until a write is acknowledged again.
func restartFleet(ctx context.Context, c *Target, r *Result) error {
	s := c.Servers[0]
	fromLog, err := restartOnce(ctx, c, s)
	if err != nil {
		return fmt.Errorf("restart from the log: %w", err)
	}
	r.Rows = append(r.Rows, Row{What: "kill -9 to writable, from the log",
		Millis:   map[string]float64{"max": fromLog.Seconds() * 1000},
		RSSBytes: s.RSS()})
	s.Args = append(s.Args, "-hcl", `raft_snapshot_threshold = 1 raft_snapshot_interval = "1s" raft_trailing_logs = 1`)
	if _, err := restartOnce(ctx, c, s); err != nil {
		return fmt.Errorf("restart to make a snapshot: %w", err)
	}
	snapshotTaken := func(status int, body string) bool {
		return status == 200 && strings.Contains(body, `"last_snapshot_index"`) &&
			!strings.Contains(body, `"last_snapshot_index":"0"`)
	}
	if err := WaitHTTP(ctx, s.Process, s.HTTP, "/v1/agent/self", snapshotTaken); err != nil {
		return fmt.Errorf("wait for a snapshot: %w", err)
	}
	fromSnapshot, err := restartOnce(ctx, c, s)
	if err != nil {
		return fmt.Errorf("restart from the snapshot: %w", err)
	}
	r.Rows = append(r.Rows, Row{What: "kill -9 to writable, from a snapshot",
		Millis: map[string]float64{"max": fromSnapshot.Seconds() * 1000}, RSSBytes: s.RSS()})
	return nil
}

func restartOnce(ctx context.Context, c *Target, s *harness.Server) (time.Duration, error) {
	s.Kill()
	start := time.Now()
	if err := s.Start(); err != nil {
		return 0, err
	}
	raw := Request("PUT", s.HTTP, "/v1/kv/bench/restart", c.Opts.Token, []byte("up"))
	for {
		if conn, err := DialWire(ctx, s.HTTP, 4096); err == nil {
			r, err := conn.Do(raw, true, 5*time.Second)
			_ = conn.Close()
			if err == nil && r.Status == 200 {
				return time.Since(start), nil
			}
		}
		select {
		case <-s.Ended():
			return 0, fmt.Errorf("the server ended: %w\n%s", s.Err(), s.Log())
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
		if time.Since(start) > time.Minute {
			return 0, fmt.Errorf("no write was acknowledged within a minute\n%s", s.Log())
		}
	}
}
