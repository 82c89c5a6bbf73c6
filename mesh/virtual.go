package mesh

import (
	"encoding/json"
	"net/netip"
	"slices"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/errkind"
)

// Virtual is by which addresses callers mean a service when their traffic is redirected to their proxy.
type Virtual struct {
	Service   string
	Addresses []string // in order
}

// virtualTags are the tagged addresses that are a whole service's: the first is given by operators, the second by
// platforms.
var virtualTags = []string{"consul-virtual", "virtual"}

// Virtual lists the addresses of a virtual subject, as the service's instances and their proxies are registered with
// them, and as an operator gave them to it.
func (m *Maker) Virtual(s Subject) *Virtual {
	v := &Virtual{Service: s.Service, Addresses: []string{}}
	add := func(text string) {
		if addr, err := netip.ParseAddr(text); err == nil && !addr.IsUnspecified() && addr.Zone() == "" {
			v.Addresses = append(v.Addresses, addr.Unmap().String())
		}
	}
	for s := range m.State.Instances(s.Service) {
		for _, tag := range virtualTags {
			add(s.TaggedAddresses[tag].Address)
		}
	}
	for s := range m.State.ConnectInstances(s.Service) {
		for _, tag := range virtualTags {
			add(s.TaggedAddresses[tag].Address)
		}
	}
	for _, ip := range m.manualIPs("", s.Service) {
		add(ip)
	}
	slices.Sort(v.Addresses)
	v.Addresses = slices.Compact(v.Addresses)
	return v
}

// manualIPs are the addresses that a service was given.
func (m *Maker) manualIPs(peer, service string) []string {
	if m.State == nil {
		return nil
	}
	return catalog.ManualIPsOf(m.State, peer, service).IPs
}

// Encode is what ReadVirtual reads.
func (v *Virtual) Encode() ([]byte, error) { return encodeValue("virtual", v) }

// ReadVirtual reads the value of a virtual subject.
func ReadVirtual(body []byte) (*Virtual, error) {
	v := &Virtual{}
	if err := json.Unmarshal(body, v); err != nil {
		return nil, badValue("virtual", err)
	}
	if v.Service == "" {
		return nil, badValue("virtual", errkind.New(errkind.Corrupt, "the service is missing"))
	}
	for _, a := range v.Addresses {
		if _, err := netip.ParseAddr(a); err != nil {
			return nil, badValue("virtual", err)
		}
	}
	return v, nil
}
