package qdisc

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"
)

func attr(kind uint16, body []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(body)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), body...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func message(kind uint16, body []byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(headBytes+len(body)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	return append(append(b, make([]byte, 10)...), body...)
}

func discipline(card, parent uint32, figures ...uint32) []byte {
	b := make([]byte, messageBytes)
	binary.NativeEndian.PutUint32(b[4:], card)
	binary.NativeEndian.PutUint32(b[12:], parent)
	var q []byte
	for _, f := range figures {
		q = binary.NativeEndian.AppendUint32(q, f)
	}
	return append(append(b, attr(1, []byte("mq\x00"))...), attr(stats2, attr(queueStats, q))...)
}

// TestParse: the root discipline of each card is told, its children are in it, and a cut answer is an error.
func TestParse(t *testing.T) {
	all := message(unix.RTM_NEWQDISC, discipline(2, root, 0, 0, 17, 23, 0))
	all = append(all, message(unix.RTM_NEWQDISC, discipline(2, 1, 0, 0, 17, 23, 0))...)
	all = append(all, message(unix.RTM_NEWQDISC, discipline(3, root))...)
	all = append(all, message(unix.NLMSG_DONE, make([]byte, 4))...)
	out := map[int]Counts{}
	if end, err := parse(all, out); !end || err != nil || len(out) != 1 || out[2] != (Counts{17, 23}) {
		t.Errorf("%v %v %v", end, err, out)
	}
	if _, err := parse(all[:60], out); err == nil {
		t.Error("a cut answer is taken")
	}
	if end, err := parse(message(unix.NLMSG_ERROR, []byte{0xff, 0xff, 0xff, 0xff}), out); !end || err == nil {
		t.Error("an error is none")
	}
}

// TestRead: the kernel answers.
func TestRead(t *testing.T) {
	if _, err := Read(); err != nil {
		t.Fatal(err)
	}
}

// FuzzParse: whatever the kernel says, it is read or refused.
func FuzzParse(f *testing.F) {
	f.Add(message(unix.RTM_NEWQDISC, discipline(2, root, 0, 0, 17, 23, 0)))
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = parse(b, map[int]Counts{}) })
}
