package nodeclient

import "corbel.dev/corbel/jobs/client/driver"

// addProcesses: no driver of processes is built here.
func addProcesses(map[string]driver.Driver) {}
