package catalogruns

import (
	"testing"
	"time"
)

// TestTenantsPrograms is B13 in short.
func TestTenantsPrograms(t *testing.T) {
	report, err := RunTenants(t.Context(), lab, 3*time.Second)
	t.Logf("%+v", report)
	if err != nil {
		t.Fatal(err)
	}
}
