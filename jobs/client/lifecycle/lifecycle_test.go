package lifecycle

import (
	"fmt"
	"strings"
	"testing"
)

// parse reads "init:prestart:dead proxy:prestart+:running web:leader:pending".
func parse(text string) (list []Task) {
	for word := range strings.FieldsSeq(text) {
		parts := strings.Split(word, ":")
		t := Task{Name: parts[0], State: strings.TrimSuffix(parts[2], "!"), Failed: strings.HasSuffix(parts[2], "!")}
		t.Hook, t.Sidecar = strings.CutSuffix(parts[1], "+")
		if t.Hook == "leader" {
			t.Hook, t.Leader = "", true
		}
		t.Begun = t.State == Running || t.State == Dead
		list = append(list, t)
	}
	return list
}

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		tasks string
		stop  bool
		want  string
	}{
		{"a::pending b::pending", false, "begin a b"},
		{"i:prestart:pending a::pending s:poststop:pending", false, "begin i"},
		{"i:prestart:running a::pending", false, ""},
		{"i:prestart:dead a::pending", false, "begin a"},
		{"i:prestart:dead! a::pending s:poststop:pending", false, "kill a(Task's sibling failed)"},
		{"p:prestart+:pending a::pending", false, "begin p"},
		{"p:prestart+:running a::pending", false, "begin a"},
		{"a::running b::pending p:poststart:pending", false, "begin b"},
		{"a::running p:poststart:pending", false, "begin p"},
		{"a::running b::dead!", false, "kill a(Task's sibling failed)"},
		{"a::running b:leader:dead", false, "kill a(Leader Task Dead)"},
		{"a::dead p:prestart+:running s:poststop:pending", false, "begin s kill p(Main tasks in the group died)"},
		{"a::dead p:poststart:running", false, ""},
		{"a::running p:prestart+:running s:poststop:pending", true, "kill a(the allocation stops)"},
		{"a::dead p:prestart+:running s:poststop:pending", true, "begin s kill p(the allocation stops)"},
		{"a::running l:leader:running", true, "kill l(the allocation stops)"},
		{"a::running l:leader:dead", true, "kill a(the allocation stops)"},
		{"a::dead s:poststop:dead!", false, ""},
	} {
		o := Decide(parse(c.tasks), c.stop)
		var words []string
		if len(o.Begin) > 0 {
			words = append(words, "begin "+strings.Join(o.Begin, " "))
		}
		for _, task := range parse(c.tasks) {
			if why := o.Kill[task.Name]; why != "" {
				words = append(words, fmt.Sprintf("kill %s(%s)", task.Name, why))
			}
		}
		if got := strings.Join(words, " "); got != c.want {
			t.Errorf("%s %v: %q, want %q", c.tasks, c.stop, got, c.want)
		}
	}
}

func TestStatus(t *testing.T) {
	for tasks, want := range map[string]string{
		"a::pending": "pending", "a::running b::pending": "running", "a::dead b::pending": "running", "a::dead": "complete",
		"a::dead! b::running": "failed", "a::dead s:poststop:dead!": "failed",
	} {
		if got := Status(parse(tasks)); got != want {
			t.Errorf("%s: %s, want %s", tasks, got, want)
		}
	}
}
