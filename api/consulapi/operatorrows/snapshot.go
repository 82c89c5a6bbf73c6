package operatorrows

import (
	"io"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/kit/errkind"
)

// snapshotSave answers with an archive. Unless it may be stale it comes from the
// leader, after a quorum has confirmed that it leads.
func (or *Rows) snapshotSave(q *rows.Request) error {
	if err := q.Allow(acl.ACL, "", acl.Write); err != nil {
		return err
	}
	if err := q.ReadParams(); err != nil {
		return err
	}
	if or.Snapshots == nil {
		return answer.ErrNoServers
	}
	if q.Mode != registry.Stale {
		q.Mode = registry.Consistent
	}
	contact, err := q.Contact()
	if err != nil {
		return err // NotLeader: fail forwards
	}
	archive, index, err := or.Snapshots.Save(q.R.Context())
	if err != nil {
		return err
	}
	defer archive.Close()
	q.ReadHeaders(contact, index)
	q.W.Header()["Content-Type"] = []string{"application/x-gzip"}
	if _, err := io.Copy(q.W, q.Standing().Reader(archive)); err != nil {
		q.Logger.Warn("a snapshot was not sent completely", "err", err)
		answer.Cut()
	}
	return nil
}

// snapshotRestore replaces everything by what the archive holds. Blocked queries return.
func (or *Rows) snapshotRestore(q *rows.Request) error {
	if err := q.Allow(acl.ACL, "", acl.Write); err != nil {
		return err
	}
	if or.Snapshots == nil {
		return answer.ErrNoServers
	}
	// Asked before the body is read: it can be passed on only once.
	if _, err := q.Registry.Read(q.R.Context(), registry.Consistent); err != nil {
		return err
	}
	switch err := or.Snapshots.Restore(q.R.Context(), q.Standing().Reader(q.R.Body)); {
	case errkind.Is(err, errkind.Corrupt):
		return errkind.E(errkind.Invalid, "failed to restore", err)
	case err != nil:
		return err
	}
	return q.ReplyEmpty()
}
