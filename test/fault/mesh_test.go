package faultrun

import "testing"

// TestRefusals is B10: a thousand proxies refuse one listener.
func TestRefusals(t *testing.T) {
	t.Parallel()
	report, err := lab.RunRefusals(t.Context(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", report)
}

// TestSlowStreams is B2 for discovery: 1 % of the streams read one byte a second. The deep form waits until they are
// cut.
func TestSlowStreams(t *testing.T) {
	t.Parallel()
	report, err := lab.RunSlowStreams(t.Context(), 200, 2, 20)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", report)
}

// TestResume is A3 for discovery.
func TestResume(t *testing.T) {
	t.Parallel()
	report, err := lab.RunResume(t.Context(), 60, 3, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", report)
}
