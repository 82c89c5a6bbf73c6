package probe

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"corbel.dev/corbel/telemetry"
)

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// read gives what is counted of a series since the last call.
func read(c *telemetry.Cursor) map[string]float64 {
	out := map[string]float64{}
	c.EachOf(func(*telemetry.Series) bool { return true }, func(r *telemetry.Reading) {
		name := r.Series.Name
		for _, l := range r.Series.Labels {
			name += " " + l.Value
		}
		out[name] = r.Sum
	})
	return out
}

// TestHost reads a machine made of files, for both versions of control groups.
func TestHost(t *testing.T) {
	for name, cgroup := range map[string]struct{ self, envoy, selfDir, envoyDir string }{
		"v2": {"0::/corbel\n", "0::/envoy\n", "corbel", "envoy"},
		"v1": {"4:memory:/m\n3:cpu,cpuacct:/corbel\n", "3:cpu,cpuacct:/envoy\n", "cpu,cpuacct/corbel", "cpu,cpuacct/envoy"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			h := &Host{Proc: dir + "/proc", Sys: dir + "/sys"}
			tell := func(busy, overflows, dropped, stopped, exceeded, packets int) {
				itoa := func(n int) string { return string(appendInt(nil, n)) }
				write(t, dir+"/proc/stat", "cpu  "+itoa(busy)+" 0 0 1000 0 0 0 0 0 0\ncpu0 1 2 3\n")
				write(t, dir+"/proc/net/netstat", "TcpExt: SyncookiesSent ListenOverflows\nTcpExt: 0 "+itoa(overflows)+
					"\nIpExt: X\nIpExt: 1\n")
				write(t, dir+"/proc/net/softnet_stat", "00000001 0000000"+itoa(dropped)+" 0\n00000001 00000000 0\n")
				write(t, dir+"/sys/fs/cgroup/"+cgroup.selfDir+"/cpu.stat", "usage_usec 5\nnr_periods 100\nnr_throttled 0\n")
				write(t, dir+"/sys/fs/cgroup/"+cgroup.envoyDir+"/cpu.stat", "nr_periods "+itoa(100+stopped*2)+"\nnr_throttled "+
					itoa(stopped)+"\n")
				h.Cards = func() map[string]map[string]uint64 {
					return map[string]map[string]uint64{"eth0": {"bw_in_allowance_exceeded": uint64(exceeded),
						"queue_1_tx_cnt": uint64(packets), "rx_missed_errors": 7, "tx_bytes": 9}}
				}
			}
			write(t, dir+"/proc/pressure/io", "some avg10=12.50 avg60=0.00 avg300=0.00 total=1\nfull avg10=3.25 avg60=0 "+
				"avg300=0 total=1\n")
			write(t, dir+"/proc/pressure/cpu", "some avg10=0.00\n")
			write(t, dir+"/proc/pressure/memory", "some avg10=0.00\n")
			write(t, dir+"/proc/sys/net/netfilter/nf_conntrack_count", "50\n")
			write(t, dir+"/proc/sys/net/netfilter/nf_conntrack_max", "200\n")
			write(t, dir+"/proc/self/cgroup", cgroup.self)
			write(t, dir+"/proc/77/comm", "envoy\n")
			write(t, dir+"/proc/77/cgroup", cgroup.envoy)
			write(t, dir+"/proc/77/cmdline", "envoy\x00--service-node\x00web-proxy\x00-c\x00x")
			r := telemetry.New(telemetry.Config{})
			cursor := r.NewCursor()
			now := time.Now()
			tell(1000, 5, 2, 10, 100, 5000)
			if gaps := h.Sample(r, now); len(gaps) > 0 {
				t.Fatalf("gaps: %q", gaps)
			}
			if first := read(cursor); first["host.net.listen_overflows"] != 0 ||
				first["host.nic.exceeded eth0 bw_in_allowance_exceeded"] != 0 {
				t.Errorf("counters of before the start count: %v", first)
			}
			tell(4000, 12, 5, 40, 130, 9000)
			h.Sample(r, now.Add(slowEvery))
			got := read(cursor)
			for name, want := range map[string]float64{
				"host.cpu.busy": 1, "host.net.listen_overflows": 7, "host.softnet.dropped": 3, "host.psi io some": 12.5,
				"host.psi io full":    3.25,
				"host.conntrack.used": 0.25, "host.cgroup.throttled self": 0, "host.cgroup.throttled web-proxy": 0.5,
				"host.nic.exceeded eth0 bw_in_allowance_exceeded": 30, "host.nic.queue_packets eth0 1": 4000,
			} {
				if got[name] != want {
					t.Errorf("%s is %v, want %v", name, got[name], want)
				}
			}
			write(t, dir+"/sys/fs/cgroup/"+cgroup.envoyDir+"/cpu.stat", "usage_usec 9\n")
			h.Sample(r, now.Add(slowEvery+time.Second))
			if got := read(cursor); got["host.cgroup.throttled web-proxy"] != 0 {
				t.Errorf("a proxy whose quota was lifted is throttled: %v", got["host.cgroup.throttled web-proxy"])
			}
			if err := os.Remove(dir + "/proc/77/comm"); err != nil {
				t.Fatal(err)
			}
			h.Sample(r, now.Add(2*slowEvery))
			if got := read(cursor); got["host.cgroup.throttled web-proxy"] != 0 {
				t.Errorf("a proxy that is gone is throttled: %v", got["host.cgroup.throttled web-proxy"])
			}
			if got["host.fd.used"] <= 0 || got["host.fd.used"] > 1 {
				t.Errorf("host.fd.used is %v", got["host.fd.used"])
			}
		})
	}
}

func appendInt(b []byte, n int) []byte {
	if n >= 10 {
		b = appendInt(b, n/10)
	}
	return append(b, byte('0'+n%10))
}

// TestPeers asks this machine's kernel about a connection of this test.
func TestPeers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	port := l.Addr().(*net.TCPAddr).Port
	h := &Host{Ports: func() []int { return []int{port} }, Peer: func(_ string, p int) string {
		if p == port {
			return "s2"
		}
		return ""
	}}
	r := telemetry.New(telemetry.Config{})
	cursor := r.NewCursor()
	for _, gap := range h.Sample(r, time.Now()) {
		t.Log("gap:", gap)
	}
	read(cursor)
	for range 10 {
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	h.Sample(r, time.Now().Add(slowEvery))
	if got := read(cursor); got["host.tcp.segments s2"] < 1 {
		t.Errorf("segments towards s2: %v", got["host.tcp.segments s2"])
	}
}

func TestTransmitQueue(t *testing.T) {
	for name, want := range map[string]string{"queue_3_tx_cnt": "3", "tx_queue_0_packets": "0", "tx12_packets": "12",
		"tx-4.packets": "4", "tx_packets[5]": "5", "tx_packets": "", "queue_3_rx_cnt": ""} {
		if got, ok := transmitQueue(name); got != want || ok != (want != "") {
			t.Errorf("%s is queue %q", name, got)
		}
	}
}
