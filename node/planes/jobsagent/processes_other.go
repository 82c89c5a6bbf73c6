//go:build !unix

package jobsagentplane

import "corbel.dev/corbel/jobs/client/driver"

func addProcesses(map[string]driver.Driver, *Keys, bool) {}
