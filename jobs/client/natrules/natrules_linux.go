package natrules

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Rules are the rules of one bridge.
type Rules struct {
	bridge string
	subnet netip.Prefix
	table  *nftables.Table
	ports  *nftables.Set
}

// Published is a port of the host and where it leads, for TCP and UDP. IPv4 alone.
type Published struct{ Host, Inside netip.AddrPort }

// New makes rules and touches nothing.
func New(bridge string, subnet netip.Prefix) *Rules {
	r := &Rules{bridge: bridge, subnet: subnet.Masked(),
		table: &nftables.Table{Family: nftables.TableFamilyIPv4, Name: "corbel_" + bridge}}
	r.ports = &nftables.Set{Table: r.table, Name: "published", IsMap: true, Concatenation: true,
		KeyType:  nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeInetProto, nftables.TypeInetService),
		DataType: nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeInetService)}
	return r
}

// Table is the table's name, in the family ip.
func (r *Rules) Table() string { return r.table.Name }

// Probe returns why there can be no rules here, or nil.
func (r *Rules) Probe() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	_, err = c.ListTablesOfFamily(r.table.Family)
	return err
}

// Stand reports whether the table with its map is there.
func (r *Rules) Stand() bool {
	c, err := nftables.New()
	if err != nil {
		return false
	}
	_, err = c.GetSetByName(r.table, r.ports.Name)
	return err == nil
}

// batch bounds the elements of a message to the kernel: it has to fit into a socket's buffer.
const batch = 256

// Replace makes the table, or makes it anew, with these ports published.
func (r *Rules) Replace(list []Published) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	c.AddTable(r.table) // one must be there to be deleted
	c.DelTable(r.table)
	c.AddTable(r.table)
	if err := c.AddSet(r.ports, nil); err != nil {
		return err
	}
	r.chains(c)
	first := list[:min(len(list), batch)]
	if err := c.SetAddElements(r.ports, elements(first)); err != nil {
		return err
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("nftables: table ip %s: %w", r.table.Name, err)
	}
	return r.Add(list[len(first):])
}

// Add publishes ports beside those that are.
func (r *Rules) Add(list []Published) error {
	for len(list) > 0 {
		n := min(len(list), batch)
		c, err := nftables.New()
		if err != nil {
			return err
		}
		if err := c.SetAddElements(r.ports, elements(list[:n])); err != nil {
			return err
		}
		if err := c.Flush(); err != nil {
			return fmt.Errorf("nftables: publish %s: %w", list[0].Host, err)
		}
		list = list[n:]
	}
	return nil
}

// Remove ends that ports are published. One that is not, is not an error.
func (r *Rules) Remove(list []Published) error {
	for len(list) > 0 {
		n := min(len(list), batch)
		err := r.unpublish(elements(list[:n]))
		if errors.Is(err, unix.ENOENT) { // one that is missing keeps all that go with it
			for _, e := range elements(list[:n]) {
				if err = r.unpublish([]nftables.SetElement{e}); err != nil && !errors.Is(err, unix.ENOENT) {
					break
				}
				err = nil
			}
		}
		if err != nil {
			return fmt.Errorf("nftables: unpublish %s: %w", list[0].Host, err)
		}
		list = list[n:]
	}
	return nil
}

func (r *Rules) unpublish(all []nftables.SetElement) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	if err := c.SetDeleteElements(r.ports, all); err != nil {
		return err
	}
	return c.Flush()
}

// Drop deletes the table; one that is not there is not an error.
func (r *Rules) Drop() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	c.AddTable(r.table)
	c.DelTable(r.table)
	if err := c.Flush(); err != nil {
		return fmt.Errorf("nftables: delete table ip %s: %w", r.table.Name, err)
	}
	return nil
}

// elements are the map's: address, protocol and port, each in words of four bytes.
func elements(list []Published) (all []nftables.SetElement) {
	for _, p := range list {
		for _, proto := range []byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
			key := append(p.Host.Addr().Unmap().AsSlice(), proto, 0, 0, 0)
			all = append(all, nftables.SetElement{Key: append(key, port(p.Host)...),
				Val: append(p.Inside.Addr().Unmap().AsSlice(), port(p.Inside)...)})
		}
	}
	return all
}

