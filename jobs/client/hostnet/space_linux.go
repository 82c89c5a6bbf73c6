package hostnet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"

	"corbel.dev/corbel/jobs/client/allocnet"
	"corbel.dev/corbel/jobs/client/cninet"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// namespace has the namespace at m.Path, and reports whether it is a new one.
func (h *Host) namespace(ctx context.Context, m *allocnet.Made, holder Holder) (fresh bool, err error) {
	if isNamespace(m.Path) {
		return false, nil
	}
	if _, err := netlink.LinkByName(m.Outside); m.Outside != "" && err == nil {
		return false, fmt.Errorf("the allocation's namespace lives, and is not at %s: the agent has mounts of its own, such "+
			"as systemd's PrivateTmp= gives, which end with it", m.Path)
	}
	if err := os.MkdirAll(filepath.Dir(m.Path), 0o755); err != nil {
		return true, err
	}
	from := ""
	if holder != nil {
		if from, m.Holder, err = holder.Hold(ctx, m.Alloc, m.Hostname); err != nil {
			return true, err
		}
		if err := h.store(m); err != nil {
			return true, err
		}
	}
	if err := makeNamespace(m.Path, from); err != nil {
		return true, err
	}
	return true, inside(m.Path, func(n *netlink.Handle) error {
		lo, err := n.LinkByName("lo")
		if err != nil {
			return err
		}
		return n.LinkSetUp(lo)
	})
}

func isNamespace(path string) bool {
	var s unix.Statfs_t
	return unix.Statfs(path, &s) == nil && s.Type == unix.NSFS_MAGIC
}

// makeNamespace makes a new namespace, or takes that of a file, and keeps it at path.
func makeNamespace(path, from string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY|unix.O_NOFOLLOW, 0o444)
	if err != nil {
		return err
	}
	_ = f.Close()
	if from != "" {
		return bindNamespace(from, path)
	}
	result := make(chan error, 1)
	go func() {
		// The thread is in another namespace from here on: it is not unlocked, and ends with the goroutine.
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			result <- fmt.Errorf("new network namespace: %w", err)
			return
		}
		result <- bindNamespace(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), path)
	}()
	return <-result
}

func bindNamespace(from, path string) error {
	if err := unix.Mount(from, path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("keep the namespace %s at %s: %w", from, path, err)
	}
	return nil
}

// removeNamespace undoes makeNamespace; one that is not there is not an error.
func removeNamespace(path string) error {
	for isNamespace(path) {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// inside calls f with what speaks to the kernel from within a namespace.
func inside(path string, f func(*netlink.Handle) error) error {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	handle, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink in %s: %w", path, err)
	}
	defer handle.Close()
	return f(handle)
}

// Counters are what an allocation's interfaces counted, loopback aside.
func (h *Host) Counters(alloc string) (c allocnet.Counters, err error) {
	m := h.Made(alloc)
	if m == nil {
		return c, fs.ErrNotExist
	}
	err = inside(m.Path, func(n *netlink.Handle) error {
		links, err := n.LinkList()
		if err != nil {
			return err
		}
		for _, l := range links {
			a := l.Attrs()
			if s := a.Statistics; s != nil && a.Flags&unix.IFF_LOOPBACK == 0 && a.RawFlags&unix.IFF_LOOPBACK == 0 {
				c.RxBytes += s.RxBytes
				c.RxPackets += s.RxPackets
				c.RxErrors += s.RxErrors
				c.RxDropped += s.RxDropped
				c.TxBytes += s.TxBytes
				c.TxPackets += s.TxPackets
				c.TxErrors += s.TxErrors
				c.TxDropped += s.TxDropped
			}
		}
		return nil
	})
	return c, err
}

// attachment is how CNI plug-ins are asked about an allocation.
func attachment(name string, m *allocnet.Made) *cninet.Attachment {
	return &cninet.Attachment{Network: name, Alloc: m.Alloc, Path: m.Path, Interface: allocnet.Interface, Args: m.Args,
		Ports: m.Ports}
}

// unplug has plug-ins forget what they made in a namespace that is gone. What fails is theirs to find.
func (h *Host) unplug(ctx context.Context, name string, m *allocnet.Made) {
	if err := h.cni.Del(ctx, attachment(name, m)); err != nil {
		h.cfg.Log.Warn("CNI plug-ins do not let go of a network that is gone", "alloc", m.Alloc, "error", err)
	}
	m.Address, m.Interface, m.FoundDNS = netip.Addr{}, "", allocnet.DNS{}
}

// plug has CNI plug-ins connect an allocation, once.
func (h *Host) plug(ctx context.Context, name string, m *allocnet.Made) error {
	if m.Interface != "" { // they did
		return nil
	}
	a, err := h.cni.Add(ctx, attachment(name, m))
	if err != nil {
		return err
	}
	m.Address, m.Interface, m.FoundDNS = a.Address, a.Interface, a.DNS
	return nil
}
