package nesting

import (
	"strings"
	"testing"
)

func TestDeeper(t *testing.T) {
	for text, line := range map[string]int{
		"": 0, "{}": 0, "{[]}": 0, "[[[": 1, "{\n[\n{": 3, `"[[["`: 0, `"\"[[["`: 0, "\"open\n[[[": 2, "]]][[": 0,
		"]]][[[": 1, `{}[]{}[]`: 0, `\[[[`: 1,
	} {
		if got := Deeper(text, 2); got != line {
			t.Errorf("%q: line %d, want %d", text, got, line)
		}
		if got := Deeper([]byte(text), 2); got != line {
			t.Errorf("%q as bytes: line %d, want %d", text, got, line)
		}
	}
	big := strings.Repeat("[", 1<<16)
	if n := testing.AllocsPerRun(10, func() { Deeper(big, 1<<17) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
