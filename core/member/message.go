package member

import (
	"errors"
	"time"

	"corbel.dev/corbel/kit/pack"
)

// User messages: kind (1 byte), then a pack record. A receiver ignores kinds it
// does not know: they are from a newer version.
const (
	kindIntent     = 1 // gossiped
	kindKeyRequest = 2 // not sent any more, and refused
	kindKeyReply   = 3 // as above
	kindEvent      = 4 // gossiped
)

// read says which act a message of the kind starts, and how; false: none that this version knows. b is memberlist's:
// everything kept is copied by decoding.
func (d delegate) read(kind byte, b []byte) (Act, func(), bool) {
	switch kind {
	case kindIntent:
		i, err := decodeIntent(b)
		return i.act(), func() { d.hearIntent(i) }, err == nil
	case kindEvent:
		e, err := decodeEvent(b)
		return ActEvent, func() { d.p.hearEvent(e) }, err == nil
	case kindKeyRequest:
		return ActKeyRequest, nil, true
	case kindKeyReply:
		return ActKeyReply, nil, true
	}
	return 0, nil, false
}

var errMessage = errors.New("gossip: malformed message")

// intent says that a member departs, in its own words or, with force, in an operator's.
type intent struct {
	name  string
	epoch uint64 // of the process that departs; intents for another epoch do not apply
	force bool   // not said by the member: applies only once it failed
	prune bool   // forget it at once
}

func (i intent) act() Act {
	switch {
	case i.prune:
		return ActPrune
	case i.force:
		return ActForceLeave
	}
	return ActLeave
}

func (i intent) encode() []byte {
	b, mark := pack.Begin([]byte{kindIntent})
	b = pack.Uint(pack.String(b, i.name), i.epoch)
	return pack.End(pack.Bool(pack.Bool(b, i.force), i.prune), mark)
}

func decodeIntent(b []byte) (intent, error) {
	r := pack.Read(b).Record()
	i := intent{name: r.String(), epoch: r.Uint(), force: r.Bool(), prune: r.Bool()}
	if r.Err() != nil || i.name == "" || len(i.name) > maxNameBytes {
		return intent{}, errMessage
	}
	return i, nil
}

// keyOp is an operation on the keyring.
type keyOp uint8

const (
	opList keyOp = iota
	opInstall
	opUse
	opRemove
)

// keyRequest is what a server asks of a member, by a call.
type keyRequest struct {
	op  keyOp
	key string // base64
}

func (q keyRequest) encode() []byte {
	b, mark := pack.Begin(nil)
	return pack.End(pack.String(pack.Uint(b, uint64(q.op)), q.key), mark)
}

func decodeKeyRequest(b []byte) (keyRequest, error) {
	r := pack.Read(b).Record()
	q := keyRequest{op: keyOp(min(r.Uint(), 255)), key: r.String()}
	if r.Err() != nil || q.op > opRemove {
		return keyRequest{}, errMessage
	}
	return q, nil
}

type keyReply struct {
	trouble string // "" when the operation was done
	keys    []string
	primary string
}

func (a keyReply) encode() []byte {
	b, mark := pack.Begin(nil)
	return pack.End(pack.String(pack.Strings(pack.String(b, a.trouble), a.keys), a.primary), mark)
}

func decodeKeyReply(b []byte) (keyReply, error) {
	r := pack.Read(b).Record()
	a := keyReply{trouble: r.String(), keys: r.Strings(), primary: r.String()}
	if r.Err() != nil {
		return keyReply{}, errMessage
	}
	return a, nil
}

// hearsay is what one member tells another about a third that is not alive, when
// they exchange their whole states.
type hearsay struct {
	name   string
	addr   string
	port   int
	meta   []byte
	status Status
	own    bool          // a leave in the member's own words
	age    time.Duration // of the status; not a time, since clocks differ
}

// maxHearsay bounds both sides of an exchange.
const maxHearsay = 2048

func encodeHearsay(list []hearsay) []byte {
	var b []byte
	for _, h := range list[:min(len(list), maxHearsay)] {
		var mark int
		b, mark = pack.Begin(b)
		b = pack.Uint(pack.String(pack.String(b, h.name), h.addr), uint64(h.port))
		b = pack.Bool(pack.Uint(pack.Bytes(b, h.meta), uint64(h.status)), h.own)
		b = pack.End(pack.Uint(b, uint64(max(0, h.age/time.Second))), mark)
	}
	return b
}

func decodeHearsay(b []byte) ([]hearsay, error) {
	r := pack.Read(b)
	var list []hearsay
	for r.More() {
		e := r.Record()
		h := hearsay{name: e.String(), addr: e.String(), port: int(min(e.Uint(), 65535)), meta: e.Bytes(),
			status: Status(min(e.Uint(), 255)), own: e.Bool()}
		h.age = time.Duration(min(e.Uint(), 1<<31)) * time.Second
		r.Merge(e)
		if r.Err() != nil || h.name == "" || len(h.name) > maxNameBytes || len(h.meta) > metaMaxBytes {
			return nil, errMessage
		}
		if h.status < Leaving || h.status > Failed {
			continue // of a newer version
		}
		if list = append(list, h); len(list) == maxHearsay {
			break
		}
	}
	return list, r.Err()
}
