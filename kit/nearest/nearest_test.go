package nearest

import (
	"slices"
	"testing"
)

func TestTo(t *testing.T) {
	known := []string{"http-port", "https-port", "dns-port", "node", "data-dir", "server"}
	for wrong, want := range map[string]string{
		"htp-port": "http-port", "htpt-port": "http-port", "HTTPS-PORT": "https-port", "nod": "node", "ndoe": "node",
		"serverr": "server", "datadir": "data-dir", "colour": "", "x": "", "": "",
	} {
		if got := To(wrong, slices.Values(known)); got != want {
			t.Errorf("To(%q) = %q, want %q", wrong, got, want)
		}
	}
	if got := Hint("ndoe", slices.Values(known)); got != "; did you mean node?" {
		t.Errorf("Hint = %q", got)
	}
}
