package respapi

import "fmt"

// Copies are the copies that other hosts of a cluster have of this one's keys; usage/copies has them. All methods are
// for any goroutine.
type Copies interface {
	// Where says which host owns a slot: "" is this one. Where the slot is about to come here, it waits for that. An
	// error says that nobody knows now.
	Where(slot int) (addr string, err error)
	// Mine is Where without waiting, for this host.
	Mine(slot int) bool
	// Readable says whether this host has a copy of a slot that misses nothing.
	Readable(slot int) bool
	// Touch is called before each command that may change a key, Begin before a row of them, and Settle with what Begin
	// returned: it returns when all changes have their copies. After an error it is not known what became of them.
	Touch(key []byte)
	Begin() uint64
	Settle(began uint64) error
	// Copies is how many copies each key has at least, and InSync how many hosts have some that miss nothing.
	Copies() int
	InSync() int
}

// copying is what a connection has to do with copies.
type copying struct {
	reads bool // the client reads copies
	wrote bool // something may have changed since answers were sent
	began uint64
}

// mark notes that a command may change keys.
func (x *copying) mark(all Copies, keys [][]byte) {
	if all == nil {
		return
	}
	for _, key := range keys {
		all.Touch(key)
	}
	if !x.wrote {
		x.wrote, x.began = true, all.Begin()
	}
}

// settle waits for the copies of what the answers that wait have changed. After an error they must not be sent: the
// client must not believe either that it was done or that it was not.
func (x *copying) settle(all Copies) error {
	if !x.wrote {
		return nil
	}
	x.wrote = false
	return all.Settle(x.began)
}

// clusterDown is what Redis answers where it does not know who owns a key.
const clusterDown = "CLUSTERDOWN The cluster is down: "

// owner is where a slot is: "" where it is here, or is read here by who reads copies.
func (x *copying) owner(all Copies, slot int, writes bool) (addr, problem string) {
	if x.reads && !writes && all.Readable(slot) {
		return "", ""
	}
	addr, err := all.Where(slot)
	if err != nil {
		return "", clusterDown + err.Error()
	}
	return addr, ""
}

// replica is USAGE.REPLICA: the client reads copies. COPIES says that the host makes them, so that the client writes to
// the owner alone.
func replica(c *conn, _ [][]byte) {
	c.copying.reads = true
	if c.s.cfg.Copies != nil {
		c.out.simple("COPIES")
		return
	}
	c.out.ok()
}

// wait is WAIT: how many copies the keys have that were changed, all of which were made.
func wait(c *conn, args [][]byte) {
	_, ok := integer(args[1])
	switch patience, valid := integer(args[2]); {
	case !ok:
		c.out.fail(wrongNumber)
	case !valid:
		c.out.fail("ERR timeout is not an integer or out of range")
	case patience < 0:
		c.out.fail("ERR timeout is negative")
	case c.s.cfg.Copies == nil:
		c.out.int(0)
	default:
		if c.flush(false) == nil { // what was changed has its copies then
			c.out.int(int64(c.s.cfg.Copies.Copies()))
		} else {
			c.leaving = true
		}
	}
}

// slaves is how many hosts have copies, as INFO tells it.
func (s *Server) slaves() string {
	n := 0
	if s.cfg.Copies != nil {
		n = s.cfg.Copies.InSync()
	}
	return fmt.Sprintf("\r\n# Replication\r\nrole:master\r\nconnected_slaves:%d\r\n", n)
}
