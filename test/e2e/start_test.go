package e2e

import (
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// BenchmarkHelp is the time of `corbel --help`: what every call pays before it works. Wanted: below 50 ms.
func BenchmarkHelp(b *testing.B) {
	for b.Loop() {
		if err := exec.Command(filepath.Join(binDir, "corbel"), "--help").Run(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDevReady is the time from the start of `corbel dev` to the first answer that needs a leader. Wanted: below
// 1 s.
func BenchmarkDevReady(b *testing.B) {
	for b.Loop() {
		args := []string{"dev", "--log-level", "error"}
		addr := ""
		for _, flag := range []string{"--http-port", "--dns-port", "--server-port", "--serf-lan-port"} {
			port, err := freePort()
			if err != nil {
				b.Fatal(err)
			}
			if flag == "--http-port" {
				addr = "http://127.0.0.1:" + strconv.Itoa(port)
			}
			args = append(args, flag, strconv.Itoa(port))
		}
		cmd := exec.Command(filepath.Join(binDir, "corbel"), args...)
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		awaitNodes(b, addr)
		b.StopTimer()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		b.StartTimer()
	}
}

func awaitNodes(b *testing.B, addr string) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-tick.C {
		resp, err := http.Get(addr + "/v1/catalog/nodes?consistent")
		if err != nil {
			continue
		}
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return
		}
	}
	b.Fatal("no answer within 20 s")
}
