package member

import (
	"sync"
	"time"

	"corbel.dev/corbel/kit/vivaldi"
	"github.com/hashicorp/memberlist"
)

// delegate is the Pool as memberlist sees it. memberlist calls these inside its own
// locks and packet loop: they change the member list or hand over, and never wait.
type delegate struct{ p *Pool }

// NodeMeta implements memberlist.Delegate.
func (d delegate) NodeMeta(int) []byte {
	d.p.self.mu.Lock()
	defer d.p.self.mu.Unlock()
	return d.p.self.meta
}

// NotifyMsg implements memberlist.Delegate.
func (d delegate) NotifyMsg(b []byte) {
	if len(b) == 0 {
		return
	}
	if act, do, known := d.read(b[0], b[1:]); known {
		d.p.start(act, do)
	}
}

// hearIntent takes in that a member departs, and passes news on.
func (d delegate) hearIntent(i intent) {
	switch {
	case i.name == d.p.cfg.Name && !d.p.self.hasLeft():
		d.p.self.deny(i)
	case d.p.members.depart(i):
		d.p.spread(i, nil)
	}
}

// GetBroadcasts implements memberlist.Delegate.
func (d delegate) GetBroadcasts(overhead, limit int) [][]byte {
	return d.p.queue.GetBroadcasts(overhead, limit)
}

// LocalState implements memberlist.Delegate.
func (d delegate) LocalState(bool) []byte { return encodeHearsay(d.p.members.tell()) }

// MergeRemoteState implements memberlist.Delegate.
func (d delegate) MergeRemoteState(b []byte, _ bool) {
	list, err := decodeHearsay(b)
	if err != nil {
		d.p.cfg.Log.Warn("cannot decode a member's state", "error", err)
		return
	}
	d.p.start(ActHearsay, func() {
		for _, h := range list {
			if i, news := d.p.members.hear(h); news {
				d.p.spread(i, nil) // so that the member itself hears of it
			}
		}
	})
}

// NotifyJoin implements memberlist.EventDelegate.
func (d delegate) NotifyJoin(n *memberlist.Node) { d.NotifyUpdate(n) }

// NotifyUpdate implements memberlist.EventDelegate.
func (d delegate) NotifyUpdate(n *memberlist.Node) {
	m, epoch, err := fromNode(n)
	if err != nil {
		return // NotifyAlive refused it already
	}
	d.p.start(ActArrive, func() { d.p.members.arrived(m, append([]byte(nil), n.Meta...), epoch) })
}

// NotifyLeave implements memberlist.EventDelegate. It does not say whether the
// member left or failed: the member list knows by its announcement.
func (d delegate) NotifyLeave(n *memberlist.Node) {
	d.p.start(ActFail, func() { d.p.members.gone(n.Name) })
}

// NotifyAlive implements memberlist.AliveDelegate: an error keeps a member out.
func (d delegate) NotifyAlive(n *memberlist.Node) error {
	m, _, err := fromNode(n)
	if err != nil || n.Name == d.p.cfg.Name || d.p.cfg.Accept == nil {
		return err
	}
	return d.p.cfg.Accept(m)
}

// NotifyMerge implements memberlist.MergeDelegate: an error refuses the whole exchange.
func (d delegate) NotifyMerge(nodes []*memberlist.Node) error {
	for _, n := range nodes {
		if n.State == memberlist.StateDead || n.State == memberlist.StateLeft {
			continue
		}
		if err := d.NotifyAlive(n); err != nil {
			return err
		}
	}
	return nil
}

// NotifyConflict implements memberlist.ConflictDelegate: two members have one name.
func (d delegate) NotifyConflict(existing, other *memberlist.Node) {
	d.p.alarms.conflicts.Add(1)
	d.p.start(ActConflict, func() { d.noteConflict(existing, other) })
}

func (d delegate) noteConflict(existing, other *memberlist.Node) {
	if !d.p.alarms.conflict.due(time.Now()) {
		return
	}
	msg := "two members have the same name; the newer is ignored"
	if existing.Name == d.p.cfg.Name {
		msg = "another member uses this member's name: give each a name of its own"
	}
	d.p.cfg.Log.Error(msg, "name", existing.Name, "known", existing.Address(), "other", other.Address())
}

// AckPayload implements memberlist.PingDelegate: each answer to a probe tells where this member lies.
func (d delegate) AckPayload() []byte {
	c := d.p.place.Coord()
	return c.Append(nil)
}

// NotifyPingComplete implements memberlist.PingDelegate. What cannot be a coordinate is left out.
func (d delegate) NotifyPingComplete(n *memberlist.Node, rtt time.Duration, payload []byte) {
	c, err := vivaldi.Decode(payload)
	if err != nil {
		return
	}
	d.p.start(ActCoordinate, func() {
		if d.p.place.Observe(n.Name, c, rtt) {
			d.p.members.lies(n.Name, c)
		}
	})
}

// note limits a line of the log: what others say, they may repeat with every round of gossip.
type note struct {
	mu   sync.Mutex
	last time.Time
}

func (c *note) due(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.last) < time.Minute {
		return false
	}
	c.last = now
	return true
}

func fromNode(n *memberlist.Node) (Member, uint64, error) {
	epoch, tags, err := decodeMeta(n.Meta)
	if err != nil {
		return Member{}, 0, err
	}
	return Member{
		Name: n.Name, Addr: n.Addr.String(), Port: int(n.Port), Tags: tags, Status: Alive,
		ProtocolMin: n.PMin, ProtocolMax: n.PMax, ProtocolCur: n.PCur,
		DelegateMin: n.DMin, DelegateMax: n.DMax, DelegateCur: n.DCur,
	}, epoch, nil
}

// announcement is an intent in the gossip queue.
type announcement struct {
	about string
	msg   []byte
	sent  chan<- struct{} // closed when told often enough, or overtaken; nil: nobody waits
}

// Invalidates implements memberlist.Broadcast: a newer word about a member replaces the older.
func (a *announcement) Invalidates(other memberlist.Broadcast) bool {
	o, ok := other.(*announcement)
	return ok && o.about == a.about
}

// Message implements memberlist.Broadcast.
func (a *announcement) Message() []byte { return a.msg }

// Finished implements memberlist.Broadcast.
func (a *announcement) Finished() {
	if a.sent != nil {
		close(a.sent)
	}
}

// maxAnnouncements bounds the gossip queue; the oldest are dropped, push/pull repairs.
const maxAnnouncements = 4096

// spread gossips an intent.
func (p *Pool) spread(i intent, sent chan<- struct{}) {
	if p.queue.NumQueued() >= maxAnnouncements {
		p.queue.Prune(maxAnnouncements - 1)
	}
	p.queue.QueueBroadcast(&announcement{about: i.name, msg: i.encode(), sent: sent})
}
