package consulapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/bodies"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/grants"
	"corbel.dev/corbel/catalog/local"
	"corbel.dev/corbel/kit/errkind"
)

// maxRegistrations bounds one list of registrations: more would hold up the log.
const maxRegistrations = 4096

// wireList decodes a JSON array whose elements are decoded one by one.
func (q *request) wireList() ([]json.RawMessage, error) {
	b, err := q.body(q.api.cfg.Limits.ListBytes)
	if err != nil {
		return nil, err
	}
	var list []json.RawMessage
	if err := bodies.Decode(b, &list); err != nil {
		return nil, err
	}
	if len(list) > maxRegistrations {
		return nil, errkind.Errorf(errkind.TooLarge, "the list has %d registrations, at most %d are taken at once: send several lists", len(list), maxRegistrations)
	}
	return list, nil
}

// at says which element of a list an error is about.
func at(i int, err error) error {
	var e *answer.Error
	if errors.As(err, &e) { // the contract's 500 for a single one that is incomplete
		return answer.Invalidf("%s (registration %d)", e.Text, i)
	}
	return errkind.New(errkind.Of(err), fmt.Sprintf("%s (registration %d)", errkind.Text(err), i))
}

// catalogRegisterMany is a list of what catalogRegister takes, as one entry of the log.
// What cannot be read or is not allowed refuses the whole list; what the catalog
// refuses is told in its place, and with ?atomic keeps the others out too.
func catalogRegisterMany(q *request) error {
	raw, err := q.wireList()
	if err != nil {
		return err
	}
	batch := &catalog.RegisterBatch{Atomic: q.q != "" && q.q.Has("atomic")}
	for i := range raw {
		cmd, err := q.oneOfMany(raw[i])
		if err != nil {
			return at(i, err)
		}
		batch.Registrations = append(batch.Registrations, cmd)
	}
	q.api.requests.Add(1)
	res, err := q.api.cfg.Registry.Apply(q.r.Context(), batch)
	if err != nil {
		return err
	}
	if res.Err != nil {
		return answer.Refused(res.Err)
	}
	return q.replyMany(batch, &res)
}

func (q *request) oneOfMany(raw json.RawMessage) (*catalog.Register, error) {
	in := &bodies.Register{}
	if err := json.NewDecoder(bytes.NewReader(raw)).Decode(in); err != nil {
		return nil, answer.Invalidf("Request decode failed: %v", err)
	}
	if err := q.bodyDatacenter(in.Datacenter); err != nil {
		return nil, err
	}
	if err := q.lease(in); err != nil {
		return nil, err
	}
	cmd, err := in.Command(q.api.cfg.Identity.Datacenter)
	if err != nil {
		return nil, err
	}
	if !q.api.open {
		if err := grants.MayRegister(q.grant, q.api.cfg.Registry.State(), cmd); err != nil {
			return nil, err
		}
	}
	return cmd, nil
}

func (q *request) replyMany(batch *catalog.RegisterBatch, res *catalog.Result) error {
	why := make(map[int]string, len(res.TxnErrors))
	for _, e := range res.TxnErrors {
		why[e.OpIndex] = e.What
	}
	none := batch.Atomic && len(why) > 0
	b := answer.UintField(make([]byte, 0, 64+16*len(batch.Registrations)), `{"Index":`, res.Index)
	list := answer.List{Bytes: append(b, `,"Results":`...)}
	for i := range batch.Registrations {
		text, bad := why[i]
		b := answer.BoolField(list.Next(), `{"OK":`, !bad && !none)
		if bad {
			b = answer.StringField(b, `,"Error":`, text)
		}
		list.Bytes = append(b, '}')
	}
	status := http.StatusOK
	if none {
		status = http.StatusConflict
	}
	return q.replyStatus(status, append(list.End(), '}'))
}

// agentServicesRegister registers a list of what agentServiceRegister takes.
func agentServicesRegister(q *request, l Local) error {
	raw, err := q.wireList()
	if err != nil {
		return err
	}
	list := make([]*local.ServiceDefinition, len(raw))
	for i := range raw {
		if list[i], err = local.DecodeService(raw[i]); err != nil {
			return at(i, err)
		}
	}
	o := q.registerOptions()
	q.releaseBuffer() // the call waits for a sync
	if err := l.RegisterServices(q.r.Context(), list, o); err != nil {
		return err
	}
	return q.replyEmpty()
}
