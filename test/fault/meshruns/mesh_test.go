package meshruns

import "testing"

// TestRefusals is B10: three hundred proxies refuse one listener.
func TestRefusals(t *testing.T) {
	t.Parallel()
	report, err := RunRefusals(t.Context(), lab, 300)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", report)
}

// TestSlowStreams is B2 for discovery: 1 % of the streams read one byte a second. The deep form waits until they are
// cut.
func TestSlowStreams(t *testing.T) {
	t.Parallel()
	report, err := RunSlowStreams(t.Context(), lab, 100, 1, 20)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", report)
}

// TestResume is A3 for discovery.
func TestResume(t *testing.T) {
	t.Parallel()
	report, err := RunResume(t.Context(), lab, 60, 3, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", report)
}
