// Package allocnet says what an allocation's own network is: its address, its ports, and the files that name them. It
// is pure: hostnet makes what it says.
//
// What always holds: an address of a Pool belongs to one allocation, and one that was given back is the last to be
// given again.
package allocnet

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"net/netip"
	"strings"

	"corbel.dev/corbel/kit/errkind"
)

// The modes of a group's network.
const (
	HostMode   = "host" // "" too
	BridgeMode = "bridge"
	NoneMode   = "none"
	CNIPrefix  = "cni/" // the name of a CNI network follows
)

// Interface is what an allocation's interface is called inside of its namespace.
const Interface = "eth0"

// Own reports whether a mode gives allocations a namespace of their own.
func Own(mode string) bool { return mode != "" && mode != HostMode }

// Want is what an allocation asks for.
type Want struct {
	Alloc    string // its id
	Mode     string // not host
	Hostname string
	DNS      DNS
	Ports    []Port
	// Args go to CNI plug-ins, beside those that name the job.
	Args map[string]string
}

// DNS is how names are resolved; the zero value is as the host does it.
type DNS struct{ Servers, Searches, Options []string }

// Given reports whether d says anything.
func (d *DNS) Given() bool { return len(d.Servers)+len(d.Searches)+len(d.Options) > 0 }

// Port leads from an address of the host into the namespace, for TCP and UDP.
type Port struct {
	Label  string
	HostIP netip.Addr
	Host   uint16
	Inside uint16
}

// Made is the network that an allocation has. It is stored before anything of it is there.
type Made struct {
	Want
	// Path is the namespace's file, on the host.
	Path string
	// Address is the allocation's, zero where it has none.
	Address   netip.Addr
	Interface string `json:",omitempty"`
	// Outside is the host's end of the cable.
	Outside string `json:",omitempty"`
	// Holder is what else keeps the namespace: the container of an Engine.
	Holder string `json:",omitempty"`
	// FoundDNS is what CNI plug-ins answered.
	FoundDNS DNS
	// Hosts and Resolv are files that tasks see as /etc/hosts and /etc/resolv.conf; "" shows them the host's.
	Hosts, Resolv string `json:",omitempty"`
}

// Resolution is what counts of the job's DNS and the network's.
func (m *Made) Resolution() DNS {
	if m.DNS.Given() {
		return m.DNS
	}
	return m.FoundDNS
}

// Counters are an interface's, as the allocation sees them.
type Counters struct {
	RxBytes, RxPackets, RxErrors, RxDropped uint64
	TxBytes, TxPackets, TxErrors, TxDropped uint64
}

// OutsideName is the name of the host's end of an allocation's cable: at most 15 bytes, the kernel's limit.
func OutsideName(alloc string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(alloc))
	return fmt.Sprintf("veth%010x", h.Sum64()&(1<<40-1))
}

// MAC is the hardware address of an address inside, so that a neighbour's memory of a former owner is no lie.
func MAC(a netip.Addr) [6]byte {
	ip := a.As4()
	return [6]byte{0x0a, 0x58, ip[0], ip[1], ip[2], ip[3]}
}

// Pool gives addresses of a subnet. The zero value has none. It is not safe for concurrent use.
type Pool struct {
	subnet netip.Prefix
	taken  map[netip.Addr]string // whose
	last   netip.Addr
}

// NewPool makes a pool of an IPv4 subnet that has at least one address beside the gateway's.
func NewPool(subnet netip.Prefix) (*Pool, error) {
	if !subnet.IsValid() || !subnet.Addr().Is4() || subnet.Bits() > 30 || subnet.Bits() < 8 {
		return nil, fmt.Errorf("%q is no IPv4 subnet of 8 to 30 bits", subnet)
	}
	p := &Pool{subnet: subnet.Masked(), taken: map[netip.Addr]string{}}
	p.last = p.Gateway()
	return p, nil
}

// Subnet is the pool's.
func (p *Pool) Subnet() netip.Prefix { return p.subnet }

// Gateway is the first address, which is the bridge's.
func (p *Pool) Gateway() netip.Addr { return p.subnet.Addr().Next() }

// broadcast is the last address.
func (p *Pool) broadcast() netip.Addr {
	a := p.subnet.Addr().As4()
	n := binary.BigEndian.Uint32(a[:]) | (1<<(32-p.subnet.Bits()) - 1)
	binary.BigEndian.PutUint32(a[:], n)
	return netip.AddrFrom4(a)
}

// Take gives an allocation an address: the next one after that which was given last.
func (p *Pool) Take(alloc string) (netip.Addr, error) {
	first, end := p.Gateway().Next(), p.broadcast()
	for a, tried := p.last.Next(), 0; tried <= 1<<(32-p.subnet.Bits()); a, tried = a.Next(), tried+1 {
		if !a.IsValid() || !a.Less(end) || a.Less(first) {
			a = first
		}
		if _, is := p.taken[a]; !is {
			p.taken[a], p.last = alloc, a
			return a, nil
		}
	}
	return netip.Addr{}, errkind.Errorf(errkind.Unavailable, "the subnet %s has no free address: "+
		"a larger bridge_network_subnet has more", p.subnet)
}

// Keep notes an address that an allocation has already. It reports whether it is the pool's and nobody else's.
func (p *Pool) Keep(alloc string, a netip.Addr) bool {
	owner, is := p.taken[a]
	if is && owner != alloc || !p.subnet.Contains(a) || a == p.Gateway() || a == p.subnet.Addr() || a == p.broadcast() {
		return false
	}
	p.taken[a] = alloc
	if p.last.Less(a) {
		p.last = a
	}
	return true
}

// Give takes an address back.
func (p *Pool) Give(a netip.Addr) { delete(p.taken, a) }

// HostsFile is /etc/hosts of an allocation.
func HostsFile(m *Made) string {
	var b strings.Builder
	b.WriteString("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n")
	name := m.Hostname
	if name == "" {
		name = m.Alloc[:min(12, len(m.Alloc))]
	}
	if m.Address.IsValid() {
		fmt.Fprintf(&b, "%s %s\n", m.Address, name)
	} else {
		fmt.Fprintf(&b, "127.0.1.1 %s\n", name)
	}
	return b.String()
}

// ResolvFile is /etc/resolv.conf: what d says, and of the host's file what it does not.
func ResolvFile(d DNS, host string) string {
	var b strings.Builder
	rest := func(word string) {
		for line := range strings.Lines(host) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == word {
				b.WriteString(strings.Join(f, " ") + "\n")
			}
		}
	}
	for _, s := range d.Servers {
		b.WriteString("nameserver " + s + "\n")
	}
	if len(d.Servers) == 0 {
		rest("nameserver")
	}
	if len(d.Searches) > 0 {
		b.WriteString("search " + strings.Join(d.Searches, " ") + "\n")
	} else {
		rest("search")
		rest("domain")
	}
	if len(d.Options) > 0 {
		b.WriteString("options " + strings.Join(d.Options, " ") + "\n")
	} else {
		rest("options")
	}
	return b.String()
}

// Loopback reports whether all name servers of a resolv.conf are the host's own, which a namespace does not reach.
func Loopback(resolv string) bool {
	some := false
	for line := range strings.Lines(resolv) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(f[1]); err != nil || !a.IsLoopback() {
			return false
		}
		some = true
	}
	return some
}
