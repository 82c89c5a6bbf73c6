package member

import (
	"fmt"
	"log"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"
)

// Network is the memory twin of the sockets: Pools with the same Network see each
// other and nobody else. Its zero value is ready.
type Network struct{ net memberlist.MockNetwork }

// openTransport opens sockets, or a place in the Network, and tells the port.
func openTransport(cfg Config, host string, port int, logger *log.Logger) (memberlist.NodeAwareTransport, int, error) {
	var t memberlist.NodeAwareTransport
	if cfg.Network != nil {
		mock := cfg.Network.net.NewTransport(cfg.Name)
		_, p, err := mock.FinalAdvertiseAddr("", 0)
		if err != nil {
			return nil, 0, err
		}
		t, port = mock, p
	} else {
		sockets, err := openSockets(host, port, logger)
		if err != nil {
			return nil, 0, err
		}
		t, port = sockets, sockets.GetAutoBindPort()
	}
	if cfg.Faults != nil {
		t = newFaultyTransport(t, cfg.Faults)
	}
	return t, port, nil
}

func openSockets(host string, port int, logger *log.Logger) (t *memberlist.NetTransport, err error) {
	conf := &memberlist.NetTransportConfig{BindAddrs: []string{host}, BindPort: port, Logger: logger}
	// A free port is chosen for TCP first and may be taken for UDP.
	for range 10 {
		if t, err = memberlist.NewNetTransport(conf); err == nil || port != 0 {
			break
		}
	}
	if err != nil && strings.Contains(err.Error(), syscall.EADDRINUSE.Error()) {
		return nil, fmt.Errorf("%v: %w", err, syscall.EADDRINUSE) // memberlist keeps the text alone
	}
	return t, err
}

// faultyTransport asks the fault hook about packets and streams. A hold drops a
// packet (UDP has no other way to be late that gossip would notice) and delays a
// dial. It exists only while a process is armed.
type faultyTransport struct {
	memberlist.NodeAwareTransport
	ask     func(op, peer string) (time.Duration, error)
	packets chan *memberlist.Packet
	streams chan net.Conn
	done    chan struct{}
	once    sync.Once
	wg      sync.WaitGroup
}

func newFaultyTransport(t memberlist.NodeAwareTransport,
	ask func(op, peer string) (time.Duration, error)) *faultyTransport {
	f := &faultyTransport{NodeAwareTransport: t, ask: ask, packets: make(chan *memberlist.Packet),
		streams: make(chan net.Conn), done: make(chan struct{})}
	f.wg.Go(f.filterPackets)
	f.wg.Go(f.filterStreams)
	return f
}

func (f *faultyTransport) lost(op, peer string) bool {
	hold, err := f.ask(op, peer)
	return err != nil || hold != 0
}

func (f *faultyTransport) filterPackets() {
	for {
		select {
		case <-f.done:
			return
		case p := <-f.NodeAwareTransport.PacketCh():
			if f.lost("read", p.From.String()) {
				continue
			}
			select {
			case f.packets <- p:
			case <-f.done:
				return
			}
		}
	}
}

func (f *faultyTransport) filterStreams() {
	for {
		select {
		case <-f.done:
			return
		case conn := <-f.NodeAwareTransport.StreamCh():
			if f.lost("read", conn.RemoteAddr().String()) {
				conn.Close()
				continue
			}
			select {
			case f.streams <- conn:
			case <-f.done:
				conn.Close()
				return
			}
		}
	}
}

// PacketCh implements memberlist.Transport.
func (f *faultyTransport) PacketCh() <-chan *memberlist.Packet { return f.packets }

// StreamCh implements memberlist.Transport.
func (f *faultyTransport) StreamCh() <-chan net.Conn { return f.streams }

// WriteToAddress implements memberlist.NodeAwareTransport.
func (f *faultyTransport) WriteToAddress(b []byte, addr memberlist.Address) (time.Time, error) {
	if f.lost("write", addr.Addr) {
		return time.Now(), nil
	}
	return f.NodeAwareTransport.WriteToAddress(b, addr)
}

// WriteTo implements memberlist.Transport.
func (f *faultyTransport) WriteTo(b []byte, addr string) (time.Time, error) {
	return f.WriteToAddress(b, memberlist.Address{Addr: addr})
}

// DialAddressTimeout implements memberlist.NodeAwareTransport.
func (f *faultyTransport) DialAddressTimeout(addr memberlist.Address, timeout time.Duration) (net.Conn, error) {
	for until := time.Now().Add(timeout); ; {
		hold, err := f.ask("dial", addr.Addr)
		if err != nil {
			return nil, err
		}
		if hold == 0 || time.Now().After(until) {
			break
		}
		t := time.NewTimer(min(max(hold, 20*time.Millisecond), time.Until(until)))
		select {
		case <-t.C:
		case <-f.done:
		}
		t.Stop()
		if hold > 0 {
			break
		}
	}
	return f.NodeAwareTransport.DialAddressTimeout(addr, timeout)
}

// DialTimeout implements memberlist.Transport.
func (f *faultyTransport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return f.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

// Shutdown implements memberlist.Transport. The filters go on until the sockets
// are closed, which waits for what they still deliver.
func (f *faultyTransport) Shutdown() error {
	f.once.Do(func() { close(f.done) })
	f.wg.Wait()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		f.NodeAwareTransport.Shutdown()
	}()
	for {
		select {
		case <-f.NodeAwareTransport.PacketCh():
		case conn := <-f.NodeAwareTransport.StreamCh():
			conn.Close()
		case <-drained:
			return nil
		}
	}
}
