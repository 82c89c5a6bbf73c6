package kvrows

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/bodies"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/definition"
	"corbel.dev/corbel/catalog/grants"
	"corbel.dev/corbel/kit/errkind"
)

// maxTxnOps is the contract's bound on the operations of one transaction.
const maxTxnOps = 128

type wireTxnOp struct {
	KV *struct {
		Verb    string
		Key     string
		Value   []byte
		Flags   uint64
		Index   uint64
		Session string
	}
	Node *struct {
		Verb string
		Node bodies.Node
	}
	Service *struct {
		Verb    string
		Node    string
		Service bodies.Service
	}
	Check *struct {
		Verb  string
		Check bodies.Check
	}
}

var kvVerbs = map[string]catalog.KVVerb{
	"set": catalog.KVSet, "cas": catalog.KVCAS, "lock": catalog.KVLock, "unlock": catalog.KVUnlock,
	"get": catalog.KVGet, "get-or-empty": catalog.KVGetOrEmpty, "get-tree": catalog.KVGetTree,
	"check-index": catalog.KVCheckIndex, "check-session": catalog.KVCheckSession,
	"check-not-exists": catalog.KVCheckNotExists,
	"delete":           catalog.KVDelete, "delete-tree": catalog.KVDeleteTree, "delete-cas": catalog.KVDeleteCAS,
}

var txnVerbs = map[string]catalog.TxnVerb{
	"get": catalog.TxnGet, "set": catalog.TxnSet, "cas": catalog.TxnCAS, "delete": catalog.TxnDelete,
	"delete-cas": catalog.TxnDeleteCAS,
}

// refusal is what makes a transaction fail as a whole: 409 with the operation's number.
type refusal string

// Error implements error.
func (r refusal) Error() string { return string(r) }

func weightsOr1(w catalog.Weights) catalog.Weights {
	if w == (catalog.Weights{}) {
		return catalog.Weights{Passing: 1, Warning: 1}
	}
	return w
}

func (w *wireTxnOp) empty() bool {
	return w.KV == nil && w.Node == nil && w.Service == nil && w.Check == nil
}

// op decodes one operation.
func (w *wireTxnOp) op(q *rows.Request) (op catalog.TxnOp, err error) {
	set := 0
	for _, there := range [...]bool{w.KV != nil, w.Node != nil, w.Service != nil, w.Check != nil} {
		if there {
			set++
		}
	}
	if set > 1 {
		return op, answer.Invalidf("Each operation must have exactly one of KV, Node, Service, Check")
	}
	if w.KV != nil {
		return w.kv(q)
	}
	verb := ""
	switch {
	case w.Node != nil:
		verb, op.Node = w.Node.Verb, w.Node.Node.Catalog()
		op.Node.Datacenter = q.Identity.Datacenter
	case w.Service != nil:
		verb = w.Service.Verb
		if op.Service, err = w.Service.Service.Catalog(w.Service.Node); err == nil {
			err = definition.ValidateTags(op.Service.Tags)
		}
		if verb != "get" && !strings.HasPrefix(verb, "delete") {
			op.Service.Weights = weightsOr1(op.Service.Weights)
			if err == nil && op.Service.Name == "" {
				err = refusal("Must provide service name")
			}
		}
	default:
		verb = w.Check.Verb
		op.Check, err = w.Check.Check.Catalog(w.Check.Check.Node)
	}
	if err != nil {
		return op, err
	}
	var ok bool
	if op.Verb, ok = txnVerbs[verb]; !ok {
		return op, refusal(fmt.Sprintf("unknown operation %q", verb))
	}
	return op, nil
}

func (w *wireTxnOp) kv(q *rows.Request) (op catalog.TxnOp, err error) {
	verb, ok := kvVerbs[w.KV.Verb]
	if !ok {
		return op, refusal(fmt.Sprintf("unknown KV verb %q", w.KV.Verb))
	}
	if most := q.Limits.KVValueBytes; int64(len(w.KV.Value)) > most {
		return op, errkind.Errorf(errkind.TooLarge, "Value for key %q is too large (%d > %d bytes)", w.KV.Key,
			len(w.KV.Value), most)
	}
	if w.KV.Key == "" && verb != catalog.KVGetTree && verb != catalog.KVDeleteTree {
		return op, errMissingKey
	}
	op.KV = &catalog.KV{Verb: verb, Pair: catalog.KVPair{Key: w.KV.Key, Value: w.KV.Value, Flags: w.KV.Flags,
		Session: w.KV.Session, ModifyIndex: w.KV.Index, By: rows.Author(q.Grant, q.Clock.Now())}}
	return op, nil
}

// txnRefusals are the operations that the caller has no right for.
func (kr *Rows) txnRefusals(q *rows.Request, cmd *catalog.Txn) (refused []catalog.TxnError) {
	if q.Open {
		return nil
	}
	st := q.Registry.State()
	for i := range cmd.Ops {
		if err := grants.MayRun(q.Grant, st, &cmd.Ops[i], kr.KeyListPolicy); err != nil {
			refused = append(refused, catalog.TxnError{OpIndex: i, What: errkind.Text(err)})
		}
	}
	return refused
}

