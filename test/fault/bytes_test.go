package faultrun

import "testing"

// TestBytesAreBounded is B12 in short.
func TestBytesAreBounded(t *testing.T) {
	report, err := lab.RunBytes(t.Context(), 60, 256<<20)
	t.Logf("%+v", report)
	if err != nil {
		t.Fatal(err)
	}
}
