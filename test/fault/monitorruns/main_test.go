package monitorruns

import (
	"os"
	"testing"

	faultrun "corbel.dev/corbel/test/fault"
)

// lab is shared by the tests of this package.
var lab *faultrun.Lab

func TestMain(m *testing.M) { os.Exit(faultrun.Main(m, &lab)) }
