package jobsagentplane

import (
	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/jobs/client/driver/execdriver"
	"corbel.dev/corbel/jobs/client/supervisor"
)

// addIsolated adds the drivers that isolate processes.
func addIsolated(all map[string]driver.Driver, k *Keys, denied []string) {
	command := supervisor.OwnCommand()
	all[execdriver.Name] = &execdriver.Driver{Enabled: k.Drivers.Exec, Command: command, DeniedUsers: denied}
	all[execdriver.Java] = &execdriver.Driver{Enabled: k.Drivers.Java, Java: true, Command: command, DeniedUsers: denied}
}
