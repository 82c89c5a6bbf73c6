//go:build release

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// manager is what installs packages: the commands, each of which gets a file or a name.
type manager struct {
	format, tool           string
	install, back, removal string
	purge                  string // "" where there is none
}

var managers = []manager{
	{"deb", "dpkg", "dpkg -i", "dpkg --force-downgrade -i", "dpkg -r", "dpkg --purge"},
	// The libraries of this system are in dpkg's books.
	{"rpm", "rpm", "rpm --force-debian --nodeps -U", "rpm --force-debian --nodeps -U --oldpackage",
		"rpm --force-debian -e", ""},
}

// tried are the managers that can be had here.
func tried(t *testing.T, run func(t *testing.T, m *manager)) {
	for _, tool := range []string{"ip", "unshare", "nsenter", "setpriv", "setsid"} {
		if _, err := exec.LookPath(tool); err != nil || os.Getuid() != 0 {
			skip(t, "root and "+tool+" are needed")
		}
	}
	for i := range managers {
		t.Run(managers[i].format, func(t *testing.T) {
			if _, err := exec.LookPath(managers[i].tool); err != nil {
				skip(t, managers[i].tool+" is needed: apt-get install "+managers[i].tool)
			}
			run(t, &managers[i])
		})
	}
}

// share puts packages where all hosts see them and returns their paths there.
func (s *site) share(t *testing.T, files ...string) (at []string) {
	t.Helper()
	for _, file := range files {
		sh(t, "mv", file, filepath.Join(s.folder, "hosts"))
		at = append(at, "/mnt/hosts/"+filepath.Base(file))
	}
	return at
}

// pid is the process of a unit, 0 without one.
func (h *host) pid(unit string) string {
	h.t.Helper()
	return strings.TrimSpace(h.must("p=$(cat /run/" + unit + ".pid 2>/dev/null) && [ -e /proc/$p/exe ] && echo $p || echo 0"))
}

// size is that of the program that a unit's process runs, also where another has taken its place.
func (h *host) size(unit string) string {
	h.t.Helper()
	return strings.TrimSpace(h.must("stat -L -c %s /proc/" + h.pid(unit) + "/exe"))
}

// calls are what systemctl was asked for since it was last read.
func (h *host) calls() string {
	h.t.Helper()
	return h.must("cat /var/log/systemctl.calls; : >/var/log/systemctl.calls")
}

// asked demands calls of systemctl, and that there are none of others but for daemon-reload: it comes once at least.
func (h *host) asked(when string, want ...string) {
	h.t.Helper()
	all := strings.Split(strings.TrimSpace(h.calls()), "\n")
	got := slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s == "daemon-reload" })
	if !slices.Equal(got, want) || len(got) == len(all) {
		h.t.Errorf("%s: systemctl was called with %q, want %q and daemon-reload", when, all, want)
	}
}

const (
	lifeServer, lifeAgent = "10.0.0.5", "10.0.0.8"
	// lifeConfig is one server's with TLS and its agent's, as docs/install.md has them for more.
	lifeConfig = `set -e
corbel tls ca create
corbel tls cert create -server
cat >common.hcl <<END
bind_addr  = "{{ GetPrivateIP }}"
retry_join = ["` + lifeServer + `"]
encrypt    = "$(corbel keygen)"
acl { tokens { agent = "6d1a7f2e-5b0c-4a53-9c43-0d8f6f3c1b7a" } }
tls {
  defaults {
    ca_file         = "/etc/corbel.d/ca.pem"
    verify_outgoing = true
  }
  internal_rpc { verify_server_hostname = true }
}
END
(cat common.hcl; echo 'auto_encrypt { tls = true }') >/mnt/hosts/` + lifeAgent + `/agent.hcl
cat common.hcl - >/etc/corbel.d/server.hcl <<END
bootstrap_expect = 1
auto_encrypt { allow_tls = true }
tls {
  defaults {
    cert_file       = "/etc/corbel.d/cert.pem"
    key_file        = "/etc/corbel.d/key.pem"
    verify_incoming = true
  }
}
acl { tokens { initial_management = "6d1a7f2e-5b0c-4a53-9c43-0d8f6f3c1b7a" } }
END
cp consul-agent-ca.pem /etc/corbel.d/ca.pem
cp consul-agent-ca.pem /mnt/hosts/` + lifeAgent + `/ca.pem
cp dc1-server-consul-0.pem /etc/corbel.d/cert.pem
cp dc1-server-consul-0-key.pem /etc/corbel.d/key.pem
`
	lifeStart = `set -e
chgrp corbel /etc/corbel.d/*
chmod 640 /etc/corbel.d/*
systemctl enable --now `
	token = "export CORBEL_HTTP_TOKEN=6d1a7f2e-5b0c-4a53-9c43-0d8f6f3c1b7a\n"
	// underLoad runs a command while a client reads from the server, and tells of each read that failed.
	underLoad = token + `rm -f /tmp/stop; : >/tmp/load
(until [ -e /tmp/stop ]; do timeout 60 corbel kv get precious >/dev/null 2>>/tmp/load && echo . || echo FAILED; done) >>/tmp/load &
until grep -q . /tmp/load; do sleep 0.1; done
%s; code=$?
touch /tmp/stop; wait
! grep -A5 FAILED /tmp/load || code=1
exit $code
`
)

