package respapi

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/usage/slots"
)

// TestCluster: keys of other hosts are answered with MOVED, in each command that has keys, and what one host must see
// as one is refused when several have it. A host that drains gives its slots away, and answers health checks.
func TestCluster(t *testing.T) {
	me, other := strings.Repeat("a", 40), strings.Repeat("b", 40)
	list := []slots.Node{{ID: me, Host: "10.0.0.1", Port: 1}, {ID: other, Host: "10.0.0.2", Port: 2}}
	current := slots.Assign(list, 1)
	r := start(t, Config{Node: me, Cluster: func() *slots.Map { return current }})
	mine, theirs := "", ""
	for i := 0; mine == "" || theirs == ""; i++ {
		key := fmt.Sprint("k", i)
		if n, _ := current.Owner(slots.Of([]byte(key))); n.ID == me {
			mine = key
		} else {
			theirs = key
		}
	}
	p := r.dial()
	moved := fmt.Sprintf("-MOVED %d 10.0.0.2:2", slots.Of([]byte(theirs)))
	names := strings.NewReplacer("MINE", mine, "THEIRS", theirs, "MOVED", moved)
	r.play(p, names.Replace(`
		SET MINE 1 => +OK
		SET THEIRS 1 => MOVED
		SISMEMBER THEIRS a => MOVED
		MGET {THEIRS}a {THEIRS}b => MOVED
		MGET MINE THEIRS => -CROSSSLOT Keys in request don't hash to the same slot
		MGET MINE {MINE}b => ["1" nil]
		EXISTS MAINTENANCE_MODE => :0
		MULTI => +OK
		GET THEIRS => MOVED
		EXEC => -EXECABORT Transaction discarded because of previous errors.
		CLUSTER MYID => "`+me+`"
	`))
	p.send("CLUSTER", "NODES")
	if got := p.answer(); !strings.Contains(got, me+" 10.0.0.1:1@1 myself,master") ||
		!strings.Contains(got, other+" 10.0.0.2:2@2 master") {
		t.Error(got)
	}
	p.send("CLUSTER", "SLOTS")
	if got := p.answer(); strings.Count(got, me)+strings.Count(got, other) != len(current.Ranges()) {
		t.Error(got)
	}
	p.send("CLUSTER", "SHARDS")
	if got := p.answer(); strings.Count(got, `"slots"`) != 2 {
		t.Error(got)
	}
	list[0].Draining = true
	current = slots.Assign(list, 1)
	r.Drain()
	gone := fmt.Sprintf("-MOVED %d 10.0.0.2:2", slots.Of([]byte(mine)))
	r.play(p, strings.NewReplacer("MINE", mine, "GONE", gone).Replace(`
		SET MINE 1 => GONE
		EXISTS MAINTENANCE_MODE => :1
	`))
}

// TestWaiting: a health checker is waited for until it has seen the maintenance key.
func TestWaiting(t *testing.T) {
	r := start(t, Config{})
	checker := r.dial()
	r.play(checker, "EXISTS MAINTENANCE_MODE => :0")
	if w := r.Waiting(); len(w) != 0 {
		t.Errorf("nobody drains, and %v are waited for", w)
	}
	r.Drain()
	if w := r.Waiting(); len(w) != 1 || !strings.Contains(w[0].Why, "maintenance key") {
		t.Errorf("%v", w)
	}
	r.play(checker, "EXISTS MAINTENANCE_MODE => :1")
	if w := r.Waiting(); len(w) != 0 {
		t.Errorf("%v", w)
	}
	r.play(checker, "CLIENT SETNAME worker => +OK")
	if w := r.Waiting(); len(w) != 1 || w[0].Name != "worker" {
		t.Errorf("%v", w)
	}
	r.hand.Advance(time.Minute)
	if w := r.Waiting(); len(w) != 0 {
		t.Errorf("%v", w)
	}
}
