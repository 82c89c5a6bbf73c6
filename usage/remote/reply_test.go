package remote

import (
	"bufio"
	"strings"
	"testing"
)

// TestReadReply has each kind of answer, and what is none.
func TestReadReply(t *testing.T) {
	for text, want := range map[string]byte{"+OK\r\n": '+', ":-7\r\n": ':', "$-1\r\n": '_', "*-1\r\n": '_', "_\r\n": '_',
		"$2\r\n\r\n\r\n": '$', "*2\r\n:1\r\n$1\r\nx\r\n": '*', "%1\r\n+a\r\n#t\r\n": '%', ">1\r\n+x\r\n": '>',
		"-ERR no\r\n": '-', ",1.5\r\n": ','} {
		r, err := ReadReply(bufio.NewReader(strings.NewReader(text)))
		if err != nil || r.Kind != want {
			t.Errorf("%q: %c %v", text, r.Kind, err)
		}
	}
	for _, text := range []string{"", "x\r\n", "$5\r\nab\r\n", "$1\r\nabc", "*1000000000\r\n", "$99999999999\r\n",
		":x\r\n",
		"+OK\n", strings.Repeat("*1\r\n", 20) + ":1\r\n", "$9223372036854775807\r\n", "%9223372036854775807\r\n"} {
		if r, err := ReadReply(bufio.NewReader(strings.NewReader(text))); err == nil {
			t.Errorf("%q was read as %v", text, r)
		}
	}
}

// FuzzReadReply: whatever a host says, reading ends, and takes no more memory than came.
func FuzzReadReply(f *testing.F) {
	for _, seed := range []string{"*2\r\n$1\r\na\r\n:1\r\n", ">1\r\n+x\r\n", "%1\r\n+a\r\n_\r\n", "$-1\r\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ReadReply(bufio.NewReader(strings.NewReader(text)))
		if err == nil && len(r.Text) > len(text) {
			t.Error("more came out than went in")
		}
	})
}
