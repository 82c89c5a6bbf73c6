//go:build unix && !linux

package jobsagentplane

import "corbel.dev/corbel/jobs/client/driver"

func addIsolated(map[string]driver.Driver, *Keys, []string) {}
