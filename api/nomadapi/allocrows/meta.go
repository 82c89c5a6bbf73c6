package allocrows

import (
	"encoding/json"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
)

// meta shows a node's metadata: of now, set at run time, and of its configuration.
func meta(q *request) error {
	id, err := node(q)
	if err != nil {
		return err
	}
	return askMeta(q, id.String(), nomadrows.MetaCall{})
}

// setMeta changes it: null unsets a name.
func setMeta(q *request) error {
	text, err := q.Body()
	if err != nil {
		return err
	}
	var body struct {
		NodeID string
		Meta   map[string]*string // a null counts
	}
	if err := json.Unmarshal(text, &body); err != nil {
		return nomadrows.BadRequest("%s", err)
	}
	if len(body.Meta) == 0 {
		return nomadrows.BadRequest("missing required Meta object")
	}
	if body.NodeID == "" {
		body.NodeID = q.Query.Value("node_id")
	}
	call := nomadrows.MetaCall{Change: true, Set: map[string]string{}}
	for name, value := range body.Meta {
		if value == nil {
			call.Unset = append(call.Unset, name)
		} else {
			call.Set[name] = *value
		}
	}
	return askMeta(q, body.NodeID, call)
}

func askMeta(q *request, id string, call nomadrows.MetaCall) error {
	at, err := named(q, id)
	if err != nil {
		return err
	}
	var answer json.RawMessage
	if err := reached(q.Clients.Ask(q.Ctx(), at, nomadrows.CallMeta, call, &answer)); err != nil {
		return err
	}
	return q.JSON(answer)
}
