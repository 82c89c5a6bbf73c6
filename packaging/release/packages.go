//go:build release

package main

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/apk"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// The scripts of packages are templates: @USER@ and the like are replaced.
//
//go:embed scripts
var scripts embed.FS

// pack is one package. Those of peers have links and units under the peer's names, and need corbel.
type pack struct {
	name, what string
	user       string
	units      []string
	links      []string // below /usr/bin
	folders    []folder
	peers      []string // packages whose place it takes
	restart    []string // units that an upgrade restarts
	later      []string // units that it does not: servers are restarted one after the other, by their operators
}

// folder is one that the package owns. A data folder belongs to the user alone.
type folder struct {
	path string
	data bool
}

var packs = []pack{
	{name: "corbel", what: "Control plane of a fleet: discovery, mesh, secrets, monitoring.", user: "corbel",
		units:   []string{"corbel-server", "corbel-agent"}, // the program of all units is this package's
		restart: []string{"corbel-agent", "nomad", "sensu-agent"},
		later:   []string{"corbel-server", "consul", "vault", "sensu-backend"},
		folders: []folder{{"/etc/corbel.d", false}, {"/var/lib/corbel", true}}},
	{name: "corbel-consul", what: "Corbel under Consul's names.", user: "consul", units: []string{"consul"},
		links: []string{"consul"}, later: []string{"consul"}, peers: []string{"consul", "consul-enterprise"},
		folders: []folder{{"/etc/consul.d", false}, {"/opt/consul", true}}},
	{name: "corbel-vault", what: "Corbel under Vault's names.", user: "vault", units: []string{"vault"},
		links: []string{"vault", "bao"}, later: []string{"vault"}, peers: []string{"vault", "vault-enterprise", "openbao"},
		folders: []folder{{"/etc/vault.d", false}, {"/opt/vault", true}, {"/opt/vault/data", true}}},
	{name: "corbel-nomad", what: "Corbel under Nomad's names, and a unit for the agent of a host that runs jobs.",
		user: "nomad", units: []string{"nomad"}, links: []string{"nomad"}, restart: []string{"nomad"},
		peers: []string{"nomad", "nomad-enterprise"}},
	{name: "corbel-sensu", what: "Corbel under Sensu Go's names.", user: "sensu",
		units: []string{"sensu-backend", "sensu-agent"}, links: []string{"sensu-backend", "sensu-agent", "sensuctl"},
		restart: []string{"sensu-agent"}, later: []string{"sensu-backend"},
		peers: []string{"sensu-go-backend", "sensu-go-agent", "sensu-go-cli"},
		folders: []folder{{"/etc/sensu", false}, {"/var/lib/sensu", true}, {"/var/cache/sensu", true},
			{"/var/log/sensu", true}}},
}

// formats are the kinds of packages, and the scripts' names of the moment in which they run.
var formats = []string{"deb", "rpm", "apk"}

func (r *release) packages() error {
	for _, t := range r.targets {
		if t.system != "linux" {
			continue
		}
		for i := range packs {
			for _, format := range formats {
				if _, err := r.pack(&packs[i], format, t.arch, filepath.Join(r.out, t.file(r.version))); err != nil {
					return fmt.Errorf("%s, %s: %w", packs[i].name, format, err)
				}
			}
		}
	}
	return nil
}

// pack writes one package and returns its path.
func (r *release) pack(p *pack, format, arch, binary string) (path string, err error) {
	dir, err := os.MkdirTemp("", "corbel-pack")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	info := &nfpm.Info{Name: p.name, Arch: arch, Platform: "linux", Version: r.version, Release: "1", Section: "net",
		Priority: "optional", Maintainer: "The Corbel authors <release@corbel.dev>", Description: p.what,
		Homepage: "https://corbel.dev", License: "Apache-2.0", MTime: r.date, DisableGlobbing: true}
	if p.name != "corbel" {
		info.Arch = "all"
		if format == "apk" {
			info.Arch = "noarch"
		}
		info.Depends, info.Conflicts, info.Replaces, info.Provides = []string{"corbel"}, p.peers, p.peers, p.peers[:1]
		if format == "apk" { // whose word for a conflict nfpm does not write
			for _, peer := range p.peers {
				info.Depends = append(info.Depends, "!"+peer)
			}
		}
	}
	info.RPM.BuildHost, info.RPM.Summary = "release", p.what
	if r.quick {
		info.Deb.Compression, info.RPM.Compression = "none", "gzip:1"
	}
	if info.Contents, err = r.contents(p, format, dir, binary); err != nil {
		return "", err
	}
	if err := p.scripts(info, format, dir); err != nil {
		return "", err
	}
	info = nfpm.WithDefaults(info)
	packager, err := nfpm.Get(format)
	if err != nil {
		return "", err
	}
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return "", err
	}
	path = filepath.Join(r.out, packager.ConventionalFileName(info))
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	if err := packager.Package(info, f); err != nil {
		_ = f.Close()
		return "", err
	}
	return path, f.Close()
}

