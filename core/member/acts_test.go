package member

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"testing"
	"time"

	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/vivaldi"
	"corbel.dev/corbel/telemetry"
	"github.com/hashicorp/memberlist"
)

// liars is a pool in which a watches, b is whom the others lie about, c has the key and lies, and stranger lies
// without the key.
type liars struct{ a, b, c, stranger *Pool }

// say sends a message to a and b as it stands, from somebody who does not have to know them.
func (l liars) say(t *testing.T, from *Pool, msg []byte) {
	t.Helper()
	for _, to := range []*Pool{l.a, l.b} {
		ip, port := to.Addr()
		n := &memberlist.Node{Name: to.cfg.Name, Addr: net.ParseIP(ip), Port: uint16(port)}
		if err := from.list.SendReliable(n, msg); err != nil {
			t.Fatal(err)
		}
	}
}

// sayLast sends the message and then a user event, and waits for the event: the message has come before it.
func (l liars) sayLast(t *testing.T, from *Pool, id string, msg []byte) {
	t.Helper()
	l.say(t, from, msg)
	l.say(t, from, (&Event{ID: id, Name: "after"}).encode())
	for _, p := range []*Pool{l.a, l.b} {
		polltest.Until(t, func() bool { return heardOf(p, id) }, "%s to hear what came after", p.cfg.Name)
	}
}

func heardOf(p *Pool, id string) bool {
	kept, _ := p.Events()
	return slices.ContainsFunc(kept, func(e *Event) bool { return e.ID == id })
}

func (l liars) alive(t *testing.T, what string) {
	t.Helper()
	polltest.Until(t, func() bool { return status(l.a, "b") == Alive && status(l.c, "b") == Alive },
		"b to be alive again after: %s", what)
}

// lies are the words of gossip that a pool takes, by the act that each would start: what somebody with the key, who
// means harm, says, and what must be afterwards. What has no line here has no row, and the other way round.
var lies = map[Act]func(*testing.T, liars){
	ActLeave: func(t *testing.T, l liars) {
		for range 3 {
			epoch, _ := l.a.members.epochOf("b")
			l.say(t, l.c, intent{name: "b", epoch: epoch}.encode())
			polltest.Until(t, func() bool { e, _ := l.a.members.epochOf("b"); return e != epoch }, "b to refute that it leaves")
			l.alive(t, "a leave that somebody else said")
		}
		// Words about a process that is still to come do not hide what the one that is there says.
		l.say(t, l.c, intent{name: "b", epoch: 1 << 62}.encode())
	},
	ActForceLeave: func(t *testing.T, l liars) {
		epoch, _ := l.a.members.epochOf("b")
		l.sayLast(t, l.c, "force", intent{name: "b", epoch: epoch, force: true}.encode())
		l.alive(t, "a forced leave")
	},
	ActPrune: func(t *testing.T, l liars) {
		epoch, _ := l.a.members.epochOf("b")
		l.sayLast(t, l.c, "prune", intent{name: "b", epoch: epoch, force: true, prune: true}.encode())
		l.alive(t, "a forced leave that prunes")
	},
	ActEvent: func(t *testing.T, l liars) {
		l.say(t, l.c, (&Event{ID: "e1", Name: "deploy"}).encode())
		polltest.Until(t, func() bool { return heardOf(l.a, "e1") }, "an event of a member")
		huge := (&Event{ID: "e2", Name: "deploy", Payload: make([]byte, MaxEventBytes+1)}).encode()
		l.sayLast(t, l.c, "huge", huge)
		if heardOf(l.a, "e2") {
			t.Error("an event beyond the limit is kept")
		}
	},
	ActKeyRequest: func(t *testing.T, l liars) {
		before, _ := l.a.keys.texts()
		for op := opList; op <= opRemove; op++ { // as members said it until they carried it by calls
			b, mark := pack.Begin([]byte{kindKeyRequest})
			b = pack.End(pack.String(pack.String(pack.Uint(pack.Uint(b, 1), uint64(op)), newKey(9)), "c"), mark)
			l.sayLast(t, l.c, fmt.Sprint("key", op), b)
		}
		if after, _ := l.a.keys.texts(); !slices.Equal(before, after) {
			t.Errorf("gossip changed the keyring: %d keys, %d before", len(after), len(before))
		}
	},
	ActKeyReply: func(t *testing.T, l liars) {
		l.sayLast(t, l.c, "reply", append([]byte{kindKeyReply}, keyReply{keys: []string{newKey(9)}}.encode()...))
	},
	ActArrive: func(t *testing.T, l liars) {
		_, port := l.b.Addr()
		other, _ := runPool(t, Config{Name: "b", Encrypt: newKey(1), Tags: map[string]string{"role": "consul"}})
		_, _ = other.Join(t.Context(), []string{addrOf(l.a)})
		if m, _ := l.a.Member(ActShow, "b"); m.Port != port || m.Tags["role"] != "" {
			t.Errorf("b is now %+v", m)
		}
		remote, _ := runPool(t, Config{Name: "remote", Encrypt: newKey(1), Tags: map[string]string{"dc": "dc2"}})
		_, _ = remote.Join(t.Context(), []string{addrOf(l.a)})
		if _, ok := l.a.Member(ActShow, "remote"); ok {
			t.Error("a member of another datacenter is let in")
		}
	},
	ActFail: func(t *testing.T, l liars) { // the protocol's own: nobody can say it through a Pool
		delegate{l.c}.NotifyLeave(&memberlist.Node{Name: "b"})
		if status(l.c, "b") == Alive || status(l.a, "b") != Alive {
			t.Errorf("b is %s for c and %s for a", status(l.c, "b"), status(l.a, "b"))
		}
		delegate{l.c}.NotifyJoin(l.b.list.LocalNode())
	},
	ActHearsay: func(t *testing.T, l liars) {
		m := delegate{l.b}.NodeMeta(0)
		old, _ := l.a.members.epochOf("b")
		for _, s := range []Status{Failed, Left} {
			b := encodeHearsay([]hearsay{{name: "b", addr: "127.0.0.9", port: 1, meta: m, status: s, own: true}})
			delegate{l.a}.MergeRemoteState(b, false)
		}
		polltest.Until(t, func() bool { e, _ := l.a.members.epochOf("b"); return e != old }, "b to refute that it left")
		l.alive(t, "hearsay")
	},
	ActConflict: func(*testing.T, liars) {}, // ActArrive makes one
	ActCoordinate: func(t *testing.T, l liars) {
		before, _ := l.a.CoordinateOf("b")
		for _, payload := range [][]byte{nil, {1}, make([]byte, 1000)} {
			delegate{l.a}.NotifyPingComplete(l.b.list.LocalNode(), time.Millisecond, payload)
		}
		if at, ok := l.a.CoordinateOf("b"); ok && !at.Valid() {
			t.Errorf("b lies at %+v, before at %+v", at, before)
		}
		delegate{l.a}.NotifyPingComplete(&memberlist.Node{Name: "nobody"}, time.Millisecond, (&vivaldi.Coord{}).Append(nil))
		if _, ok := l.a.CoordinateOf("nobody"); ok {
			t.Error("who is no member lies somewhere")
		}
	},
}

