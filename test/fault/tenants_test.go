package faultrun

import (
	"testing"
	"time"
)

// TestTenantsPrograms is B13 in short.
func TestTenantsPrograms(t *testing.T) {
	report, err := lab.RunTenants(t.Context(), 8*time.Second)
	t.Logf("%+v", report)
	if err != nil {
		t.Fatal(err)
	}
}
