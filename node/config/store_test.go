package config

import (
	"strings"
	"testing"
)

// Wrong keys of the event store are named, and no password is repeated.
func TestMonitorStore(t *testing.T) {
	for text, want := range map[string]string{
		`store = "mysql"`:                                             "monitor.store",
		`store = "postgresql"`:                                        "monitor.dsn",
		`dsn = "postgres://u:hidden@h:5432/db"`:                       "monitor.dsn",
		`store = "postgresql", dsn = "postgres://u:hidden@h:port/db"`: "monitor.dsn",
		`store_pool_size = 1`:                                         "monitor.store_pool_size",
		`history_retention = "1h"`:                                    "monitor.history_retention",
		`dns = "x"`:                                                   "monitor.dns",
	} {
		_, err := Load(Options{Server: true, Hostname: "test",
			Fragments: []string{`data_dir = "/tmp/x"` + "\nmonitor { enabled = true, " + text + " }"}})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
