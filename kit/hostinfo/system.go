package hostinfo

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Facts are what monitoring tells of a host. What the system does not say is empty.
type Facts struct {
	Hostname, OS, Platform, Family, Version, Arch string
	ARMVersion                                    int32
	LibC                                          string // glibc or musl
	VMSystem, VMRole                              string // kvm and guest, for instance
	FloatType                                     string // of ARM and MIPS: hardfloat or softfloat
	Interfaces                                    []Interface
}

// Interface is a network interface with its addresses in CIDR form.
type Interface struct {
	Name, MAC string
	Addresses []string
}

// ReadFacts reads them anew; networks says whether the interfaces are wanted too.
func ReadFacts(networks bool) Facts {
	f := Facts{OS: runtime.GOOS, Arch: runtime.GOARCH, LibC: libc()}
	f.Hostname, _ = os.Hostname() // empty where there is none
	release := osRelease()
	f.Platform, f.Version = release["ID"], release["VERSION_ID"]
	f.Family = family(f.Platform, release["ID_LIKE"])
	f.VMSystem, f.VMRole = virtual()
	if runtime.GOARCH == "arm" {
		f.FloatType, f.ARMVersion = "softfloat", armVersion()
		if matches("/lib/ld-linux-armhf*") {
			f.FloatType = "hardfloat"
		}
	}
	if networks {
		f.Interfaces = interfaces()
	}
	return f
}

func osRelease() map[string]string {
	out := map[string]string{}
	for line := range strings.SplitSeq(readSmall("/etc/os-release"), "\n") {
		if key, value, ok := strings.Cut(line, "="); ok {
			out[key] = strings.Trim(value, `"'`)
		}
	}
	return out
}

// families are those whose members do not name them first.
var families = map[string]string{
	"debian": "debian", "ubuntu": "debian", "linuxmint": "debian", "raspbian": "debian",
	"rhel": "rhel", "centos": "rhel", "rocky": "rhel", "almalinux": "rhel", "ol": "rhel", "amzn": "rhel",
	"scientific": "rhel",
	"fedora":     "fedora", "sles": "suse", "opensuse": "suse", "opensuse-leap": "suse", "opensuse-tumbleweed": "suse",
	"arch": "arch", "manjaro": "arch", "alpine": "alpine", "gentoo": "gentoo",
}

// family is the name that operators filter by: debian of Ubuntu, rhel of Rocky Linux.
func family(id, like string) string {
	if f := families[id]; f != "" {
		return f
	}
	for word := range strings.FieldsSeq(like) {
		if f := families[word]; f != "" {
			return f
		}
	}
	return id
}

func matches(pattern string) bool {
	found, err := filepath.Glob(pattern)
	return err == nil && len(found) > 0
}

func libc() string {
	switch {
	case matches("/lib/ld-musl-*"):
		return "musl"
	case matches("/lib*/ld-linux*"), matches("/lib/*/ld-linux*"), matches("/lib*/ld64.so*"):
		return "glibc"
	}
	return ""
}

func armVersion() int32 {
	all, err := colonTable("/proc/cpuinfo")
	if err != nil || len(all) == 0 {
		return 0
	}
	if v := all[0]["CPU architecture"]; v != "" && '5' <= v[0] && v[0] <= '9' {
		return int32(v[0] - '0')
	}
	return 0
}

// hypervisors are told by what the firmware says of the machine.
var hypervisors = []struct{ word, name string }{
	{"kvm", "kvm"}, {"qemu", "kvm"}, {"google", "kvm"}, {"amazon ec2", "kvm"}, {"vmware", "vmware"},
	{"virtualbox", "vbox"}, {"innotek", "vbox"},
	{"xen", "xen"}, {"parallels", "parallels"}, {"virtual machine", "hyperv"}, {"bhyve", "bhyve"},
	{"openstack", "openstack"},
}

func virtual() (system, role string) {
	if _, err := os.Stat("/.dockerenv"); err == nil {
		return "docker", "guest"
	}
	text := strings.ToLower(firstLine("/sys/class/dmi/id/sys_vendor") + " " + firstLine("/sys/class/dmi/id/product_name"))
	for _, h := range hypervisors {
		if strings.Contains(text, h.word) {
			return h.name, "guest"
		}
	}
	if firstLine("/sys/hypervisor/type") == "xen" {
		return "xen", "guest"
	}
	if modules := readSmall("/proc/modules"); strings.Contains(modules, "\nkvm ") || strings.HasPrefix(modules, "kvm ") {
		return "kvm", "host"
	}
	return "", ""
}

// Cloud tells whose cloud the firmware says that this machine is in: EC2, GCP, Azure, or nothing. It asks nobody over
// the network.
func Cloud() string {
	vendor := firstLine("/sys/class/dmi/id/sys_vendor")
	const azureTag = "7783-7084-3265-9085-8269-3286-77"
	switch {
	case strings.HasPrefix(vendor, "Amazon"), strings.HasPrefix(strings.ToLower(firstLine("/sys/hypervisor/uuid")), "ec2"):
		return "EC2"
	case strings.HasPrefix(vendor, "Google"):
		return "GCP"
	case firstLine("/sys/class/dmi/id/chassis_asset_tag") == azureTag:
		return "Azure"
	}
	return ""
}

func interfaces() (out []Interface) {
	list, err := net.Interfaces()
	if err != nil {
		return nil
	}
	for _, i := range list {
		one := Interface{Name: i.Name, MAC: i.HardwareAddr.String(), Addresses: []string{}}
		addresses, err := i.Addrs()
		if err != nil {
			continue // it went away
		}
		for _, a := range addresses {
			one.Addresses = append(one.Addresses, a.String())
		}
		slices.Sort(one.Addresses)
		out = append(out, one)
	}
	return out
}
