package jobsagentplane

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"corbel.dev/corbel/jobs/client/allocnet"
	"corbel.dev/corbel/jobs/client/allocrunner"
	"corbel.dev/corbel/jobs/client/cninet"
	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/jobs/client/hostnet"
	"corbel.dev/corbel/jobs/client/nodeclient"
	"corbel.dev/corbel/node/plane"
)

// networks are hostnet's, with the drivers that hold some of them.
type networks struct {
	*hostnet.Host
	drivers map[string]driver.Driver
}

var _ allocrunner.Networks = networks{}

// openNetworks is what gives allocations networks of their own; nil where the agent is not root.
func openNetworks(d *plane.Doors, k *Keys, dir string, drivers map[string]driver.Driver) (nodeclient.Networks, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	cfg := hostnet.Config{Dir: filepath.Join(dir, "state", "networks"), Bridge: k.Network.Bridge,
		Hairpin: k.Network.Hairpin, Log: d.Log.With("plane", "jobs"),
		CNI: cninet.Config{Path: k.Network.CNIPath, Dir: k.Network.CNIDir, Cache: filepath.Join(dir, "state", "cni")}}
	if k.Network.Subnet != "" {
		var err error
		if cfg.Subnet, err = netip.ParsePrefix(k.Network.Subnet); err != nil {
			return nil, fmt.Errorf("bridge_network_subnet: %w", err)
		}
	}
	h, err := hostnet.Open(cfg)
	if err != nil {
		return nil, err
	}
	return networks{h, drivers}, nil
}

// Join implements allocrunner.Networks: the first driver of containers holds the network.
func (n networks) Join(ctx context.Context, w *allocnet.Want, holders []driver.Driver) (*allocnet.Made, error) {
	for _, d := range holders {
		if h, ok := d.(hostnet.Holder); ok {
			return n.Host.Join(ctx, w, h)
		}
	}
	return n.Host.Join(ctx, w, nil)
}

// Leave implements allocrunner.Networks.
func (n networks) Leave(ctx context.Context, alloc string) error {
	return n.Host.Leave(ctx, alloc, n.release)
}

// Keep implements nodeclient.Networks.
func (n networks) Keep(ctx context.Context, allocs []string) { n.Host.Keep(ctx, allocs, n.release) }

// release has whoever held a network let go. An Engine that is away has no container to release, or not now.
func (n networks) release(ctx context.Context, alloc string) error {
	var wrong []error
	for _, d := range n.drivers {
		h, ok := d.(hostnet.Holder)
		if !ok {
			continue
		}
		if err := h.Release(ctx, alloc); err == nil {
			return nil
		} else {
			wrong = append(wrong, err)
		}
	}
	return errors.Join(wrong...)
}
