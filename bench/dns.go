package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/net/ipv4"
)

// DNSOptions are the options of the DNS bench.
type DNSOptions struct {
	Options
	// Instances of the service that is asked for.
	Instances int
}

// dnsWindow is how many queries one socket keeps in flight; one system call sends or takes many.
const dnsWindow = 32

// RunDNS measures A queries for one service over UDP, like dnsperf: a fixed
// number of queries in flight on each socket, lost ones sent again after a second.
func RunDNS(ctx context.Context, o DNSOptions) (*Result, error) {
	if o.Instances == 0 {
		o.Instances = 10
	}
	if o.Connections == 0 {
		o.Connections = 4
	}
	if err := o.Complete(); err != nil {
		return nil, err
	}
	if o.Target != "" && o.DNSTarget == "" {
		return nil, errors.New("--dns-target: give the DNS address that goes with --target")
	}
	c, err := OpenTarget(ctx, &o.Options)
	if err != nil {
		return nil, err
	}
	defer c.Stop()
	if err := fillService(ctx, c, watchedService, 1<<20, o.Instances); err != nil {
		return nil, err
	}
	r := NewResult("dns", &o.Options)
	o.Say("asking over %d sockets for %s ...", o.Connections, o.Duration)
	load, err := dnsLoad(ctx, c.dns, o.Connections, o.Duration)
	if err != nil {
		return nil, err
	}
	row := load.Row(fmt.Sprintf("DNS A %s.service.consul, %d instances", watchedService, o.Instances), "")
	row.RSSBytes = c.rssBytes()
	r.Rows = append(r.Rows, row)
	o.Connections = 64
	return r, r.AddFloors(ctx, &o.Options)
}

func dnsLoad(ctx context.Context, addr string, sockets int, d time.Duration) (*LoadResult, error) {
	total := &LoadResult{Hist: NewHistogram()}
	var mu sync.Mutex
	var wg sync.WaitGroup
	start := time.Now()
	for range sockets {
		wg.Go(func() {
			part, err := dnsSocket(ctx, addr, start.Add(d))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				total.FirstError = errors.Join(total.FirstError, err)
				return
			}
			total.Requests += part.Requests
			total.Errors += part.Errors
			total.Hist.Merge(part.Hist)
		})
	}
	wg.Wait()
	total.seconds = time.Since(start).Seconds()
	if total.FirstError == nil && total.Requests == 0 {
		total.FirstError = errors.New("no query was answered")
	}
	return total, total.FirstError
}

// dnsQuestion is a query for the watched service's A records, with EDNS so that all instances fit.
func dnsQuestion() []byte {
	q := []byte{0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1}
	for _, label := range []string{watchedService, "service", "consul"} {
		q = append(append(q, byte(len(label))), label...)
	}
	q = append(q, 0, 0, 1, 0, 1)
	return append(q, 0, 0, 41, 0x10, 0, 0, 0, 0, 0, 0, 0)
}

func dnsSocket(ctx context.Context, addr string, end time.Time) (*LoadResult, error) {
	part := &LoadResult{Hist: NewHistogram()}
	d := net.Dialer{}
	nc, err := d.DialContext(ctx, "udp", addr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = nc.Close() }()
	pc := ipv4.NewPacketConn(nc.(*net.UDPConn))
	var sent [1 << 16]time.Time
	var id uint16
	out, in := make([]ipv4.Message, dnsWindow), make([]ipv4.Message, dnsWindow)
	for i := range dnsWindow {
		out[i].Buffers = [][]byte{dnsQuestion()}
		in[i].Buffers = [][]byte{make([]byte, 4096)}
	}
	due := dnsWindow
	for time.Now().Before(end) && ctx.Err() == nil {
		now := time.Now()
		for i := range due {
			id++
			binary.BigEndian.PutUint16(out[i].Buffers[0], id)
			sent[id] = now
		}
		for done := 0; done < due; {
			n, err := pc.WriteBatch(out[done:due], 0)
			if err != nil {
				return nil, err
			}
			done += n
		}
		if err := nc.SetReadDeadline(now.Add(time.Second)); err != nil {
			return nil, err
		}
		n, err := pc.ReadBatch(in, 0)
		var timeout net.Error
		switch {
		case errors.As(err, &timeout) && timeout.Timeout():
			part.Errors += dnsWindow // a whole window was lost
			due = dnsWindow
			continue
		case err != nil:
			return nil, err
		}
		due = n
		countAnswers(part, in[:n], &sent)
	}
	return part, nil
}

// countAnswers takes an answer as good when it is NOERROR with at least one record.
func countAnswers(part *LoadResult, in []ipv4.Message, sent *[1 << 16]time.Time) {
	now := time.Now()
	for i := range in {
		p := in[i].Buffers[0][:in[i].N]
		part.Requests++
		if len(p) < 12 || p[3]&0x0f != 0 || binary.BigEndian.Uint16(p[6:]) == 0 {
			part.Errors++
			continue
		}
		Record(part.Hist, now.Sub(sent[binary.BigEndian.Uint16(p)]))
	}
}