// has demands that what was written is there, as soon as the process on this host can tell.
func (h *host) has(unit string) {
	h.t.Helper()
	out, err := h.run(token + "for n in $(seq 120); do got=$(timeout 20 corbel kv get precious 2>&1) && break; sleep 0.5; done; " +
		"[ \"$got\" = data ] || { echo \"$got\"; tail -n 20 /var/log/" + unit + ".log; exit 1; }")
	if err != nil {
		h.t.Fatalf("%s on %s: %v\n%s", unit, h.address, err, out)
	}
}

// A package is installed, upgraded, taken back, removed and purged while the real server and agent that it brought run,
// with their data: nothing starts by itself, an upgrade restarts the agent and leaves the server to its operator, a
// removal ends both in order and leaves what they wrote, and a purge takes that too.
func TestLifeOfServices(t *testing.T) {
	binary := os.Getenv("CORBEL_BINARY")
	if binary == "" {
		skip(t, "CORBEL_BINARY with the path of a binary is needed")
	}
	program, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	tried(t, func(t *testing.T, m *manager) {
		s := newSite(t, []string{lifeServer, lifeAgent})
		// The next release is the same program with something behind its end, so that its size tells which one runs.
		files := s.share(t, madeOf(t, "1.0.0", program).build(t, "corbel", m.format),
			madeOf(t, "1.1.0", slices.Concat(program, []byte("next"))).build(t, "corbel", m.format))
		sizes := []string{fmt.Sprint(len(program)), fmt.Sprint(len(program) + 4)}
		server, agent := s.start(t, 0, lifeServer), s.start(t, 1, lifeAgent)

		for _, h := range []*host{server, agent} {
			h.must(m.install + " " + files[0])
			h.asked("installed")
		}
		server.must(lifeConfig + lifeStart + "corbel-server")
		server.must(token + "until timeout 20 corbel kv put precious data; do sleep 0.5; done")
		agent.must(lifeStart + "corbel-agent")
		agent.has("corbel-agent")
		server.calls()
		agent.calls()

		was := [2]string{server.pid("corbel-server"), agent.pid("corbel-agent")}
		for i, how := range []string{m.install, m.back} { // up, and down again
			file, size, former := files[1-i], sizes[1-i], sizes[i]
			out := server.must(fmt.Sprintf(underLoad, how+" "+file))
			if pid := server.pid("corbel-server"); pid != was[0] || server.size("corbel-server") != former {
				t.Errorf("%s: the server was restarted", how)
			}
			if !strings.Contains(out, "corbel-server still runs the former version") {
				t.Errorf("%s does not tell that the server runs the former version:\n%s", how, out)
			}
			server.asked(how, "--quiet is-active corbel-agent.service", "--quiet is-active corbel-server.service")
			server.must("systemctl restart corbel-server")
			if server.size("corbel-server") != size {
				t.Errorf("%s: the server that was restarted is the former one", how)
			}
			server.has("corbel-server")
			agent.must(how + " " + file)
			agent.asked(how, "--quiet is-active corbel-agent.service", "--no-block try-restart corbel-agent.service",
				"--quiet is-active corbel-server.service")
			if pid := agent.pid("corbel-agent"); pid == was[1] || agent.size("corbel-agent") != size {
				t.Errorf("%s: the agent runs on", how)
			}
			agent.has("corbel-agent")
			server.calls()
			was = [2]string{server.pid("corbel-server"), agent.pid("corbel-agent")}
		}

		ended := []string{"--quiet disable --now corbel-server.service", "--quiet disable --now corbel-agent.service"}
		removed := func(h *host, unit, config string) {
			t.Helper()
			h.must(m.removal + " corbel")
			h.asked("removed", ended...)
			if h.pid(unit) != "0" {
				t.Errorf("%s runs although it was removed", unit)
			}
			h.must("! test -e /usr/bin/corbel && ! test -e /usr/lib/systemd/system/" + unit + ".service && " +
				"test -e /etc/corbel.d/" + config + " && test -n \"$(ls /var/lib/corbel)\"")
		}
		removed(agent, "corbel-agent", "agent.hcl")
		removed(server, "corbel-server", "server.hcl")
		// What a removal left is taken up again.
		server.must(m.install + " " + files[1])
		if server.pid("corbel-server") != "0" {
			t.Error("an installation has started the server")
		}
		server.must("systemctl enable --now corbel-server")
		server.has("corbel-server")
		server.calls()
		removed(server, "corbel-server", "server.hcl")
		if m.purge != "" {
			// The folder of the configuration is a mount here, and becomes one of the host's own.
			server.must("cp -a /etc/corbel.d /tmp/kept && umount /etc/corbel.d && cp -a /tmp/kept/. /etc/corbel.d/ && " +
				m.purge + " corbel && ! test -e /var/lib/corbel && ! test -e /etc/corbel.d && id corbel")
		}
	})
}

