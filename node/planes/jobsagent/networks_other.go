//go:build !linux

package jobsagentplane

import (
	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/jobs/client/nodeclient"
	"corbel.dev/corbel/node/plane"
)

// openNetworks: allocations have the host's network.
func openNetworks(*plane.Doors, *Keys, string, map[string]driver.Driver) (nodeclient.Networks, error) {
	return nil, nil
}
