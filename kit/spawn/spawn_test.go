package spawn

import (
	"strings"
	"testing"
)

func TestTailKeepsTheEnd(t *testing.T) {
	var tail Tail
	for range 100 {
		if n, err := tail.Write([]byte(strings.Repeat("x", tailBytes/10) + "\n")); n != tailBytes/10+1 || err != nil {
			t.Fatal(n, err)
		}
	}
	_, _ = tail.Write([]byte("the end \n"))
	if got := tail.String(); len(got) < tailBytes/2 || len(got) > 2*tailBytes || !strings.HasSuffix(got, "x\nthe end") {
		t.Errorf("%d bytes, ending with %q", len(got), got[max(0, len(got)-20):])
	}
}
