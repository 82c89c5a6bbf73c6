package flood

import (
	"testing"
	"time"

	faultrun "corbel.dev/corbel/test/fault"
)

// TestBytesAreBounded is B12 in short.
func TestBytesAreBounded(t *testing.T) {
	dir := t.TempDir()
	bin, err := faultrun.Build(dir)
	if err != nil {
		t.Fatal(err)
	}
	lab := &faultrun.Lab{Binary: bin, Dir: dir}
	report, err := Run(t.Context(), lab, Config{Clients: 48, Budget: 256 << 20, Rounds: 1, Lasts: 15 * time.Second})
	t.Logf("%d to %d MiB, %d writes beside", report.RSSBefore>>20, report.RSSMost>>20, len(report.Beside))
	t.Log(report.Ports)
	if err != nil {
		t.Fatal(err)
	}
}
