package respapi

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"corbel.dev/corbel/usage/slots"
)

// shares reports whether the keys are divided over several hosts, by slots.
func (s *Server) shares() bool { return s.cfg.Cluster != nil }

func (s *Server) mode() string {
	if s.shares() {
		return "cluster"
	}
	return "standalone"
}

// hosts are those of the cluster; this one alone owns all where there is none.
func (c *conn) hosts() *slots.Map {
	if c.s.shares() {
		if m := c.s.cfg.Cluster(); len(m.Nodes()) > 0 {
			return m
		}
	}
	host, port := c.s.address(c.net.LocalAddr())
	return slots.Assign([]slots.Node{{ID: c.s.node, Host: host, Port: port}}, 1)
}

// elsewhere says where keys are that are not here: MOVED, or CROSSSLOT where they are at several hosts. It is empty
// where this host owns all of them, or has all keys there are.
func (c *conn) elsewhere(keys [][]byte, writes bool) string {
	s := c.s
	if !s.shares() || len(keys) == 0 {
		return ""
	}
	first, mine := "", 0
	for _, key := range keys {
		slot, addr, problem := slots.Of(key), "", ""
		switch {
		case s.maintenance(key):
		case s.cfg.Copies != nil:
			addr, problem = c.copying.owner(s.cfg.Copies, slot, writes)
		default:
			m := s.cfg.Cluster()
			if n, ok := m.Owner(slot); ok && n.ID != s.node && !(c.copying.reads && s.copied(m, key)) {
				addr = n.Addr()
			}
		}
		switch {
		case problem != "":
			return problem
		case addr == "":
			mine++
		case first == "":
			first = fmt.Sprintf("MOVED %d %s", slot, addr)
		case !strings.HasSuffix(first, " "+addr):
			return crossSlot
		}
	}
	if first != "" && mine > 0 {
		return crossSlot
	}
	return first
}

// copied reports whether this host has a copy of a key.
func (s *Server) copied(m *slots.Map, key []byte) bool {
	return slices.ContainsFunc(m.Owners(slots.Of(key)), func(n slots.Node) bool { return n.ID == s.node })
}

const crossSlot = "CROSSSLOT Keys in request don't hash to the same slot"

// cluster is CLUSTER.
func cluster(c *conn, args [][]byte) {
	switch what := strings.ToLower(string(args[1])); {
	case what == "myid" && len(args) == 2:
		c.out.text(c.s.node)
	case what == "keyslot" && len(args) == 3:
		c.out.int(int64(slots.Of(args[2])))
	case what == "info" && len(args) == 2:
		n := len(c.hosts().Nodes())
		c.out.text(fmt.Sprintf("cluster_enabled:1\r\ncluster_state:ok\r\ncluster_slots_assigned:%d\r\n"+
			"cluster_slots_ok:%d\r\ncluster_slots_pfail:0\r\ncluster_slots_fail:0\r\ncluster_known_nodes:%d\r\n"+
			"cluster_size:%d\r\ncluster_current_epoch:1\r\ncluster_my_epoch:1\r\n", slots.Count, slots.Count, n, n))
	case what == "nodes" && len(args) == 2:
		c.nodes()
	case what == "slots" && len(args) == 2:
		c.slots()
	case what == "shards" && len(args) == 2:
		c.shards()
	default:
		c.subcommand(args)
	}
}

// nodes is CLUSTER NODES: a line for each host, all of them masters.
func (c *conn) nodes() {
	m := c.hosts()
	owned := map[string]string{}
	for _, r := range m.Ranges() {
		owned[r.Nodes[0].ID] += fmt.Sprintf(" %d-%d", r.From, r.To)
	}
	text := ""
	for _, n := range m.Nodes() {
		flags := "master"
		if n.ID == c.s.node {
			flags = "myself,master"
		}
		text += fmt.Sprintf("%s %s@%d %s - 0 0 1 connected%s\n", n.ID, n.Addr(), n.Port, flags, owned[n.ID])
	}
	c.out.text(text)
}

// slots is CLUSTER SLOTS. A copy is told to nobody: clients that read from replicas ask the server's own protocol for
// it, and ours knows the owners by itself.
func (c *conn) slots() {
	list := c.hosts().Ranges()
	c.out.array(len(list))
	for _, r := range list {
		c.out.array(3)
		c.out.int(int64(r.From))
		c.out.int(int64(r.To))
		n := r.Nodes[0]
		c.out.array(4)
		c.out.text(n.Host)
		c.out.int(int64(n.Port))
		c.out.text(n.ID)
		c.out.array(0)
	}
}

// shards is CLUSTER SHARDS.
func (c *conn) shards() {
	m := c.hosts()
	owned := map[string][]slots.Range{}
	for _, r := range m.Ranges() {
		owned[r.Nodes[0].ID] = append(owned[r.Nodes[0].ID], r)
	}
	c.out.array(len(m.Nodes()))
	for _, n := range m.Nodes() {
		c.out.table(2)
		c.out.text("slots")
		c.out.array(2 * len(owned[n.ID]))
		for _, r := range owned[n.ID] {
			c.out.int(int64(r.From))
			c.out.int(int64(r.To))
		}
		c.out.text("nodes")
		c.out.array(1)
		c.out.table(7)
		c.out.text("id")
		c.out.text(n.ID)
		c.out.text("port")
		c.out.int(int64(n.Port))
		for _, pair := range [][2]string{{"ip", n.Host}, {"endpoint", n.Host}, {"role", "master"}, {"health", "online"}} {
			c.out.text(pair[0])
			c.out.text(pair[1])
		}
		c.out.text("replication-offset")
		c.out.int(0)
	}
}

// address is where clients find this host.
func (s *Server) address(local net.Addr) (host string, port int) {
	host, number, err := net.SplitHostPort(cmp.Or(s.cfg.Announce, local.String()))
	if err != nil { // a socket of this host has none
		return "", 0
	}
	port, _ = strconv.Atoi(number) // 0 is none, too
	return host, port
}
