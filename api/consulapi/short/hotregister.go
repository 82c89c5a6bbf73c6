package short

import (
	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/bodies"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/api/hothttp"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/catalog/grants"
	"corbel.dev/corbel/kit/errkind"
)

const registerPattern = "/v1/catalog/register"

// serveRegister is catalogRegister for the hot path.
func (h *Path) serveRegister(c *hothttp.Call, r *hothttp.Request) hothttp.Outcome {
	a := h.api
	if len(r.Query) > 0 || int64(len(r.Body)) > a.Limits.BodyBytes {
		return hothttp.Decline
	}
	begun := a.Clock.Now()
	err := h.register(r)
	if errkind.Is(err, errkind.NotLeader) || err == errElsewhere {
		return hothttp.Decline // nothing was done; net/http passes the request on to the leader
	}
	if err != nil {
		return h.fail(c, err, rows.ClassWrite, h.registerTiming, begun)
	}
	hp := httpx.GetBuffer()
	head := append(h.begin(*hp, statusOK), headJSON...)
	_ = c.Reply(head, rows.BodyTrue) // a client that left is noticed by hothttp
	*hp = head
	httpx.PutBuffer(hp)
	h.registerTiming.Observe(a.Clock.Since(begun))
	return hothttp.Done
}

// errElsewhere is a registration for another datacenter: net/http passes it on.
var errElsewhere = errkind.New(errkind.Unavailable, "another datacenter's")

func (h *Path) register(r *hothttp.Request) error {
	a := h.api
	g, err := h.grant(h.secret(r))
	if err != nil {
		return err
	}
	in := &bodies.Register{}
	if !bodies.ParseRegister(string(r.Body), in) {
		*in = bodies.Register{}
		if err := bodies.Decode(r.Body, in); err != nil {
			return err
		}
	}
	if in.Datacenter != "" && in.Datacenter != a.Identity.Datacenter {
		return errElsewhere
	}
	cmd, err := in.Command(a.Identity.Datacenter)
	if err != nil {
		return err
	}
	if !a.Open {
		if err := grants.MayRegister(g, a.Registry.State(), cmd); err != nil {
			return err
		}
	}
	res, err := a.Registry.Apply(h.base, cmd)
	if errkind.Is(err, errkind.NotLeader) {
		return err
	}
	a.Requests.Add(1)
	if err != nil {
		return err
	}
	if res.Err != nil {
		return answer.Refused(res.Err)
	}
	return nil
}
