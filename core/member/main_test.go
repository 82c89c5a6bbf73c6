package member

import (
	"testing"

	"corbel.dev/corbel/kit/leaktest"
)

// memberlist's own goroutines end after Shutdown at their own pace: exchanges by
// their TCP timeout, probes by theirs.
func TestMain(m *testing.M) { leaktest.Main(m, "hashicorp/memberlist.") }
