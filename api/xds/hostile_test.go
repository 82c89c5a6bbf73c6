package xds

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/api/xds/h2"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/mesh"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
)

// A good client beside a bad one hears of each change; the bad one holds a bounded amount.
func TestOneBadClientHarmsItselfAlone(t *testing.T) {
	big := func(version string) *mesh.Resource {
		return encoded(mesh.TypeEndpoints, "db", version, make([]byte, 100_000))
	}
	for name, misbehave := range map[string]func(t *testing.T, conn *grpc.ClientConn, address string){
		"never acknowledges": func(t *testing.T, conn *grpc.ClientConn, _ string) {
			openDelta(t, conn, "web-1").subscribe(mesh.TypeEndpoints, "db")
		},
		"acknowledges what was not sent": func(t *testing.T, conn *grpc.ClientConn, _ string) {
			d := openDelta(t, conn, "web-1")
			d.subscribe(mesh.TypeEndpoints, "db")
			for n := range 300 {
				d.send(&discovery.DeltaDiscoveryRequest{TypeUrl: mesh.TypeEndpoints.URL(),
					ResponseNonce: fmt.Sprintf("%x", 0x5000+n)})
			}
		},
		"floods with requests": func(t *testing.T, conn *grpc.ClientConn, _ string) {
			d := openDelta(t, conn, "web-1")
			d.subscribe(mesh.TypeEndpoints, "db")
			for n := range 4 * idleBurst {
				if d.stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: mesh.TypeEndpoints.URL(),
					ResourceNamesSubscribe: []string{fmt.Sprint("x", n%500)}}) != nil {
					break // it was ended
				}
			}
			if got := d.code(); got != codes.ResourceExhausted {
				t.Errorf("a flood ended with %v", got)
			}
		},
		"names more than there can be": func(t *testing.T, conn *grpc.ClientConn, _ string) {
			d := openDelta(t, conn, "web-1")
			var names []string
			for n := range 9000 {
				names = append(names, fmt.Sprint("x", n))
			}
			d.subscribe(mesh.TypeEndpoints, names...)
			if got := d.code(); got != codes.InvalidArgument {
				t.Errorf("too many names ended with %v", got)
			}
		},
		"opens streams without end": func(t *testing.T, conn *grpc.ClientConn, _ string) {
			for range 300 {
				ctx, cancel := context.WithCancel(background(t))
				if stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx); err == nil {
					_ = stream.Send(&discovery.DeltaDiscoveryRequest{Node: node("web-1", 40), TypeUrl: mesh.TypeEndpoints.URL()})
				}
				cancel()
			}
		},
		"never reads": func(t *testing.T, _ *grpc.ClientConn, address string) {
			nc, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = nc.Close() })
			p := &peer{streams: 18}
			_, _ = nc.Write(p.hello(t))
		},
	} {
		t.Run(name, func(t *testing.T) {
			plane := newTable()
			p := plane.add("web-1", big("0"))
			plane.add("proxy", big("0"))
			s, address := serve(t, Config{Plane: plane, Transport: h2.Config{MaxStreamsPerConn: 100}})
			good := openDelta(t, dial(t, address), "web-1")
			good.subscribe(mesh.TypeEndpoints, "db")
			good.expect("endpoints db@0")
			bad := dial(t, address)
			misbehave(t, bad, address)
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for n := range 50 {
				p.put(big(fmt.Sprint(n + 1)))
				good.expect(fmt.Sprintf("endpoints db@%d", n+1))
			}
			p.mu.Lock()
			p.reports = nil // they keep the resources
			p.mu.Unlock()
			runtime.GC()
			runtime.ReadMemStats(&after)
			if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 3<<20 {
				t.Errorf("the heap grew by %d bytes over 50 changes of 100 kB", grown)
			}
			_ = bad.Close()
			_ = good.stream.CloseSend()
			_ = good.code()
			if name != "never reads" { // its connection is closed with the test
				polltest.Within(t, patience, func() bool { return s.grpc.Streams() == 0 && p.bound() == 0 },
					"all streams are forgotten")
			}
		})
	}
}

