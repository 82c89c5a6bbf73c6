package config

import (
	"fmt"

	"corbel.dev/corbel/monitor/users"
)

const (
	orPlain  = "accept plain text with -allow-plaintext, or tls { disabled = true }"
	makeCert = "`corbel tls ca create` and `corbel tls cert create -server` make them"
)

// exposure holds Corbel's own promise: nothing in plain text leaves the host, and
// nobody joins who was not let in, unless someone says so.
func (l *loader) exposure() {
	c := l.cfg
	if !c.ACL.Enabled || c.ACL.DefaultPolicy == "allow" {
		l.warn("ACLs are off or allow by default: everyone who reaches this process may change everything")
	}
	l.exposedGossip()
	l.exposedPasswords()
	if c.TLS.Disabled {
		l.warn("tls.disabled: requests and tokens travel in plain text")
		return
	}
	l.exposedPorts()
	rpc := &c.TLS.InternalRPC
	switch {
	case !rpc.Enabled() && !c.AutoEncrypt.TLS:
		l.warn("no TLS is configured: this process serves its own host only")
	case !rpc.VerifyServerHostname:
		l.warn("tls.internal_rpc.verify_server_hostname is off: any certificate of the authority, an agent's too, is good " +
			"for a server")
	}
}

// exposedGossip checks that gossip beyond the host has a key.
func (l *loader) exposedGossip() {
	c := l.cfg
	addr := c.Listen.Gossip
	if loopback(addr) {
		addr = c.Listen.GossipWAN
	}
	if loopback(addr) || len(c.Gossip.EncryptKey) > 0 || c.AutoConfig.Enabled {
		return
	}
	const gives = "gossip travels in plain text, and whoever reaches it can claim to be a member"
	if c.Server && !c.Gossip.AllowPlain {
		l.fail(fmt.Sprintf("encrypt is missing, and gossip is open to the network at %s: make a key with `corbel keygen` "+
			"and set it as encrypt everywhere, "+
			"or -bind 127.0.0.1, or accept with -allow-unencrypted-gossip that %s", addr, gives))
		return
	}
	l.warn("encrypt is not set: " + gives + "; make a key with `corbel keygen`")
}

// exposedPorts checks that what is open to the network has TLS.
func (l *loader) exposedPorts() {
	c := l.cfg
	hasIdentity := c.TLS.InternalRPC.Enabled() || c.AutoEncrypt.TLS
	if addr := c.Listen.RPC; c.Server && !loopback(addr) && !hasIdentity {
		l.fail(fmt.Sprintf("bind_addr opens %s to the network without TLS: set tls.defaults.ca_file, cert_file and "+
			"key_file (%s), "+
			"or -bind 127.0.0.1, or %s", addr, makeCert, orPlain))
	}
	if addr := c.Listen.Gossip; !c.Server && !loopback(addr) && !hasIdentity {
		l.fail(fmt.Sprintf("bind_addr joins others from %s without TLS: set tls.defaults.ca_file, cert_file and key_file, "+
			"or ca_file with auto_encrypt { tls = true } (%s), "+
			"or -bind 127.0.0.1, or %s", addr, makeCert, orPlain))
	}
	for key, addrs := range map[string][]string{"monitor": c.Listen.Monitor, "monitor_agents": c.Listen.MonitorAgents} {
		for _, addr := range addrs {
			l.failIf(!loopback(addr) && !c.TLS.Monitor.Enabled(), fmt.Sprintf("ports.%s opens %s to the network without TLS: "+
				"set tls.monitor (or tls.defaults) cert_file and key_file, "+
				"keep addresses.%s at 127.0.0.1, or %s", key, addr, key, orPlain))
		}
	}
	for _, door := range []struct {
		key, safe string
		addrs     []string
	}{{"http", "https", c.Listen.HTTP}, {"grpc", "grpc_tls", c.Listen.GRPC}} {
		for _, addr := range door.addrs {
			l.failIf(!loopback(addr), fmt.Sprintf("ports.%s opens %s to the network without TLS: use ports.%s, keep "+
				"addresses.%s at 127.0.0.1, "+
				"or %s", door.key, addr, door.safe, door.key, orPlain))
		}
	}
}

// exposedPasswords checks that no password that everybody knows opens the monitor plane to the network.
func (l *loader) exposedPasswords() {
	c := l.cfg
	l.failIf(c.MonitorExposed() && c.Monitor.AdminSecret == users.AgentPassword,
		"monitor.cluster_admin_password is Sensu's published default, and the plane is open to the network: choose "+
			"another one")
	a := &c.Monitor.Agent
	if a.Enabled && !loopback(c.Listen.Gossip) && a.CertFile == "" && (a.Password == "" ||
		a.Password == users.AgentPassword) {
		l.warn("monitor.agent.password is missing, or Sensu's published default, which servers take from their own host " +
			"alone: " +
			"give the user " + a.User + " a password of your own, or monitor.agent.cert_file and key_file")
	}
}

// MonitorExposed tells whether a port of the monitor plane is open beyond loopback.
func (c *Config) MonitorExposed() bool {
	for _, addrs := range [][]string{c.Listen.Monitor, c.Listen.MonitorAgents} {
		for _, addr := range addrs {
			if c.Monitor.Enabled && !loopback(addr) {
				return true
			}
		}
	}
	return false
}

// Cautious tells whether Corbel's own defaults hold on this process: not a peer's, and not dev's.
func (c *Config) Cautious() bool { return c.Style == Corbel && !c.Dev }
