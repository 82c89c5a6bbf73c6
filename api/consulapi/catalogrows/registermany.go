package catalogrows

import (
	"bytes"
	"encoding/json"
	"net/http"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/bodies"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/grants"
)

// catalogRegisterMany is a list of what catalogRegister takes, as one entry of the log.
// What cannot be read or is not allowed refuses the whole list; what the catalog
// refuses is told in its place, and with ?atomic keeps the others out too.
func catalogRegisterMany(q *rows.Request) error {
	raw, err := q.WireList()
	if err != nil {
		return err
	}
	batch := &catalog.RegisterBatch{Atomic: q.Query != "" && q.Query.Has("atomic")}
	for i := range raw {
		cmd, err := oneOfMany(q, raw[i])
		if err != nil {
			return rows.At(i, err)
		}
		batch.Registrations = append(batch.Registrations, cmd)
	}
	q.Requests.Add(1)
	res, err := q.Registry.Apply(q.R.Context(), batch)
	if err != nil {
		return err
	}
	if res.Err != nil {
		return answer.Refused(res.Err)
	}
	return replyMany(q, batch, &res)
}

func oneOfMany(q *rows.Request, raw json.RawMessage) (*catalog.Register, error) {
	in := &bodies.Register{}
	if err := json.NewDecoder(bytes.NewReader(raw)).Decode(in); err != nil {
		return nil, answer.Invalidf("Request decode failed: %v", err)
	}
	if err := q.BodyDatacenter(in.Datacenter); err != nil {
		return nil, err
	}
	if err := lease(q, in); err != nil {
		return nil, err
	}
	cmd, err := in.Command(q.Identity.Datacenter)
	if err != nil {
		return nil, err
	}
	if !q.Open {
		if err := grants.MayRegister(q.Grant, q.Registry.State(), cmd); err != nil {
			return nil, err
		}
	}
	return cmd, nil
}

func replyMany(q *rows.Request, batch *catalog.RegisterBatch, res *catalog.Result) error {
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
	return q.ReplyStatus(status, append(list.End(), '}'))
}
