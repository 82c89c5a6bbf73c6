package probe

import (
	"cmp"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/safchain/ethtool"

	"corbel.dev/corbel/kit/qdisc"
	"corbel.dev/corbel/kit/sockets"
	"corbel.dev/corbel/telemetry"
)

// cards reads what the drivers of the network cards count.
func (h *Host) cards(r *telemetry.Registry) error {
	var all map[string]map[string]uint64
	var err error
	if h.Cards != nil {
		all = h.Cards()
	}
	if all == nil {
		all, err = h.drivers()
	}
	for nic, counters := range all {
		queues := 0
		for name, v := range counters {
			switch queue, isQueue := transmitQueue(name); {
			case strings.HasSuffix(name, "_allowance_exceeded"):
				h.add(r, float64(v), "host.nic.exceeded", "nic", nic, "allowance", name)
			case isQueue && queues < 64:
				queues++
				h.add(r, float64(v), "host.nic.queue_packets", "nic", nic, "queue", queue)
			case name == qdiscDropped:
				h.add(r, float64(v), "host.qdisc.dropped", "nic", nic)
			case name == qdiscRequeued:
				h.add(r, float64(v), "host.qdisc.requeued", "nic", nic)
			case isRingDrop(name):
				h.add(r, float64(v), "host.nic.dropped", "nic", nic, "counter", name)
			}
		}
	}
	return err
}

// transmitQueues are how drivers call the packets that one transmit queue sent: ena and virtio, mlx5, ixgbe and i40e,
// gve.
var transmitQueues = regexp.MustCompile(
	`^(?:queue_(\d+)_tx_cnt|tx_queue_(\d+)_packets|tx(\d+)_packets|tx-(\d+)\.packets|tx_packets\[(\d+)\])$`)

func transmitQueue(name string) (string, bool) {
	m := transmitQueues.FindStringSubmatch(name)
	if m == nil {
		return "", false
	}
	return strings.Join(m[1:], ""), true
}

// isRingDrop reports whether a counter says that the card's ring was full.
func isRingDrop(name string) bool {
	switch name {
	case "rx_missed_errors", "rx_no_buffer_count", "rx_out_of_buffer", "rx_fifo_errors", "rx_drops", "rx_overruns":
		return true
	}
	return false
}

// What the kernel's traffic scheduler counts stands beside the drivers' counters, under these names.
const qdiscDropped, qdiscRequeued = "qdisc_dropped", "qdisc_requeued"

// drivers asks the driver of each card that is up and no loopback. A driver without counters has the kernel's own.
func (h *Host) drivers() (map[string]map[string]uint64, error) {
	nics, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	et, err := ethtool.NewEthtool()
	if err != nil {
		return nil, err
	}
	defer et.Close()
	out := map[string]map[string]uint64{}
	scheduled, problem := qdisc.Read()
	for _, nic := range nics {
		if nic.Flags&net.FlagLoopback != 0 || nic.Flags&net.FlagUp == 0 || len(out) >= 16 {
			continue
		}
		counters, err := et.Stats(nic.Name)
		if err != nil || counters == nil {
			counters = map[string]uint64{}
		}
		for _, name := range []string{"rx_missed_errors", "rx_fifo_errors"} {
			if b, err := os.ReadFile(filepath.Join(h.Sys, "class/net", nic.Name, "statistics", name)); err == nil {
				if v, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64); err == nil {
					counters[name] = max(counters[name], v)
				}
			}
		}
		if c, ok := scheduled[nic.Index]; ok {
			counters[qdiscDropped], counters[qdiscRequeued] = c.Dropped, c.Requeued
		}
		out[nic.Name] = counters
	}
	return out, problem
}

// peerCount is what all connections with one peer have in common.
type peerCount struct {
	name           string
	segments, lost float64 // since they were last counted
}