// An upgrade of corbel is one of all that runs under peers' names, since their program is corbel's: agents are restarted,
// servers are named. What belongs to a peer itself is left alone.
func TestUnitsOfPeers(t *testing.T) {
	const address = "10.0.0.5"
	tried(t, func(t *testing.T, m *manager) {
		s := newSite(t, []string{address})
		files := map[string]string{}
		for _, version := range []string{"1.0.0", "1.1.0"} {
			r := madeOf(t, version, []byte("#!/bin/sh\n# "+version+"\nexec sleep 3600\n"))
			for _, name := range []string{"corbel", "corbel-consul", "corbel-nomad", "corbel-sensu"} {
				files[name+version] = s.share(t, r.build(t, name, m.format))[0]
			}
		}
		h := s.start(t, 0, address)
		h.must(m.install + " " + files["corbel1.0.0"] + " " + files["corbel-consul1.0.0"] + " " + files["corbel-nomad1.0.0"] +
			" " + files["corbel-sensu1.0.0"])
		// Vault is one of its own.
		h.must(`cat >/usr/bin/vault <<END
#!/bin/sh
exec sleep 3600
END
chmod 755 /usr/bin/vault
printf '[Service]\nExecStart=/usr/bin/vault\n' >/usr/lib/systemd/system/vault.service`)
		units := []string{"consul", "vault", "nomad", "sensu-backend", "sensu-agent"}
		was := map[string]string{}
		for _, unit := range units {
			h.must("systemctl enable --now " + unit)
			was[unit] = h.pid(unit)
		}
		out := h.must(m.install + " " + files["corbel1.1.0"])
		for _, unit := range units {
			restarted, told := h.pid(unit) != was[unit], strings.Contains(out, " "+unit+" still runs the former version")
			if want := unit == "nomad" || unit == "sensu-agent"; restarted != want {
				t.Errorf("%s: restarted is %v", unit, restarted)
			}
			if want := unit == "consul" || unit == "sensu-backend"; told != want {
				t.Errorf("%s: told of is %v:\n%s", unit, told, out)
			}
			was[unit] = h.pid(unit)
		}
		h.calls()
		h.must(m.removal + " corbel-sensu")
		h.asked("removed", "--quiet disable --now sensu-backend.service", "--quiet disable --now sensu-agent.service")
		for _, unit := range units {
			if ended := h.pid(unit) == "0"; ended != strings.HasPrefix(unit, "sensu-") {
				t.Errorf("corbel-sensu was removed: the end of %s is %v", unit, ended)
			}
		}
	})
}