func TestOpenDoesNotHoldUpTheConnection(t *testing.T) {
	plane := newTable()
	plane.gate = make(chan struct{})
	plane.add("web-1", small(mesh.TypeCluster, "db", "1"))
	s, address := serve(t, Config{Plane: plane, OpenWorkers: 2})
	conn := dial(t, address)
	var waiting []*delta
	for range 20 {
		d := openDelta(t, conn, "web-1")
		d.subscribe(mesh.TypeCluster)
		waiting = append(waiting, d)
	}
	// The same connection's other calls are served meanwhile.
	if got := openDelta(t, conn, "").codeAfter(
		&discovery.DeltaDiscoveryRequest{TypeUrl: mesh.TypeCluster.URL()}); got != codes.InvalidArgument {
		t.Errorf("a stream without a node: %v", got)
	}
	polltest.Within(t, patience, func() bool { return s.grpc.Streams() == 20 }, "all streams wait")
	close(plane.gate)
	for _, d := range waiting {
		d.expect("clusters db@1")
	}
}

func (d *delta) codeAfter(r *discovery.DeltaDiscoveryRequest) codes.Code {
	d.begun = true
	d.send(r)
	return d.code()
}

func TestOpenEndsWithItsDeadline(t *testing.T) {
	plane := newTable()
	plane.gate = make(chan struct{})
	_, address := serve(t, Config{Plane: plane, OpenTimeout: 50 * time.Millisecond})
	d := openDelta(t, dial(t, address), "web-1")
	d.subscribe(mesh.TypeCluster)
	if got := d.code(); got != codes.Unavailable {
		t.Errorf("got %v", got)
	}
}

func TestOverTLS(t *testing.T) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"server"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}},
		NextProtos: []string{"h2", "http/1.1"}}
	plane := newTable()
	p := plane.add("web-1", small(mesh.TypeCluster, "db", "1"))
	_, address := serve(t, Config{Plane: plane}, func(l net.Listener) net.Listener { return tls.NewListener(l, cfg) })
	conn := dial(t, address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})))
	d := openDelta(t, conn, "web-1")
	d.subscribe(mesh.TypeCluster)
	d.expect("clusters db@1")
	p.put(encoded(mesh.TypeCluster, "db", "2", []byte(strings.Repeat("\x0a\x00", 200_000))))
	d.expect("clusters db@2")
	nc, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(patience))
	if n, err := nc.Read(make([]byte, 1)); err == nil {
		t.Errorf("HTTP/1.1 was answered with %d bytes", n)
	}
}

// Streams come and go, in the middle of everything, while the sets change: nothing
// is left behind, nobody waits for another, and who stays has the newest.
func TestComingAndGoing(t *testing.T) {
	plane := newTable()
	p := plane.add("web-1", small(mesh.TypeEndpoints, "db", "0"), small(mesh.TypeCluster, "db", "0"))
	s, address := serve(t, Config{Plane: plane, OpenWorkers: 3})
	stays := openDelta(t, dial(t, address), "web-1")
	stays.subscribe(mesh.TypeEndpoints, "db")
	stop := make(chan struct{})
	var all, changes sync.WaitGroup
	last := 0
	changes.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			last++
			p.put(small(mesh.TypeEndpoints, "db", fmt.Sprint(last)), small(mesh.TypeCluster, "db", fmt.Sprint(last)))
			runtime.Gosched()
		}
	})
	for n := range 8 {
		conn := dial(t, address)
		all.Go(func() {
			for round := range 25 {
				ctx, cancel := context.WithCancel(background(t))
				stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
				if err != nil {
					t.Error(err)
					cancel()
					return
				}
				_ = stream.Send(&discovery.DeltaDiscoveryRequest{Node: node("web-1", 40), TypeUrl: mesh.TypeEndpoints.URL(),
					ResourceNamesSubscribe: []string{"db"}})
				_ = stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: mesh.TypeCluster.URL()})
				for range (n + round) % 5 {
					if r, err := stream.Recv(); err == nil {
						_ = stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce})
					}
				}
				if round%3 == 0 {
					_ = stream.CloseSend()
				}
				cancel()
			}
		})
	}
	for range 200 {
		r, _ := stays.next()
		stays.send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce})
	}
	all.Wait()
	close(stop)
	changes.Wait()
	p.put(small(mesh.TypeEndpoints, "db", "last"))
	for said := ""; said != "endpoints db@last"; {
		var r *discovery.DeltaDiscoveryResponse
		r, said = stays.next()
		stays.send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce})
	}
	polltest.Within(t, patience, func() bool { return s.grpc.Streams() == 1 && p.bound() == 1 },
		"the others are forgotten")
}
