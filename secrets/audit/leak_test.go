package audit

import (
	"testing"

	"corbel.dev/corbel/kit/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }
