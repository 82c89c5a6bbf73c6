package bench

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"corbel.dev/corbel/kit/testport"
)

// Names of the floors that rows relate to.
const (
	FloorHTTP  = "bare net/http"
	floorFsync = "fsync"
)

// Floors are what this machine can do at best; a figure means little without them.
type Floors struct {
	// FsyncPerSecond counts 4 KiB appends, each followed by fsync, to a growing file.
	FsyncPerSecond float64 `json:"fsync_per_second"`
	// FsyncPreallocatedPerSecond is the same into a file whose blocks exist already.
	FsyncPreallocatedPerSecond float64 `json:"fsync_preallocated_per_second"`
	// HTTPPerSecond counts requests to a bare net/http server in a process of its own.
	HTTPPerSecond   float64 `json:"http_per_second"`
	HTTPConnections int     `json:"http_connections"`
	// GRPCPerSecond counts unary loopback calls from 64 goroutines on one connection.
	GRPCPerSecond float64 `json:"grpc_per_second"`
}

func (f *Floors) Text() string {
	return fmt.Sprintf("floors of this machine: fsync of 4 KiB appends %.0f/s (preallocated %.0f/s), "+
		"bare net/http at %d connections %.0f/s, loopback gRPC %.0f calls/s\n",
		f.FsyncPerSecond, f.FsyncPreallocatedPerSecond, f.HTTPConnections, f.HTTPPerSecond, f.GRPCPerSecond)
}

const floorTime = 2 * time.Second

// MeasureFloors measures this machine's floors in about eight seconds, at o.Connections for HTTP.
func MeasureFloors(ctx context.Context, o *Options) (*Floors, error) {
	if err := o.Complete(); err != nil {
		return nil, err
	}
	o.Say("measuring this machine's floors ...")
	f := &Floors{HTTPConnections: o.Connections}
	var err error
	if f.FsyncPerSecond, err = fsyncFloor(ctx, false); err != nil {
		return nil, err
	}
	if f.FsyncPreallocatedPerSecond, err = fsyncFloor(ctx, true); err != nil {
		return nil, err
	}
	if f.HTTPPerSecond, err = httpFloor(ctx, o); err != nil {
		return nil, err
	}
	if f.GRPCPerSecond, err = grpcFloor(ctx); err != nil {
		return nil, err
	}
	return f, nil
}

// RunFloor is `corbel bench floor`.
func RunFloor(ctx context.Context, o Options) (*Result, error) {
	if err := o.Complete(); err != nil {
		return nil, err
	}
	o.SkipFloors = false
	r := NewResult("floor", &o)
	r.Target = "this machine"
	return r, r.AddFloors(ctx, &o)
}

func fsyncFloor(ctx context.Context, preallocated bool) (perSecond float64, err error) {
	dir, err := os.MkdirTemp("", "corbel-floor")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	file, err := os.Create(filepath.Join(dir, "append"))
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }()
	block := make([]byte, 4096)
	if preallocated {
		zeroes := make([]byte, 1<<20)
		for range 256 {
			if _, err := file.Write(zeroes); err != nil {
				return 0, err
			}
		}
		if err := file.Sync(); err != nil {
			return 0, err
		}
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return 0, err
		}
	}
	start, count := time.Now(), 0
	for time.Since(start) < floorTime && ctx.Err() == nil {
		if preallocated && count%65536 == 65535 {
			if _, err := file.Seek(0, io.SeekStart); err != nil {
				return 0, err
			}
		}
		if _, err := file.Write(block); err != nil {
			return 0, err
		}
		if err := file.Sync(); err != nil {
			return 0, err
		}
		count++
	}
	return float64(count) / time.Since(start).Seconds(), ctx.Err()
}

// ServeHello serves the bare net/http answer that the HTTP floor is measured
// with, on addr, until ctx ends. It writes its address to out.
func ServeHello(ctx context.Context, addr string, out io.Writer) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	srv := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello, world\n") })}
	_, _ = fmt.Fprintf(out, "%s\n", l.Addr())
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { _ = srv.Close(); close(done) })
	err = srv.Serve(l)
	if !stop() {
		<-done
		return nil
	}
	return err
}

func httpFloor(ctx context.Context, o *Options) (float64, error) {
	addr, err := FreeAddr()
	if err != nil {
		return 0, err
	}
	p, err := StartProcess(o.Binary, []string{"bench", "hello", "--addr", addr}, os.TempDir())
	if err != nil {
		return 0, err
	}
	defer p.Kill()
	if err := WaitHTTP(ctx, p, addr, "/", OK); err != nil {
		return 0, err
	}
	raw := Request("GET", addr, "/", "", nil)
	load, err := RunLoad(ctx, LoadSpec{Addr: addr, Connections: o.Connections, Duration: floorTime,
		Warmup: 500 * time.Millisecond, Next: func(int, int64) []byte { return raw }})
	if err != nil {
		return 0, err
	}
	return float64(load.Requests) / load.seconds, nil
}

// helloHealth answers health checks: the smallest real gRPC service there is.
type helloHealth struct {
	healthpb.UnimplementedHealthServer
}

// Check implements grpc.health.v1.
func (helloHealth) Check(context.Context, *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, nil
}

func grpcFloor(ctx context.Context) (float64, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	srv := grpc.NewServer()
	healthpb.RegisterHealthServer(srv, helloHealth{})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	defer func() { srv.Stop(); <-served }()
	cc, err := grpc.NewClient("passthrough:///"+l.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return 0, err
	}
	defer func() { _ = cc.Close() }()
	client := healthpb.NewHealthClient(cc)
	ctx, cancel := context.WithTimeout(ctx, floorTime)
	defer cancel()
	counts := make(chan int64, 64)
	start := time.Now()
	for range cap(counts) {
		go func() {
			var n int64
			for ctx.Err() == nil {
				if _, err := client.Check(ctx, &healthpb.HealthCheckRequest{}); err == nil {
					n++
				}
			}
			counts <- n
		}()
	}
	var total int64
	for range cap(counts) {
		total += <-counts
	}
	return float64(total) / time.Since(start).Seconds(), nil
}

// FreeAddr returns a loopback address whose port is free.
func FreeAddr() (string, error) {
	ports, err := testport.Free(1)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0]), nil
}
