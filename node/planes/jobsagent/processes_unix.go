//go:build unix

package jobsagentplane

import (
	"os"

	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/jobs/client/driver/rawexec"
	"corbel.dev/corbel/jobs/client/supervisor"
)

// addProcesses adds the drivers that start processes.
func addProcesses(all map[string]driver.Driver, k *Keys, dev bool) {
	denied := k.Drivers.DeniedUsers
	if len(denied) == 0 && !dev && os.Getuid() == 0 {
		denied = []string{"root"}
	}
	all[rawexec.Name] = &rawexec.Driver{Enabled: k.Drivers.RawExec, Command: supervisor.OwnCommand(), DeniedUsers: denied}
	addIsolated(all, k, denied)
}
