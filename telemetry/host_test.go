package telemetry

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestHostFigures(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("meminfo", "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    250 kB\nHugePages_Total:   "+
		"3\nbroken\n")
	write("uptime", "123.45 99.0\n")
	write("stat", "cpu  9 9 9 9 9\ncpu0 100 0 100 800 0 0 0 0 0 0\ncpu1 bad\nintr 1\n")
	r := New(Config{Host: "h", DataDir: dir})
	h := newHostSampler(r)
	h.proc = dir
	h.sample(time.Now())
	if r.Gauge("host.uptime").Value() != 0 {
		t.Error("the host is sampled unasked")
	}
	if err := r.Reload(Settings{EnableHostMetrics: true}); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	h.sample(now)
	write("stat", "cpu0 120 10 120 850 0 0 0 0 0 0\n")
	h.sample(now.Add(time.Second)) // too early
	h.sample(now.Add(hostEvery))
	for name, want := range map[string]float64{
		"host.memory.total": 1024000, "host.memory.used": 768000, "host.memory.used_percent": 75, "host.uptime": 123.45,
	} {
		if got := r.Gauge(name).Value(); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	for name, want := range map[string]float64{"user": 30, "system": 20, "idle": 50, "iowait": 0, "total": 50} {
		if got := r.Gauge("host.cpu."+name, "cpu", "cpu0").Value(); math.Abs(got-want) > 1e-9 {
			t.Errorf("host.cpu.%s is %v, want %v", name, got, want)
		}
	}
	if r.Gauge("host.disk.size", "path", dir).Value() <= 0 {
		t.Error("the disk has no size")
	}
}

func FuzzProcFiles(f *testing.F) {
	f.Add([]byte("MemTotal: 1 kB\ncpu0 1 2 3 4 5 6 7 8\n"))
	f.Add([]byte("cpu99999999999999999999\n:\n: kB"))
	f.Fuzz(func(t *testing.T, b []byte) {
		parseMeminfo(b)
		for _, c := range parseStat(b) {
			_ = c.total
		}
	})
}