// decodedBytes is the size of a transaction as limits.txn_max_req_len counts it: of its
// body, but with each value at its own size, not at that of its base64.
func decodedBytes(body []byte, ops []wireTxnOp) int64 {
	n := len(body)
	for i := range ops {
		if kv := ops[i].KV; kv != nil {
			n -= base64.StdEncoding.EncodedLen(len(kv.Value)) - len(kv.Value)
		}
	}
	return int64(n)
}

func (kr *Rows) txn(q *rows.Request) error {
	most := q.Limits.TxnBytes
	b, err := q.Body(most + most/3 + 4*maxTxnOps) // what base64 may add
	if err != nil {
		return err
	}
	var in []wireTxnOp
	if err := bodies.Decode(b, &in); err != nil {
		return err
	}
	if n := decodedBytes(b, in); n > most {
		return errkind.Errorf(errkind.TooLarge, "Request body(%d bytes) too large, max size: %d bytes. See "+
			"limits.txn_max_req_len; values count as they are, without base64.", n, most)
	}
	if len(in) > maxTxnOps {
		return errkind.Errorf(errkind.TooLarge, "Transaction contains too many operations (%d > %d)", len(in), maxTxnOps)
	}
	in = slices.DeleteFunc(in, func(w wireTxnOp) bool { return w.empty() }) // stock passes them over
	cmd := &catalog.Txn{Ops: make([]catalog.TxnOp, len(in))}
	var failed []catalog.TxnError
	for i := range in {
		op, err := in[i].op(q)
		if r, ok := err.(refusal); ok {
			failed = append(failed, catalog.TxnError{OpIndex: i, What: string(r)})
		} else if err != nil {
			return err
		}
		cmd.Ops[i] = op
	}
	if len(failed) > 0 {
		return replyTxn(q, &catalog.Result{TxnErrors: failed}, "")
	}
	if refused := kr.txnRefusals(q, cmd); len(refused) > 0 {
		if q.OthersKnowBetter(errkind.New(errkind.Denied, "")) && q.Forward != nil {
			return q.PassOn(true)
		}
		return replyTxn(q, &catalog.Result{TxnErrors: refused}, "")
	}
	var res catalog.Result
	meta := ""
	if cmd.ReadOnly() && len(cmd.Ops) > 0 {
		res, meta, err = txnRead(q, cmd)
	} else {
		res, err = q.Apply(cmd)
	}
	if err != nil {
		return err
	}
	return replyTxn(q, &res, meta)
}

// txnRead answers a transaction that changes nothing from the State, without the log.
func txnRead(q *rows.Request, cmd *catalog.Txn) (res catalog.Result, meta string, err error) {
	if err := q.ReadParams(); err != nil {
		return res, "", err
	}
	contact, err := q.Contact()
	if err != nil {
		return res, "", err
	}
	res = q.Registry.State().Query(cmd)
	h := q.W.Header()
	h["X-Consul-Knownleader"] = rows.BoolHeader(contact.KnownLeader)
	h["X-Consul-Lastcontact"] = rows.ContactHeader(contact)
	return res, rows.MetaFields(contact), nil
}

// replyTxn answers with the results, or with what spoke against the transaction; meta are fields after them.
func replyTxn(q *rows.Request, res *catalog.Result, meta string) error {
	// The command's values may lie in the scratch buffer, so the answer gets a buffer of its own.
	buf := make([]byte, 0, 256+128*len(res.Txn))
	if len(res.TxnErrors) > 0 {
		list := answer.List{Bytes: append(buf, `{"Results":null,"Errors":`...)}
		for _, e := range res.TxnErrors {
			b := append(list.Next(), `{"OpIndex":`...)
			b = strconv.AppendInt(b, int64(e.OpIndex), 10)
			b = answer.StringField(b, `,"What":`, e.What)
			list.Bytes = append(b, '}')
		}
		return q.ReplyStatus(http.StatusConflict, append(list.End(), '}'))
	}
	list := answer.List{Bytes: append(buf, `{"Results":`...)}
	for i := range res.Txn {
		r := &res.Txn[i]
		switch {
		case r.KV != nil:
			if q.Sees(acl.Key, r.KV.Key) {
				list.Bytes = append(answer.AppendKVPair(append(list.Next(), `{"KV":`...), r.KV), '}')
			}
		case r.Node != nil:
			list.Bytes = append(answer.AppendNode(append(list.Next(), `{"Node":`...), r.Node), '}')
		case r.Service != nil:
			list.Bytes = append(answer.AppendService(append(list.Next(), `{"Service":`...), r.Service), '}')
		case r.Check != nil:
			list.Bytes = append(answer.AppendCheck(append(list.Next(), `{"Check":`...), r.Check), '}')
		}
	}
	return q.Reply(append(append(append(list.End(), `,"Errors":null`...), meta...), '}'))
}
