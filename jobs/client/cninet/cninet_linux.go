package cninet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/jobs/client/allocnet"
	"corbel.dev/corbel/kit/errkind"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// Config is where networks and plug-ins are.
type Config struct {
	Path  string // folders of plug-ins, with colons between
	Dir   string // configurations: .conflist, .conf and .json
	Cache string
}

// Networks are the host's.
type Networks struct {
	cfg Config
	cni *libcni.CNIConfig
}

// New makes Networks and looks at nothing.
func New(cfg Config) *Networks {
	return &Networks{cfg: cfg, cni: libcni.NewCNIConfigWithCacheDir(filepath.SplitList(cfg.Path), cfg.Cache, nil)}
}

const (
	// addWithin bounds what plug-ins do for an allocation, versionWithin the question for their version.
	addWithin     = 60 * time.Second
	versionWithin = 5 * time.Second
	// maxPlugins bounds the files of a folder that are asked.
	maxPlugins = 100
)

// Found is what there is.
type Found struct {
	Names      []string          // of the networks that can be had, sorted
	Wrong      map[string]error  // by the name of a file or network
	Attributes map[string]string // plugins.cni.version.NAME
}

// Look looks for networks and plug-ins.
func (n *Networks) Look(ctx context.Context) *Found {
	f := &Found{Wrong: map[string]error{}, Attributes: map[string]string{}}
	if n.cfg.Path == "" {
		return f
	}
	asked := 0
	for _, dir := range filepath.SplitList(n.cfg.Path) {
		entries, _ := os.ReadDir(dir) // most hosts have none
		for _, e := range entries {
			if info, err := e.Info(); err != nil || info.IsDir() || info.Mode()&0o111 == 0 || asked >= maxPlugins {
				continue
			}
			asked++
			key := "plugins.cni.version." + e.Name()
			if version := versionOf(ctx, filepath.Join(dir, e.Name())); version != "" && f.Attributes[key] == "" {
				f.Attributes[key] = version
			}
		}
	}
	lists, wrong := n.lists()
	for name, err := range wrong {
		f.Wrong[name] = err
	}
	for name, list := range lists {
		if err := n.complete(list); err != nil {
			f.Wrong[name] = err
			continue
		}
		f.Names = append(f.Names, name)
	}
	slices.Sort(f.Names)
	return f
}

// complete returns which plug-in of a network is missing, or nil.
func (n *Networks) complete(list *libcni.NetworkConfigList) error {
	for _, p := range list.Plugins {
		kinds := []string{p.Network.Type}
		if ipam := p.Network.IPAM.Type; ipam != "" {
			kinds = append(kinds, ipam)
		}
		for _, kind := range kinds {
			if !n.has(kind) {
				return fmt.Errorf("the plug-in %q is not in %s: install it (package containernetworking-plugins), or set "+
					"jobs.agent.cni_path", kind, n.cfg.Path)
			}
		}
	}
	return nil
}

func (n *Networks) has(kind string) bool {
	return kind != "" && !strings.ContainsRune(kind, filepath.Separator) &&
		slices.ContainsFunc(filepath.SplitList(n.cfg.Path), func(dir string) bool {
			info, err := os.Stat(filepath.Join(dir, kind))
			return err == nil && !info.IsDir() && info.Mode()&0o111 != 0
		})
}

// lists reads the configurations, by the names of their networks. Of two with one name the first file's counts.
func (n *Networks) lists() (all map[string]*libcni.NetworkConfigList, wrong map[string]error) {
	all, wrong = map[string]*libcni.NetworkConfigList{}, map[string]error{}
	if n.cfg.Dir == "" {
		return all, wrong
	}
	files, err := libcni.ConfFiles(n.cfg.Dir, []string{".conflist", ".conf", ".json"})
	if err != nil {
		wrong[n.cfg.Dir] = err
	}
	slices.Sort(files)
	for _, file := range files {
		list, err := read(file)
		if err != nil {
			wrong[filepath.Base(file)] = err
			continue
		}
		if all[list.Name] == nil {
			all[list.Name] = list
		}
	}
	return all, wrong
}

