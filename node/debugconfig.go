package node

import (
	"net"
	"strconv"

	"corbel.dev/corbel/kit/version"
	"corbel.dev/corbel/node/cloudjoin"
	"corbel.dev/corbel/node/config"
)

// debugConfig is the running configuration by Corbel's keys, and what tools read of it by
// the names that the contract's agents print. Secrets are hidden in both.
func (p *localAgent) debugConfig() map[string]any {
	cfg := p.Current()
	out := cfg.Public()
	gossip := cfg.Advertise.Gossip
	if ip, port := p.Pool.Addr(); port > 0 {
		host, _, err := net.SplitHostPort(gossip)
		if err != nil {
			host = ip
		}
		gossip = net.JoinHostPort(host, strconv.Itoa(port)) // the port that the system chose
	}
	for name, v := range map[string]any{
		"ACLsEnabled": cfg.ACL.Enabled && !cfg.Dev, "AdvertiseAddrLAN": cfg.Advertise.Addr,
		"AdvertiseAddrWAN": cfg.Advertise.AddrWAN,
		"Bootstrap":        cfg.Raft.Bootstrap || cfg.Dev, "BootstrapExpect": cfg.Raft.BootstrapExpect,
		"CheckOutputMaxSize": cfg.Checks.OutputMaxBytes, "CheckUpdateInterval": cfg.Checks.UpdateInterval.String(),
		"DNSAddrs": schemed("tcp", cfg.Listen.DNS), "DNSDomain": cfg.DNS.Domain, "DNSPort": cfg.Ports.DNS,
		"DataDir": cfg.DataDir, "Datacenter": cfg.Node.Datacenter, "DevMode": cfg.Dev, "EnableDebug": cfg.Logging.EnableDebug,
		"EnableLocalScriptChecks": cfg.Checks.EnableLocalScript, "EnableRemoteScriptChecks": cfg.Checks.EnableScript,
		"EncryptKey": hidden(cfg.Gossip.Encrypt), "GRPCPort": cfg.Ports.GRPC, "GRPCTLSPort": cfg.Ports.GRPCTLS,
		"HTTPAddrs": schemed("tcp", cfg.Listen.HTTP), "HTTPPort": cfg.Ports.HTTP,
		"HTTPSAddrs": schemed("tcp", cfg.Listen.HTTPS),
		"HTTPSPort":  cfg.Ports.HTTPS, "HTTPMaxConnsPerClient": cfg.Limits.HTTPMaxConns,
		"KVMaxValueSize": cfg.Limits.KVMaxValueBytes,
		"LeaveOnTerm":    cfg.Leave.OnTerminate, "NodeID": p.ID, "NodeMeta": cfg.Node.Meta, "NodeName": cfg.Node.Name,
		"PrimaryDatacenter": cfg.Node.PrimaryDatacenter, "RetryJoinLAN": cloudjoin.Shown(cfg.Gossip.RetryJoin),
		"Revision":         version.Of().Revision,
		"RPCAdvertiseAddr": "tcp://" + p.RPCAddr(), "RPCBindAddr": "tcp://" + p.Wire.Addr().String(),
		"SerfAdvertiseAddrLAN": "tcp://" + gossip, "SerfBindAddrLAN": "tcp://" + cfg.Listen.Gossip,
		"SerfPortLAN": cfg.Ports.SerfLAN,
		"ServerMode":  cfg.Server, "ServerPort": p.RPCPort(), "SkipLeaveOnInt": cfg.Leave.SkipOnInterrupt,
		"TaggedAddresses": p.taggedAddresses(), "TranslateWANAddrs": cfg.Addresses.TranslateWAN,
		"TxnMaxReqLen": cfg.Limits.TxnMaxBytes, "Version": version.Contract,
	} {
		out[name] = v
	}
	return out
}

func hidden(secret string) string {
	if secret == "" {
		return ""
	}
	return config.Hidden
}

func schemed(scheme string, addrs []string) []string {
	out := make([]string, len(addrs))
	for i, a := range addrs {
		out[i] = a
		if a != "" && a[0] != 'u' { // not unix://
			out[i] = scheme + "://" + a
		}
	}
	return out
}
