package uplink

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"corbel.dev/corbel/kit/qdisc"
)

// Read asks the kernel about the card that has an IP address. An address that no card has, as behind a translation of
// addresses, is that of a card that nothing is known of.
func Read(addr string) State {
	nic := find(addr)
	if nic == nil {
		return State{}
	}
	s := read("/sys/class/net/" + nic.Name)
	if scheduled, err := qdisc.Read(); err == nil { // without it there is less to see
		s.Dropped += scheduled[nic.Index].Dropped
	}
	return s
}

func find(addr string) *net.Interface {
	want, err := netip.ParseAddr(addr)
	if err != nil {
		return nil
	}
	nics, err := net.Interfaces()
	if err != nil {
		return nil
	}
	for i := range nics {
		addrs, err := nics[i].Addrs()
		for _, a := range addrs {
			if has, wrong := netip.ParsePrefix(a.String()); err == nil && wrong == nil &&
				has.Addr().Unmap() == want.Unmap().WithZone("") {
				return &nics[i]
			}
		}
	}
	return nil
}

// dropped are the kernel's counters of packets that found no room. Its rx_dropped has what nobody asked for, too.
var dropped = []string{"tx_dropped", "tx_fifo_errors", "rx_missed_errors", "rx_fifo_errors"}

// megabit is the unit of the kernel's speed, in bytes a second.
const megabit = 1e6 / 8

// read reads the folder of a card.
func read(dir string) (s State) {
	if v, ok := number(filepath.Join(dir, "speed")); ok {
		s.Speed = float64(v) * megabit
	}
	for _, name := range dropped {
		v, _ := number(filepath.Join(dir, "statistics", name))
		s.Dropped += v
	}
	return s
}

// number reads a file with a number. The kernel says -1, or nothing, of what it does not know.
func number(file string) (uint64, bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	v, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	const unknown = 1<<32 - 1 // SPEED_UNKNOWN, where a driver has it without its sign
	return v, err == nil && v != unknown
}
