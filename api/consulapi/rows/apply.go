package rows

import (
	"context"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/registry"
)

// Apply proposes a command; what the catalog refuses is an error.
func (c *Core) Apply(ctx context.Context, cmd catalog.Command) (catalog.Result, error) {
	c.Requests.Add(1)
	res, err := c.Registry.Apply(ctx, cmd)
	if err == nil && res.Err != nil {
		err = answer.Refused(res.Err)
	}
	return res, err
}

// SetRecords proposes the operations, all or none. It is false when an index did not compare.
func (q *Request) SetRecords(ops ...catalog.RecordOp) (bool, error) {
	res, err := q.Registry.Apply(q.R.Context(), &catalog.Records{Ops: ops})
	if err == nil {
		err = res.Err
	}
	if err != nil {
		return false, answer.Refused(err)
	}
	return res.OK, nil
}

// ReadRecords is Read for an answer that depends on all records of a kind.
func (q *Request) ReadRecords(kind catalog.RecordKind) (*catalog.State, error) {
	return q.Read(registry.RecordsSubject(kind), func(s *catalog.State) uint64 { return s.RecordsIndex(kind) })
}

// ReadRecord is Read for an answer that depends on one record.
func (q *Request) ReadRecord(kind catalog.RecordKind, key string) (*catalog.State, error) {
	return q.Read(registry.RecordSubject(kind, key), func(s *catalog.State) uint64 { return s.RecordIndex(kind, key) })
}

// Done answers a change that gives nothing back.
func (q *Request) Done(err error) error {
	if err != nil {
		return err
	}
	return q.ReplyBool(true)
}
