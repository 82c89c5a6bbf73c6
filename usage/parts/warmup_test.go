package parts

import (
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/usage"
)

// TestFilledByRecords: nothing of the logs was trimmed, so that a server with an empty disk is given them from the
// first record on, by the servers that lead all parts meanwhile. It says what it has loaded.
func TestFilledByRecords(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	polltest.Within(t, time.Minute, w.whole, "copies of all parts")
	for _, part := range []string{"a", "b", "c"} {
		if err := w.send(t.Context(), part, usage.Event{ID: "1", Source: "s", Tenant: part, Product: "bytes",
			Time: time.Now().UnixNano(), Value: usage.Int(1), HasValue: true}); err != nil {
			t.Fatal(err)
		}
	}
	w.lose("c")
	polltest.Within(t, time.Minute, func() bool { return w.moved("c") }, "others to lead what server c led")
	w.start("c", vfs.NewMem())
	c := w.servers["c"]
	polltest.Within(t, time.Minute, func() bool { return w.whole() && len(c.parts.has()) > 0 },
		"server c to have a part, and all parts to be whole")
	if c.value("usage.warmup.bytes") == 0 {
		t.Errorf("server c began with an empty disk, has %v, and says that it loaded nothing", c.parts.has())
	}
	w.judge(map[string]int64{"a": 1, "b": 1, "c": 1})
}
