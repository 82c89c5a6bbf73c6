package serve

import (
	"runtime"

	"corbel.dev/corbel/kit/errkind"
)

// refuseServer refuses to run a server where its promises do not hold: what a write to the disk survives, and how a
// disk is locked, is known and tried on Linux and macOS alone.
func refuseServer(isServer bool) error {
	if isServer && runtime.GOOS == "windows" {
		return errkind.New(errkind.Invalid, "cannot start: servers, and `corbel dev`, run on Linux and macOS. On "+
			"Windows run the agent (`corbel agent`, or `corbel service install` for a service) with servers elsewhere")
	}
	return nil
}
