package rpc

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/limit"
)

func FuzzRequest(f *testing.F) {
	f.Add([]byte("\x04echopayload"))
	f.Add([]byte{0})
	f.Add([]byte{255, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		var r request
		if r.unmarshal(bytes.Clone(b)) != nil {
			return
		}
		out, err := r.marshal()
		if err != nil || !bytes.Equal(out.Materialize(), b) {
			t.Fatalf("%q became %q, %v", b, out.Materialize(), err)
		}
	})
}

func FuzzReply(f *testing.F) {
	for _, r := range []reply{{payload: []byte("x")}, {heartbeat: true},
		{err: errkind.E(errkind.NotLeader, "op", errors.New("text"))}} {
		b, _ := r.marshal()
		f.Add(b.Materialize())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var r reply
		if r.unmarshal(bytes.Clone(b)) != nil {
			return
		}
		out, err := r.marshal()
		if err != nil {
			t.Fatal(err)
		}
		var again reply
		if err := again.unmarshal(out.Materialize()); err != nil {
			t.Fatal(err)
		}
		if (r.err == nil) != (again.err == nil) || r.heartbeat != again.heartbeat || !bytes.Equal(r.payload, again.payload) {
			t.Fatalf("%+v became %+v", r, again)
		}
		if r.err != nil && (r.err.Error() != again.err.Error() || errkind.Of(r.err) != errkind.Of(again.err)) {
			t.Fatalf("%v became %v", r.err, again.err)
		}
	})
}

// A budget that is full is known as that on the other side.
func TestErrorsThatAreAskedForKeepTheirIdentity(t *testing.T) {
	for _, want := range []error{limit.ErrBytes, context.DeadlineExceeded, context.Canceled} {
		got := decodeError(encodeError(errkind.E(errkind.Unavailable, "ask", want))[1:])
		if !errors.Is(got, want) || !errkind.Is(got, errkind.Unavailable) {
			t.Errorf("%v became %v", want, got)
		}
	}
}

// The payload of a reply to many is not copied on its way out.
func TestReplySharesItsPayload(t *testing.T) {
	payload := make([]byte, 1<<16)
	r := reply{payload: payload}
	if n := testing.AllocsPerRun(100, func() {
		if out, err := r.marshal(); err != nil || out.Len() != 1+len(payload) {
			t.Fatal(err)
		}
	}); n > 2 {
		t.Errorf("%v allocations", n)
	}
	out, _ := r.marshal()
	if &out[1].ReadOnlyData()[0] != &payload[0] {
		t.Error("the payload was copied")
	}
}