// peers asks the kernel about the TCP connections of this process's ports.
func (h *Host) peers(r *telemetry.Registry) error {
	if h.Ports == nil {
		return nil
	}
	ports := make([]uint16, 0, 8)
	for _, p := range h.Ports() {
		ports = append(ports, uint16(p))
	}
	counts := map[string]*peerCount{}
	low, high := h.portRange()
	dialed := map[netip.AddrPort]int{} // local ports in use, by whom they are used towards
	if high > 0 {
		err := sockets.Each(sockets.Which{From: uint16(low), To: uint16(high)}, func(s *sockets.Socket) {
			if s.Remote.Port() != 0 && !slices.Contains(ports, s.Local.Port()) {
				dialed[s.Remote]++
			}
		})
		if err != nil {
			return err
		}
	}
	if len(ports) > 0 {
		err := sockets.Each(sockets.Which{Ports: ports, Figures: true}, func(s *sockets.Socket) {
			if s.Remote.Addr().IsLoopback() {
				s.Resent = 0 // a loopback loses nothing: what is sent again there waited for the CPU
			}
			if s.Remote.Port() != 0 {
				h.countSocket(counts, s)
			}
		})
		if err != nil {
			return err
		}
	}
	most := 0
	for _, n := range dialed {
		most = max(most, n)
	}
	if high > low {
		r.Gauge("host.ports.used").Set(float64(most) / float64(high-low+1))
	}
	h.tellPeers(r, counts)
	return nil
}

// maxServices bounds the ports of services that the kernel is asked about.
const maxServices = 64

// services asks the kernel about the TCP connections of this host's services, those that they dial with their own port
// left out: who loses packets is told by service and not by address alone.
func (h *Host) services(r *telemetry.Registry) error {
	if h.Services == nil {
		return nil
	}
	names := h.Services()
	var ports []uint16
	for _, port := range slices.Sorted(maps.Keys(names)) {
		if len(ports) < maxServices {
			ports = append(ports, port)
		}
	}
	if len(ports) == 0 {
		return nil
	}
	counts := map[string]*peerCount{}
	err := sockets.Each(sockets.Which{Ports: ports, Figures: true}, func(s *sockets.Socket) {
		name, mine := names[s.Local.Port()]
		if !mine || s.Remote.Port() == 0 {
			return
		}
		if s.Remote.Addr().IsLoopback() {
			s.Resent = 0
		}
		h.countAs(counts, name, "service ", s)
	})
	for _, c := range counts {
		r.Counter("host.tcp.service_segments", "service", c.name).Add(uint64(c.segments))
		r.Counter("host.tcp.service_retransmits", "service", c.name).Add(uint64(c.lost))
	}
	return err
}

// countSocket adds what one connection sent since it was last seen; sockets come and go, so their own totals are
// followed.
func (h *Host) countSocket(counts map[string]*peerCount, s *sockets.Socket) {
	name, ip := "", s.Remote.Addr().String()
	if h.Peer != nil {
		name = h.Peer(ip, int(s.Remote.Port()))
	}
	if name == "" {
		name = ip
	}
	h.countAs(counts, name, "socket ", s)
}

func (h *Host) countAs(counts map[string]*peerCount, name, of string, s *sockets.Socket) {
	c := counts[name]
	if c == nil {
		c = &peerCount{name: name}
		counts[name] = c
	}
	key := of + strconv.FormatUint(s.Cookie, 36)
	newSent, known := h.grew(key+"s", float64(s.Out))
	newLost, _ := h.grew(key+"r", float64(s.Resent))
	if !known { // it is new: all of it is
		newSent, newLost = float64(s.Out), float64(s.Resent)
	}
	c.segments += max(newSent, 0)
	c.lost += max(newLost, 0)
}

// tellPeers gives the peers that lose most series of their own, and joins the rest.
func (h *Host) tellPeers(r *telemetry.Registry, counts map[string]*peerCount) {
	all := make([]*peerCount, 0, len(counts))
	for _, c := range counts {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *peerCount) int {
		return cmp.Or(-cmp.Compare(a.lost, b.lost), -cmp.Compare(a.segments, b.segments), cmp.Compare(a.name, b.name))
	})
	for i, c := range all {
		name := c.name
		if i >= topPeers {
			name = "others"
		}
		r.Counter("host.tcp.segments", "peer", name).Add(uint64(c.segments))
		r.Counter("host.tcp.retransmits", "peer", name).Add(uint64(c.lost))
	}
}

// portRange are the ports that the kernel gives to those who dial; zeros where it does not say. They run out for each
// address that is dialed on its own.
func (h *Host) portRange() (low, high int) {
	b, err := os.ReadFile(h.Proc + "/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return 0, 0
	}
	f := strings.Fields(string(b))
	if len(f) != 2 {
		return 0, 0
	}
	low, err1 := strconv.Atoi(f[0])
	high, err2 := strconv.Atoi(f[1])
	if err1 != nil || err2 != nil {
		return 0, 0
	}
	return low, high
}