func read(file string) (*libcni.NetworkConfigList, error) {
	if filepath.Ext(file) == ".conflist" {
		return libcni.NetworkConfFromFile(file)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	one, err := libcni.NetworkPluginConfFromBytes(text)
	if err != nil {
		return nil, err
	}
	if one.Network.Type == "" {
		return nil, errors.New("it names no type")
	}
	if text, err = json.Marshal(map[string]any{"cniVersion": one.Network.CNIVersion, "name": one.Network.Name,
		"plugins": []json.RawMessage{text}}); err != nil {
		return nil, err
	}
	return libcni.NetworkConfFromBytes(text)
}

// versionOf asks a plug-in for its version; "" is no plug-in.
func versionOf(ctx context.Context, path string) string {
	ctx, cancel := context.WithTimeout(ctx, versionWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, path)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")} // no CNI_COMMAND: it says who it is
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil && ctx.Err() != nil {
		return ""
	}
	return version(out.String())
}

var versionText = regexp.MustCompile(`(?i)^CNI .*?(?:\b(v\d[0-9A-Za-z.+-]*)|version (\S+))`)

// version reads what a plug-in says of itself: "CNI bridge plugin v1.1.1", or with "version unknown" where a
// distribution built it without.
func version(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	m := versionText.FindStringSubmatch(line)
	if m == nil {
		return ""
	}
	if m[1] != "" {
		return m[1]
	}
	return m[2]
}

// Attachment is an allocation at a network.
type Attachment struct {
	Network, Alloc, Path, Interface string
	Args                            map[string]string
	Ports                           []allocnet.Port
}

// Attached is what the plug-ins made.
type Attached struct {
	Address   netip.Addr
	Interface string
	DNS       allocnet.DNS
}

// runtime is an attachment as plug-ins are told of it.
func (a *Attachment) runtime() *libcni.RuntimeConf {
	r := &libcni.RuntimeConf{ContainerID: a.Alloc, NetNS: a.Path, IfName: a.Interface,
		Args: [][2]string{{"IgnoreUnknown", "true"}}, CapabilityArgs: map[string]any{}}
	names := make([]string, 0, len(a.Args))
	for name := range a.Args {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if !strings.ContainsAny(name+a.Args[name], ";=") { // they stand in one text, with these between
			r.Args = append(r.Args, [2]string{name, a.Args[name]})
		}
	}
	var ports []map[string]any
	for _, p := range a.Ports {
		for _, proto := range []string{"tcp", "udp"} {
			m := map[string]any{"hostPort": p.Host, "containerPort": p.Inside, "protocol": proto}
			if p.HostIP.IsValid() {
				m["hostIP"] = p.HostIP.String()
			}
			ports = append(ports, m)
		}
	}
	if len(ports) > 0 {
		r.CapabilityArgs["portMappings"] = ports
	}
	return r
}

// Add has the plug-ins connect an allocation.
func (n *Networks) Add(ctx context.Context, a *Attachment) (*Attached, error) {
	lists, wrong := n.lists()
	list := lists[a.Network]
	if list == nil {
		for name, err := range wrong {
			return nil, errkind.Errorf(errkind.Unavailable, "CNI network %q: no configuration in %s has this name, and %s "+
				"cannot be read: %w", a.Network, n.cfg.Dir, name, err)
		}
		return nil, errkind.Errorf(errkind.Unavailable, "CNI network %q: no configuration in %s has this name "+
			"(cni_config_dir)", a.Network, n.cfg.Dir)
	}
	if err := n.complete(list); err != nil {
		return nil, errkind.E(errkind.Unavailable, "CNI network "+a.Network, err)
	}
	ctx, cancel := context.WithTimeout(ctx, addWithin)
	defer cancel()
	rt := a.runtime()
	result, err := n.cni.AddNetworkList(ctx, list, rt)
	if err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), addWithin)
		defer cancel()
		if e := n.cni.DelNetworkList(undo, list, rt); e != nil {
			err = errors.Join(err, fmt.Errorf("and what was begun cannot be undone: %w", e))
		}
		return nil, errkind.E(errkind.Unavailable, "CNI network "+a.Network, err)
	}
	r, err := types100.GetResult(result)
	if err != nil {
		return nil, errkind.E(errkind.Unavailable, "CNI network "+a.Network, err)
	}
	return attached(a, r), nil
}

// attached reads the answer: the address is that of the interface inside, an IPv4 one where there is one.
func attached(a *Attachment, r *types100.Result) *Attached {
	out := &Attached{Interface: a.Interface, DNS: allocnet.DNS{Servers: r.DNS.Nameservers, Searches: r.DNS.Search,
		Options: r.DNS.Options}}
	for _, ip := range r.IPs {
		if i := ip.Interface; i != nil && *i >= 0 && *i < len(r.Interfaces) {
			if r.Interfaces[*i].Sandbox == "" {
				continue // the host's
			}
			if !out.Address.IsValid() {
				out.Interface = r.Interfaces[*i].Name
			}
		}
		if addr, ok := netip.AddrFromSlice(ip.Address.IP); ok {
			addr = addr.Unmap()
			if !out.Address.IsValid() || addr.Is4() && !out.Address.Is4() {
				out.Address = addr
			}
		}
	}
	return out
}

// Del undoes Add, by the configuration that it used.
func (n *Networks) Del(ctx context.Context, a *Attachment) error {
	ctx, cancel := context.WithTimeout(ctx, addWithin)
	defer cancel()
	rt := a.runtime()
	list := &libcni.NetworkConfigList{Name: a.Network}
	if text, used, err := n.cni.GetNetworkListCachedConfig(list, rt); err == nil && len(text) > 0 {
		if list, err = libcni.NetworkConfFromBytes(text); err != nil {
			return err
		}
		rt = used
	} else {
		lists, _ := n.lists()
		if list = lists[a.Network]; list == nil {
			return nil // nothing was begun, or nobody knows of it
		}
	}
	if err := n.cni.DelNetworkList(ctx, list, rt); err != nil {
		return fmt.Errorf("CNI network %s: %w", a.Network, err)
	}
	return nil
}