// TestGossipMatrix is C11 for what gossip starts: every row of the table, tried by somebody who has the pool's key and
// by a stranger. What the table says of those who read the pool, node's TestGossipActs tries.
func TestGossipMatrix(t *testing.T) {
	t.Parallel()
	pools, _ := runPools(t, 3, func(int) Config {
		return Config{Encrypt: newKey(1), Metrics: telemetry.New(telemetry.Config{}), Accept: func(m Member) error {
			if m.Tags["dc"] == "dc2" {
				return fmt.Errorf("of dc2")
			}
			return nil
		}}
	})
	l := liars{a: pools[0], b: pools[1], c: pools[2]}
	l.stranger, _ = runPool(t, Config{Name: "stranger", Encrypt: newKey(2)})
	for act := Act(1); act < actEnd; act++ {
		row := act.row()
		if row.Name == "" || (row.From == Nobody) != (row.Bound == "") {
			t.Errorf("act %d has no row, or one that does not say what bounds it: %+v", act, *row)
		}
		lie := lies[act]
		if (lie != nil) != (act < ActShow) {
			t.Errorf("%s: nobody tries it", act)
		}
		if lie != nil {
			t.Run(row.Name, func(t *testing.T) { lie(t, l) })
		}
	}
	if got := l.a.alarms.refused.Value(); got != 5 {
		t.Errorf("%d words of gossip were refused, and not the five about keys", got)
	}
	t.Run("a stranger", func(t *testing.T) {
		epoch, _ := l.a.members.epochOf("b")
		for _, msg := range [][]byte{intent{name: "b", epoch: epoch}.encode(), (&Event{ID: "e9", Name: "deploy"}).encode()} {
			l.say(t, l.stranger, msg)
		}
		if _, err := l.stranger.Join(t.Context(), []string{addrOf(l.a)}); err == nil {
			t.Error("a stranger joined")
		}
		if now, _ := l.a.members.epochOf("b"); heardOf(l.a, "e9") || now != epoch || status(l.a, "stranger") != 0 {
			t.Error("a stranger was heard")
		}
	})
}

// TestActsWithoutARow: what has no row is started by nobody, and read by nobody.
func TestActsWithoutARow(t *testing.T) {
	t.Parallel()
	p, _ := runPool(t, Config{Name: "alone"})
	for _, act := range []Act{0, actEnd, 255} {
		p.start(act, func() { t.Errorf("act %d was started", act) })
		if list := p.Members(act); list != nil {
			t.Errorf("act %d is about %v", act, list)
		}
		if _, ok := p.Member(act, "alone"); ok {
			t.Errorf("act %d is about a member", act)
		}
	}
	if names := slices.Sorted(maps.Keys(Acts())); len(names) != int(actEnd)-1 {
		t.Errorf("%d acts of %d", len(names), actEnd-1)
	}
}
