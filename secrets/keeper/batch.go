package keeper

import (
	"slices"

	"corbel.dev/corbel/kit/errkind"
)

var errCubbyhole = errkind.New(errkind.Invalid, "cubbyhole operations are only supported by \"service\" type tokens")

// isBatch says of which kind a token becomes: what its mount says, else what was asked for, else
// what the mount says where nothing was.
func isBatch(asked, mount string) bool {
	switch {
	case mount == "service" || mount == "batch":
		return mount == "batch"
	case asked == "" || asked == "default":
		return mount == "default-batch"
	}
	return asked == "batch" || asked == "default-batch"
}

// checkTokenType refuses what is no word for it.
func checkTokenType(text string) error {
	if !slices.Contains([]string{"", "default", "service", "batch", "default-service", "default-batch"}, text) {
		return errkind.Errorf(errkind.Invalid, "field \"token_type\": %q is none of default-service, default-batch, service, batch", text)
	}
	return nil
}
