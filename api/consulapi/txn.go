package consulapi

import (
	"encoding/base64"
	"net/http"
	"strconv"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/grants"
	"corbel.dev/corbel/catalog/local"
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
		Node wireNode
	}
	Service *struct {
		Verb    string
		Node    string
		Service wireService
	}
	Check *struct {
		Verb  string
		Check wireCheck
	}
}

var kvVerbs = map[string]catalog.KVVerb{
	"set": catalog.KVSet, "cas": catalog.KVCAS, "lock": catalog.KVLock, "unlock": catalog.KVUnlock,
	"get": catalog.KVGet, "get-or-empty": catalog.KVGetOrEmpty, "get-tree": catalog.KVGetTree,
	"check-index": catalog.KVCheckIndex, "check-session": catalog.KVCheckSession, "check-not-exists": catalog.KVCheckNotExists,
	"delete": catalog.KVDelete, "delete-tree": catalog.KVDeleteTree, "delete-cas": catalog.KVDeleteCAS,
}

var txnVerbs = map[string]catalog.TxnVerb{
	"get": catalog.TxnGet, "set": catalog.TxnSet, "cas": catalog.TxnCAS, "delete": catalog.TxnDelete, "delete-cas": catalog.TxnDeleteCAS,
}

// op decodes one operation.
func (w *wireTxnOp) op(q *request) (op catalog.TxnOp, err error) {
	set := 0
	for _, there := range [...]bool{w.KV != nil, w.Node != nil, w.Service != nil, w.Check != nil} {
		if there {
			set++
		}
	}
	if set != 1 {
		return op, invalidf("Each operation must have exactly one of KV, Node, Service, Check")
	}
	if w.KV != nil {
		return w.kv(q)
	}
	verb := ""
	switch {
	case w.Node != nil:
		verb, op.Node = w.Node.Verb, w.Node.Node.node()
		op.Node.Datacenter = q.api.cfg.Identity.Datacenter
	case w.Service != nil:
		verb = w.Service.Verb
		if op.Service, err = w.Service.Service.service(w.Service.Node); err == nil {
			err = local.ValidateTags(op.Service.Tags)
		}
	default:
		verb = w.Check.Verb
		op.Check, err = w.Check.Check.check(w.Check.Check.Node)
	}
	if err != nil {
		return op, err
	}
	var ok bool
	if op.Verb, ok = txnVerbs[verb]; !ok {
		return op, invalidf("unknown operation %q", verb)
	}
	return op, nil
}

func (w *wireTxnOp) kv(q *request) (op catalog.TxnOp, err error) {
	verb, ok := kvVerbs[w.KV.Verb]
	if !ok {
		return op, invalidf("unknown KV operation %q", w.KV.Verb)
	}
	if most := q.api.cfg.Limits.KVValueBytes; int64(len(w.KV.Value)) > most {
		return op, errkind.Errorf(errkind.TooLarge, "Value for key %q is too large (%d > %d bytes)", w.KV.Key, len(w.KV.Value), most)
	}
	if w.KV.Key == "" && verb != catalog.KVGetTree && verb != catalog.KVDeleteTree {
		return op, errMissingKey
	}
	op.KV = &catalog.KV{Verb: verb, Pair: catalog.KVPair{Key: w.KV.Key, Value: w.KV.Value, Flags: w.KV.Flags,
		Session: w.KV.Session, ModifyIndex: w.KV.Index}}
	return op, nil
}

// txnRefusals are the operations that the caller has no right for.
func (q *request) txnRefusals(cmd *catalog.Txn) (refused []catalog.TxnError) {
	if q.api.open {
		return nil
	}
	st := q.api.cfg.Registry.State()
	for i := range cmd.Ops {
		if err := grants.MayRun(q.grant, st, &cmd.Ops[i], q.api.cfg.KeyListPolicy); err != nil {
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

func txn(q *request) error {
	most := q.api.cfg.Limits.TxnBytes
	b, err := q.body(most + most/3 + 4*maxTxnOps) // what base64 may add
	if err != nil {
		return err
	}
	var in []wireTxnOp
	if err := decodeJSON(b, &in); err != nil {
		return err
	}
	if n := decodedBytes(b, in); n > most {
		return errkind.Errorf(errkind.TooLarge, "Request body(%d bytes) too large, max size: %d bytes. See limits.txn_max_req_len; values count as they are, without base64.", n, most)
	}
	if len(in) > maxTxnOps {
		return errkind.Errorf(errkind.TooLarge, "Transaction contains too many operations (%d > %d)", len(in), maxTxnOps)
	}
	cmd := &catalog.Txn{Ops: make([]catalog.TxnOp, len(in))}
	for i := range in {
		op, err := in[i].op(q)
		if err != nil {
			return err
		}
		cmd.Ops[i] = op
	}
	if refused := q.txnRefusals(cmd); len(refused) > 0 {
		if q.othersKnowBetter(errkind.New(errkind.Denied, "")) && q.api.cfg.Forward != nil {
			return q.forward(true)
		}
		return q.replyTxn(&catalog.Result{TxnErrors: refused})
	}
	var res catalog.Result
	if cmd.ReadOnly() {
		res, err = q.txnRead(cmd)
	} else {
		q.api.requests.Add(1)
		res, err = q.api.cfg.Registry.Apply(q.r.Context(), cmd)
	}
	if err != nil {
		return err
	}
	if res.Err != nil {
		return refused(res.Err)
	}
	return q.replyTxn(&res)
}

// txnRead answers a transaction that changes nothing from the State, without the log.
func (q *request) txnRead(cmd *catalog.Txn) (catalog.Result, error) {
	if err := q.readParams(); err != nil {
		return catalog.Result{}, err
	}
	contact, err := q.contact()
	if err != nil {
		return catalog.Result{}, err
	}
	res := q.api.cfg.Registry.State().Query(cmd)
	h := q.w.Header()
	h["X-Consul-Knownleader"] = boolHeader(contact.KnownLeader)
	h["X-Consul-Lastcontact"] = contactHeader(contact)
	return res, nil
}

// replyTxn answers with the results, or with what spoke against the transaction.
func (q *request) replyTxn(res *catalog.Result) error {
	// The command's values may lie in the scratch buffer, so the answer gets a buffer of its own.
	buf := make([]byte, 0, 256+128*len(res.Txn))
	if len(res.TxnErrors) > 0 {
		list := listWriter{b: append(buf, `{"Results":null,"Errors":`...)}
		for _, e := range res.TxnErrors {
			b := append(list.next(), `{"OpIndex":`...)
			b = strconv.AppendInt(b, int64(e.OpIndex), 10)
			b = strField(b, `,"What":`, e.What)
			list.b = append(b, '}')
		}
		return q.replyStatus(http.StatusConflict, append(list.end(), '}'))
	}
	list := listWriter{b: append(buf, `{"Results":`...)}
	for i := range res.Txn {
		r := &res.Txn[i]
		switch {
		case r.KV != nil:
			if q.sees(acl.Key, r.KV.Key) {
				list.b = append(appendKVPair(append(list.next(), `{"KV":`...), r.KV), '}')
			}
		case r.Node != nil:
			list.b = append(appendNode(append(list.next(), `{"Node":`...), r.Node), '}')
		case r.Service != nil:
			list.b = append(appendService(append(list.next(), `{"Service":`...), r.Service), '}')
		case r.Check != nil:
			list.b = append(appendCheck(append(list.next(), `{"Check":`...), r.Check), '}')
		}
	}
	return q.reply(append(list.end(), `,"Errors":null}`...))
}
