// Package cacheruns has the scenario of the usage plane's cache: keys on several hosts, of which one after the other is
// killed or rolled, while clients write and read. An answer that is older than one that a client had before is wrong.
package cacheruns

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
	"corbel.dev/corbel/kit/testport"
	faultrun "corbel.dev/corbel/test/fault"
)

// Cache is a run.
type Cache struct {
	Cycles int
	Keys   int  // default 2,000
	Roll   bool // hosts end by SIGTERM, one after the other, not by kill -9
	TLS    bool // of the cache's ports
	// Pace is how long clients rest after each call; zero is not at all.
	Pace time.Duration
}

// Report tells what a run did.
type Report struct {
	Cycles, Writes, Reads int
	// Hits and Misses are of the keys that nobody writes any more, after each host that went.
	Hits, Misses, Wrong int
	// Failed are the calls of clients that were not answered, First is what became of the first of them.
	Failed int
	First  string
	// Gone are the times from the end of a host until all keys were answered again.
	Gone []time.Duration
}

// patience is how long one thing may take on a busy machine.
const patience = 2 * time.Minute

// run is a run under way.
type run struct {
	cfg   Cache
	c     *faultrun.Cluster
	ports []int
	mu    sync.Mutex // guards report
	report
}

type report = Report

// Run does cycles on one cluster of three servers.
func Run(ctx context.Context, l *faultrun.Lab, cfg Cache, seed uint64) (Report, error) {
	if cfg.Keys == 0 {
		cfg.Keys = 2000
	}
	r := &run{cfg: cfg}
	ports, err := testport.Free(3)
	if err != nil {
		return r.report, err
	}
	r.ports = ports
	secure := ""
	if cfg.TLS {
		if secure, err = certificate(l.Dir); err != nil {
			return r.report, err
		}
	}
	r.c, err = l.Open(ctx, harness.Config{Servers: 3, Each: func(_ *harness.Server, i int) []string {
		return []string{secure, fmt.Sprintf(
			"usage { own_planes = false, cache { port = %d, cluster = true, alone_after = \"20s\" } }", ports[i])}
	}})
	if err != nil {
		return r.report, err
	}
	defer r.c.Close()
	if err := r.cycles(ctx, seed); err != nil {
		return r.report, fmt.Errorf("cycle %d: %w\n%s", r.Cycles+1, errors.Join(err, r.c.Damage()), r.c.Logs())
	}
	return r.report, r.c.Damage()
}

func (r *run) cycles(ctx context.Context, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 23))
	if err := r.copied(ctx); err != nil {
		return err
	}
	own := r.client()
	defer own.close()
	for i := range r.cfg.Keys {
		if err := own.until(ctx, "SET", fmt.Sprint("k", i), strconv.Itoa(i)); err != nil {
			return err
		}
	}
	for range r.cfg.Cycles {
		until, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() { r.load(until, fmt.Sprint("w", r.Cycles, "-", i)) })
		}
		victim := rng.IntN(len(r.ports))
		if r.cfg.Roll {
			victim = r.Cycles % len(r.ports)
		}
		err := r.cycle(ctx, own, victim)
		cancel()
		wg.Wait()
		if err != nil {
			return err
		}
		r.Cycles++
	}
	return nil
}

// cycle has one host go, judges what the others have, and brings it back.
func (r *run) cycle(ctx context.Context, own *client, victim int) error {
	s, began := r.c.Servers[victim], time.Now()
	if r.cfg.Roll {
		if err := s.Stop(); err != nil {
			return err
		}
	} else {
		s.Kill()
	}
	if err := r.judge(ctx, own); err != nil {
		return err
	}
	r.Gone = append(r.Gone, time.Since(began))
	if err := r.c.Start(); err != nil {
		return err
	}
	if err := r.c.Ready(ctx, harness.StartLimit); err != nil {
		return err
	}
	if err := r.copied(ctx); err != nil {
		return err
	}
	return r.judge(ctx, own)
}

// judge reads all keys.
func (r *run) judge(ctx context.Context, own *client) error {
	for i := range r.cfg.Keys {
		key := fmt.Sprint("k", i)
		var text []byte
		err := spawn.Until(ctx, patience, key, func() (err error) {
			text, err = own.get(key)
			return err
		})
		if err != nil {
			return err
		}
		switch string(text) {
		case strconv.Itoa(i):
			r.Hits++
		case "":
			r.Misses++
		default:
			r.Wrong++
			return fmt.Errorf("%s is %q: nobody wrote that", key, text)
		}
	}
	return nil
}

// load writes a key, and reads it, as two clients do.
func (r *run) load(ctx context.Context, key string) {
	var told, tried atomic.Int64
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		c := r.client()
		defer c.close()
		for n := int64(1); ctx.Err() == nil; n++ {
			tried.Store(n)
			if err := c.set(key, strconv.FormatInt(n, 10)); err != nil {
				r.failed(ctx, err)
				_ = spawn.Sleep(ctx, 20*time.Millisecond)
				continue
			}
			told.Store(n)
			r.note(func(o *Report) { o.Writes++ })
			r.rest(ctx)
		}
	})
	c := r.client()
	defer c.close()
	for ctx.Err() == nil {
		before := told.Load()
		text, err := c.get(key)
		if err != nil {
			r.failed(ctx, err)
			_ = spawn.Sleep(ctx, 20*time.Millisecond)
			continue
		}
		n, _ := strconv.ParseInt(string(text), 10, 64) // nothing is a miss
		r.note(func(o *Report) {
			if o.Reads++; n != 0 && (n < before || n > tried.Load()) {
				o.Wrong++
			}
		})
		r.rest(ctx)
	}
}

// rest is what a client does between two calls.
func (r *run) rest(ctx context.Context) {
	if r.cfg.Pace > 0 {
		_ = spawn.Sleep(ctx, r.cfg.Pace)
	}
}

func (r *run) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	r.note(func(o *Report) {
		if o.Failed++; o.First == "" {
			o.First = fmt.Sprintf("cycle %d: %v", o.Cycles+1, err)
		}
	})
}

func (r *run) note(f func(*Report)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.report)
}

// copied waits until each host has two others that have copies of its keys, and miss nothing.
func (r *run) copied(ctx context.Context) error {
	c := r.client()
	defer c.close()
	return spawn.Until(ctx, patience, "copies of all keys", func() error {
		for _, port := range r.ports {
			text, err := c.ask(address(port), "INFO")
			if err != nil {
				return err
			}
			if !contains(text.Text, "connected_slaves:2") {
				return fmt.Errorf("port %d: %s", port, text.Text)
			}
		}
		return nil
	})
}

// certificate makes a certificate that nobody checks, and returns the configuration that has it.
func certificate(dir string) (string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		return "", err
	}
	shape := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	made, err := x509.CreateCertificate(crand.Reader, shape, shape, key.Public(), key)
	if err != nil {
		return "", err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", err
	}
	names := [2]string{filepath.Join(dir, "cache-cert.pem"), filepath.Join(dir, "cache-key.pem")}
	for i, block := range []*pem.Block{{Type: "CERTIFICATE", Bytes: made}, {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(names[i], pem.EncodeToMemory(block), 0o600); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("tls { https { cert_file = %q, key_file = %q } }", names[0], names[1]), nil
}
