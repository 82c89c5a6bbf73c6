package uplink

import (
	"os"
	"path/filepath"
	"testing"
)

// TestRead: a card as the kernel shows it; what it does not know is zero.
func TestRead(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  State
	}{
		"ten gigabits": {map[string]string{"speed": "10000\n", "statistics/tx_dropped": "3\n",
			"statistics/rx_missed_errors": "4\n", "statistics/rx_dropped": "99\n"}, State{Speed: 1.25e9, Dropped: 7}},
		"virtual":   {map[string]string{"speed": "-1\n", "statistics/tx_dropped": "0\n"}, State{}},
		"old":       {map[string]string{"speed": "4294967295\n"}, State{}},
		"no number": {map[string]string{"speed": "fast\n", "statistics/tx_fifo_errors": "x"}, State{}},
		"nothing":   {nil, State{}},
	} {
		dir := t.TempDir()
		for file, text := range c.files {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := read(dir); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	if nic := find("127.0.0.1"); nic == nil || nic.Name == "" {
		t.Errorf("the loopback's card is %v", nic)
	}
	for _, addr := range []string{"192.0.2.77", "", "web-1", "::ffff:192.0.2.77"} {
		if nic := find(addr); nic != nil {
			t.Errorf("%q is at %s", addr, nic.Name)
		}
	}
	if s := Read("127.0.0.1"); s.Speed != 0 {
		t.Errorf("the loopback has a speed: %+v", s)
	}
}
