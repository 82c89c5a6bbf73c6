package hostnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"corbel.dev/corbel/jobs/client/allocnet"
	"corbel.dev/corbel/kit/errkind"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// ours is the alias of a bridge that this package made, and may delete.
const ours = "corbel jobs"

// connect has the bridge, the cable of an allocation, and its ports.
func (h *Host) connect(m *allocnet.Made) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	bridge, err := h.bridge()
	if err != nil {
		return errkind.E(errkind.Unavailable, "bridge "+h.cfg.Bridge, err)
	}
	if err := h.cable(bridge, m); err != nil {
		return errkind.E(errkind.Unavailable, "cable of the allocation", err)
	}
	if h.stand {
		if err := h.rules.Add(portsOf(m)); err == nil {
			return nil
		}
	}
	if err := h.rules.Replace(h.published()); err != nil {
		return errkind.E(errkind.Unavailable, "", err)
	}
	h.stand = true
	return nil
}

// bridge has the bridge with the gateway's address, and lets it forward.
func (h *Host) bridge() (netlink.Link, error) {
	gateway := netip.PrefixFrom(h.pool.Gateway(), h.cfg.Subnet.Bits())
	link, err := netlink.LinkByName(h.cfg.Bridge)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = h.cfg.Bridge, mtu()
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
			return nil, err
		}
		if link, err = netlink.LinkByName(h.cfg.Bridge); err == nil {
			err = netlink.LinkSetAlias(link, ours)
		}
	}
	if err != nil {
		return nil, err
	}
	if link.Type() != "bridge" {
		return nil, fmt.Errorf("%s is an interface of the kind %q: set jobs.agent.bridge_network_name", h.cfg.Bridge,
			link.Type())
	}
	addrs, err := netlink.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		return nil, err
	}
	has := slices.ContainsFunc(addrs, func(a netlink.Addr) bool { return a.IPNet.String() == gateway.String() })
	if !has && len(addrs) > 0 {
		return nil, fmt.Errorf("%s has the address %s already, and not %s: set jobs.agent.bridge_network_subnet or "+
			"bridge_network_name", h.cfg.Bridge, addrs[0].IPNet, gateway)
	}
	if !has {
		if err := netlink.AddrAdd(link, address(gateway)); err != nil {
			return nil, err
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return nil, err
	}
	for name, value := range map[string]string{"ip_forward": "1", "conf/" + h.cfg.Bridge + "/route_localnet": "1"} {
		if err := os.WriteFile("/proc/sys/net/ipv4/"+name, []byte(value), 0); err != nil {
			return nil, err
		}
	}
	return link, nil
}

func address(p netip.Prefix) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}}
}

// ethernet is the MTU where nothing says another.
const ethernet = 1500

// mtu is that of the way out: larger packets would have to be cut there.
func mtu() int {
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return ethernet
	}
	for _, r := range routes {
		if r.Dst != nil && !r.Dst.IP.IsUnspecified() {
			continue
		}
		if out, err := netlink.LinkByIndex(r.LinkIndex); err == nil && out.Attrs().MTU >= 576 {
			return min(out.Attrs().MTU, 65535)
		}
	}
	return ethernet
}

// cable leads from the bridge into the allocation's namespace.
func (h *Host) cable(bridge netlink.Link, m *allocnet.Made) error {
	ns, err := netns.GetFromPath(m.Path)
	if err != nil {
		return err
	}
	defer ns.Close()
	mac := allocnet.MAC(m.Address)
	link, err := netlink.LinkByName(m.Outside)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = m.Outside, bridge.Attrs().MTU
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: m.Interface, PeerHardwareAddr: mac[:],
			PeerNamespace: netlink.NsFd(int(ns)), PeerMTU: uint32(attrs.MTU)}); err != nil {
			return err
		}
		link, err = netlink.LinkByName(m.Outside)
	}
	if err != nil {
		return err
	}
	if err := netlink.LinkSetMaster(link, bridge); err != nil {
		return err
	}
	if err := netlink.LinkSetHairpin(link, h.cfg.Hairpin); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return err
	}
	return inside(m.Path, func(n *netlink.Handle) error {
		peer, err := n.LinkByName(m.Interface)
		if err != nil {
			return err
		}
		own := address(netip.PrefixFrom(m.Address, h.cfg.Subnet.Bits()))
		if err := n.AddrAdd(peer, own); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
		if err := n.LinkSetUp(peer); err != nil {
			return err
		}
		err = n.RouteAdd(&netlink.Route{LinkIndex: peer.Attrs().Index, Gw: h.pool.Gateway().AsSlice()})
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
		return nil
	})
}

// disconnect undoes connect, but for the bridge.
func (h *Host) disconnect(m *allocnet.Made) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var wrong []error
	if h.rules.Stand() {
		wrong = append(wrong, h.rules.Remove(portsOf(m)))
	}
	if link, err := netlink.LinkByName(m.Outside); err == nil {
		wrong = append(wrong, netlink.LinkDel(link))
	}
	h.forget(m)
	return errors.Join(wrong...)
}

// forget has the kernel forget connections to an address: datagrams of a client that goes on sending would be led to
// it for ever, also once the port belongs to another allocation.
func (h *Host) forget(m *allocnet.Made) {
	if len(m.Ports) == 0 {
		return
	}
	f := &netlink.ConntrackFilter{}
	if f.AddIP(netlink.ConntrackReplySrcIP, m.Address.AsSlice()) != nil {
		return
	}
	if _, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, unix.AF_INET, f); err != nil {
		h.cfg.Log.Debug("connections to an allocation that is over could not be ended", "alloc", m.Alloc, "error", err)
	}
}

// fold takes the bridge and its rules away when nobody hangs on it.
func (h *Host) fold() error {
	for _, m := range h.nets {
		if m.Mode == allocnet.BridgeMode {
			return nil
		}
	}
	link, err := netlink.LinkByName(h.cfg.Bridge)
	if err == nil && used(link) {
		return nil
	}
	h.stand = false
	wrong := h.rules.Drop()
	if err == nil && link.Attrs().Alias == ours {
		wrong = errors.Join(wrong, netlink.LinkDel(link))
	}
	return wrong
}

// used reports whether something hangs on a bridge: of another agent, or of somebody else.
func used(bridge netlink.Link) bool {
	all, err := netlink.LinkList()
	return err != nil || slices.ContainsFunc(all, func(l netlink.Link) bool {
		return l.Attrs().MasterIndex == bridge.Attrs().Index
	})
}
