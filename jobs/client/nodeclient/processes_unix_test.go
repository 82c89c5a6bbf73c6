//go:build unix

package nodeclient

import (
	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/jobs/client/driver/rawexec"
	"corbel.dev/corbel/jobs/client/supervisor"
)

func addProcesses(drivers map[string]driver.Driver) {
	drivers["raw_exec"] = &rawexec.Driver{Enabled: true, Command: supervisor.OwnCommand()}
}
