package audit

import (
	"testing"

	"corbel.dev/corbel/kit/loud"
)

func fifo(t *testing.T) string {
	loud.Skip(t, "this system has no pipes in folders")
	return ""
}