// contents are the files of a package. dir is for those that are made.
func (r *release) contents(p *pack, format, dir, binary string) (list files.Contents, err error) {
	add := func(source, to string, mode fs.FileMode) {
		list = append(list, &files.Content{Source: source, Destination: to, FileInfo: r.owner(mode)})
	}
	doc := "/usr/share/doc/" + p.name + "/"
	if p.name == "corbel" {
		add(binary, "/usr/bin/corbel", 0o755)
		for _, name := range []string{"LICENSE", "NOTICE", "README.md", "CHANGELOG.md"} {
			add(filepath.Join(r.source, name), doc+name, 0o644)
		}
	} else {
		readme := filepath.Join(dir, "README.md")
		if err := os.WriteFile(readme, []byte(p.readme()), 0o644); err != nil {
			return nil, err
		}
		add(readme, doc+"README.md", 0o644)
	}
	users := filepath.Join(dir, "sysusers")
	text := fmt.Sprintf("u %s - \"Runs %s\" %s /usr/sbin/nologin\n", p.user, p.name, p.home())
	if err := os.WriteFile(users, []byte(text), 0o644); err != nil {
		return nil, err
	}
	add(users, "/usr/lib/sysusers.d/"+p.name+".conf", 0o644)
	for _, unit := range p.units {
		source := filepath.Join(r.source, "packaging/systemd", unit+".service")
		if format != "apk" {
			add(source, "/usr/lib/systemd/system/"+unit+".service", 0o644)
			continue
		}
		script, err := openrc(unit, source)
		if err != nil {
			return nil, err
		}
		path := filepath.Join(dir, unit)
		if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
			return nil, err
		}
		add(path, "/etc/init.d/"+unit, 0o755)
	}
	for _, link := range p.links {
		list = append(list, &files.Content{Source: "corbel", Destination: "/usr/bin/" + link, Type: files.TypeSymlink,
			FileInfo: r.owner(0o777)})
	}
	for _, f := range p.folders {
		mode := fs.FileMode(0o755) // its group and owner are set at the installation: the user may not be there before
		if f.data {
			mode = 0o700
		}
		list = append(list, &files.Content{Destination: f.path, Type: files.TypeDir, FileInfo: r.owner(mode)})
	}
	return list, nil
}

func (r *release) owner(mode fs.FileMode) *files.ContentFileInfo {
	return &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: r.date.Truncate(time.Second)}
}

func (p *pack) home() string {
	for _, f := range p.folders {
		if f.data {
			return f.path
		}
	}
	return "/"
}

func (p *pack) readme() string {
	return fmt.Sprintf(`# %s

%s The files below /usr/bin are links to corbel: %s.

It takes the place of %s. Configuration that is there stays; the data of what
was there before is not read, and not touched: Corbel refuses to start on it and says how to bring it over.
`, p.name, p.what, strings.Join(p.links, ", "), strings.Join(p.peers, ", "))
}

// scripts adds the scripts, made for the package.
func (p *pack) scripts(info *nfpm.Info, format, dir string) error {
	var data, folders []string
	for _, f := range p.folders {
		folders = append(folders, f.path)
		if f.data {
			data = append(data, f.path)
		}
	}
	purged := ""
	if p.name == "corbel" { // what peers may have left is theirs
		purged = strings.Join(folders, " ")
	}
	fill := strings.NewReplacer("@PACKAGE@", p.name, "@USER@", p.user, "@HOME@", p.home(), "@UNITS@", units(p.units),
		"@RESTART@", units(p.restart), "@LATER@", units(p.later), "@FOLDERS@", strings.Join(folders, " "),
		"@DATA@", strings.Join(data, " "), "@PURGED@", purged)
	for name, to := range map[string]*string{"postinstall": &info.Scripts.PostInstall,
		"preremove": &info.Scripts.PreRemove, "postremove": &info.Scripts.PostRemove} {
		b, err := scripts.ReadFile("scripts/" + name + ".sh")
		if err != nil {
			return err
		}
		*to = filepath.Join(dir, name)
		if err := os.WriteFile(*to, []byte(fill.Replace(string(b))), 0o755); err != nil {
			return err
		}
		if err := os.Chtimes(*to, info.MTime, info.MTime); err != nil { // apk keeps it
			return err
		}
	}
	if format == "apk" { // which has a script of its own for upgrades
		info.APK.Scripts.PostUpgrade = info.Scripts.PostInstall
	}
	return nil
}

func units(names []string) string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = name + ".service"
	}
	return strings.Join(out, " ")
}
