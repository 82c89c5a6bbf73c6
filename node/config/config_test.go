package config

import (
	"strings"
	"testing"
)

// TestDevNeedsNothing holds the promise of `corbel dev`: no configuration at all.
func TestDevNeedsNothing(t *testing.T) {
	c, err := Load(Options{Dev: true, Hostname: "h1"})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Warnings) != 0 || c.Listen.HTTP[0] != "127.0.0.1:8500" || c.ACL.InitialManagement != "root" || !c.Server ||
		!c.Raft.Bootstrap {
		t.Fatalf("dev: %+v", c)
	}
	_, err = Load(Options{Dev: true, Hostname: "h1", Flags: []Setting{{"client_addr", "0.0.0.0", "-client"}}})
	if err == nil || !strings.Contains(err.Error(), "dev serves its own host only") {
		t.Fatalf("dev on the network: %v", err)
	}
}