func port(a netip.AddrPort) []byte { return append(binary.BigEndian.AppendUint16(nil, a.Port()), 0, 0) }

// Registers of four bytes, as a concatenation takes them one after the other.
const (
	reg0 = unix.NFT_REG32_00
	reg1 = unix.NFT_REG32_01
	reg2 = unix.NFT_REG32_02
)

// chains adds the rules.
func (r *Rules) chains(c *nftables.Conn) {
	chain := func(name string, kind nftables.ChainType, hook *nftables.ChainHook, prio *nftables.ChainPriority) func(
		...expr.Any) {
		made := c.AddChain(&nftables.Chain{Table: r.table, Name: name, Type: kind, Hooknum: hook, Priority: prio})
		return func(e ...expr.Any) { c.AddRule(&nftables.Rule{Table: r.table, Chain: made, Exprs: e}) }
	}
	guard := chain("guard", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityRaw)
	guard(join(r.from(), destination(true, loopback), verdict(expr.VerdictDrop))...)

	for name, hook := range map[string]*nftables.ChainHook{"prerouting": nftables.ChainHookPrerouting,
		"output": nftables.ChainHookOutput} {
		chain(name, nftables.ChainTypeNAT, hook, nftables.ChainPriorityNATDest)(r.inwards()...)
	}
	post := chain("postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource)
	masquerade := []expr.Any{&expr.Masq{}}
	// An allocation that reaches another, or itself, by the host's address has to be answered through the host.
	post(join(source(true, r.subnet), destination(true, r.subnet), translated(), masquerade)...)
	// So has what comes from the host's loopback: no namespace answers there.
	post(join(source(true, loopback), r.to(expr.CmpOpEq), masquerade)...)
	post(join(source(true, r.subnet), destination(false, r.subnet), destination(false, multicast), r.to(expr.CmpOpNeq),
		masquerade)...)
}

var (
	loopback  = netip.MustParsePrefix("127.0.0.0/8")
	multicast = netip.MustParsePrefix("224.0.0.0/4")
)

// inwards looks address, protocol and port of a packet up, and sends it where the map says.
func (r *Rules) inwards() []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: reg0, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg1},
		&expr.Payload{DestRegister: reg2, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Lookup{SourceRegister: reg0, DestRegister: reg0, IsDestRegSet: true, SetName: r.ports.Name, SetID: r.ports.ID},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: reg0, RegProtoMin: reg1,
			Specified: true},
	}
}

func join(parts ...[]expr.Any) (all []expr.Any) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func verdict(kind expr.VerdictKind) []expr.Any { return []expr.Any{&expr.Verdict{Kind: kind}} }

// device compares the name of an interface.
func device(key expr.MetaKey, op expr.CmpOp, name string) []expr.Any {
	data := make([]byte, unix.IFNAMSIZ)
	copy(data, name)
	return []expr.Any{&expr.Meta{Key: key, Register: 1}, &expr.Cmp{Op: op, Register: 1, Data: data}}
}

func (r *Rules) from() []expr.Any { return device(expr.MetaKeyIIFNAME, expr.CmpOpEq, r.bridge) }

func (r *Rules) to(op expr.CmpOp) []expr.Any { return device(expr.MetaKeyOIFNAME, op, r.bridge) }

func source(is bool, p netip.Prefix) []expr.Any { return address(12, is, p) }

func destination(is bool, p netip.Prefix) []expr.Any { return address(16, is, p) }

// address compares the network of an address in the packet's header.
func address(offset uint32, is bool, p netip.Prefix) []expr.Any {
	mask := binary.BigEndian.AppendUint32(nil, ^uint32(0)<<(32-p.Bits()))
	op := expr.CmpOpNeq
	if is {
		op = expr.CmpOpEq
	}
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: mask, Xor: make([]byte, 4)},
		&expr.Cmp{Op: op, Register: 1, Data: p.Masked().Addr().AsSlice()},
	}
}

// statusDNAT is IPS_DST_NAT of the kernel's nf_conntrack_common.h.
const statusDNAT = 1 << 5

// translated is what was led elsewhere on its way.
func translated() []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATUS, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(statusDNAT),
			Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}
}
