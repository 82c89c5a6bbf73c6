package logs

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// TestRing: the newest lines stay, in their order, and no more than the limit.
func TestRing(t *testing.T) {
	const two = 2 * (lineCost + 10)
	line := func(c string) string { return c + "23456789\n" }
	long := strings.Repeat("x", lineCost+11)
	for _, tt := range []struct {
		name  string
		limit int
		add   []string
		want  string
	}{
		{"nothing", 100, nil, ""},
		{"all fit", two, []string{line("a"), line("b")}, line("a") + line("b")},
		{"the oldest goes", two, []string{line("a"), line("b"), line("c")}, line("b") + line("c")},
		{"a long one takes the place of several", two, []string{line("a"), line("b"), long}, long},
		{"one beyond the limit", lineCost + 10, []string{line("a"), "x" + line("b")}, line("a")},
		{"no room at all", 0, []string{line("a")}, ""},
	} {
		r := &ring{limit: tt.limit}
		for _, l := range tt.add {
			r.add([]byte(l))
			if r.size > tt.limit {
				t.Errorf("%s: %d bytes after %q", tt.name, r.size, l)
			}
		}
		if got := string(bytes.Join(r.newest(), nil)); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestKeep: debug is kept and not written; trace is kept where it is written.
func TestKeep(t *testing.T) {
	for level, want := range map[slog.Level]string{slog.LevelWarn: "debug info warn",
		LevelTrace: "trace debug info warn"} {
		var out, kept bytes.Buffer
		l := New(&out, level, false)
		l.Keep(KeptBytes)
		log := l.Logger()
		log.Log(t.Context(), LevelTrace, "trace")
		log.Debug("debug")
		log.Info("info")
		log.Warn("warn")
		l.Flush()
		if err := l.Newest(&kept); err != nil {
			t.Fatal(err)
		}
		var got []string
		for line := range strings.Lines(kept.String()) {
			_, text, _ := strings.Cut(line, `"msg":"`)
			text, _, _ = strings.Cut(text, `"`)
			got = append(got, text)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%v: kept %s", level, kept.String())
		}
		if level == slog.LevelWarn && strings.Contains(out.String(), "info") {
			t.Errorf("written: %s", out.String())
		}
	}
}
