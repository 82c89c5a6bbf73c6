package jobsagentplane

import (
	"fmt"
	"strings"
	"testing"

	"corbel.dev/corbel/node/config"
)

// TestKeys: what the section says, and what is wrong with it by the name that users type.
func TestKeys(t *testing.T) {
	for text, want := range map[string]string{
		``: "",
		`reserved { reserved_ports = "22, 8500-8502" }`:     "",
		`reserved { reserved_ports = "8500-22" }`:           "jobs.agent.reserved.reserved_ports",
		`host_volume "data" { path = "/srv" }`:              "",
		`host_volume "data" { path = "srv" }`:               "jobs.agent.host_volume",
		"min_dynamic_port = 30\n max_dynamic_port = 20":     "jobs.agent.min_dynamic_port",
		"gc_disk_usage_threshold = 101\n gc_max_allocs = 0": "jobs.agent.gc_max_allocs",
	} {
		cfg, err := config.Load(config.Options{Dev: true, Style: config.Corbel, Hostname: "h",
			Fragments: []string{"jobs { agent { " + text + " } }"},
			Sections:  map[string]func() any{"jobs": func() any { return new(Section) }}})
		if err == nil {
			err = checkKeys(cfg)
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
		if k := keysOf(cfg); want == "" && (k == nil || !k.Enabled || !k.Drivers.RawExec) {
			t.Errorf("%s: dev runs no workloads: %+v", text, k)
		}
	}
	if list, err := portList("22, 8500-8502"); err != nil || fmt.Sprint(list) != "[22 8500 8501 8502]" {
		t.Error(list, err)
	}
}
