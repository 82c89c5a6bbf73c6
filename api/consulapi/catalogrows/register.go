package catalogrows

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/bodies"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/grants"
	"corbel.dev/corbel/catalog/registry"
)

func catalogRegister(q *rows.Request) error {
	var in bodies.Register
	if err := q.Decode(&in); err != nil {
		return err
	}
	if err := q.BodyDatacenter(in.Datacenter); err != nil {
		return err
	}
	cmd, err := Registration(q.Core, q.Grant, q.Query.Value("lease"), &in)
	if err != nil {
		return err
	}
	return applyTrue(q, cmd)
}

// maxLease is the longest lease of a node that may be asked for: ten years.
const maxLease = 87_600 * time.Hour

// Registration is the command of a registration that the caller may make. lease is what ?lease=30s says, which is the
// node's metadata of that name.
func Registration(c *rows.Core, g *acl.Grant, lease string, in *bodies.Register) (*catalog.Register, error) {
	if lease = cmp.Or(lease, in.NodeMeta[registry.LeaseMeta]); lease != "" {
		if d, err := time.ParseDuration(lease); err != nil || d < registry.MinLease || d > maxLease {
			return nil, answer.Invalidf("Invalid lease %q: give a duration of at least %s and at most %s, as 30s",
				lease, registry.MinLease, maxLease)
		}
		if in.NodeMeta == nil {
			in.NodeMeta = map[string]string{}
		}
		in.NodeMeta[registry.LeaseMeta] = lease
	}
	cmd, err := in.Command(c.Identity.Datacenter)
	if err == nil && !c.Open {
		err = grants.MayRegister(g, c.Registry.State(), cmd)
	}
	return cmd, err
}

func catalogDeregister(q *rows.Request) error {
	var in struct{ Datacenter, Node, Address, ServiceID, CheckID string }
	if err := q.Decode(&in); err != nil {
		return err
	}
	if err := q.BodyDatacenter(in.Datacenter); err != nil {
		return err
	}
	if in.Node == "" {
		return answer.Fail(http.StatusInternalServerError, "Must provide node")
	}
	cmd := &catalog.Deregister{Node: in.Node, ServiceID: in.ServiceID, CheckID: in.CheckID}
	if !q.Open {
		if err := grants.MayDeregister(q.Grant, q.Registry.State(), cmd); err != nil {
			return err
		}
	}
	return applyTrue(q, cmd)
}

// applyTrue proposes a command that has no outcome but done.
func applyTrue(q *rows.Request, cmd catalog.Command) error {
	_, err := q.Apply(cmd)
	return q.Done(err)
}

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
	res, err := q.Apply(batch)
	if err != nil {
		return err
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
	return Registration(q.Core, q.Grant, q.Query.Value("lease"), in)
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
