package consulapi

import (
	"io"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/kit/errkind"
)

const snapshotPattern = "/v1/snapshot"

var snapshotRoutes = []route{
	{"GET", snapshotPattern, read, acl.ACL, snapshotSave},
	{"PUT", snapshotPattern, write, acl.ACL, snapshotRestore},
}

// snapshotSave answers with an archive. Unless it may be stale it comes from the
// leader, after a quorum has confirmed that it leads.
func snapshotSave(q *request) error {
	if err := q.allow(acl.ACL, "", acl.Write); err != nil {
		return err
	}
	if err := q.readParams(); err != nil {
		return err
	}
	if q.api.cfg.Snapshots == nil {
		return answer.ErrNoServers
	}
	if q.mode != registry.Stale {
		q.mode = registry.Consistent
	}
	contact, err := q.contact()
	if err != nil {
		return err // NotLeader: fail forwards
	}
	archive, index, err := q.api.cfg.Snapshots.Save(q.r.Context())
	if err != nil {
		return err
	}
	defer archive.Close()
	q.readHeaders(contact, index)
	q.w.Header()["Content-Type"] = []string{"application/x-gzip"}
	if _, err := io.Copy(q.w, q.standing().Reader(archive)); err != nil {
		q.api.cfg.Logger.Warn("a snapshot was not sent completely", "err", err)
		answer.Cut()
	}
	return nil
}

// snapshotRestore replaces everything by what the archive holds. Blocked queries return.
func snapshotRestore(q *request) error {
	if err := q.allow(acl.ACL, "", acl.Write); err != nil {
		return err
	}
	if q.api.cfg.Snapshots == nil {
		return answer.ErrNoServers
	}
	// Asked before the body is read: it can be passed on only once.
	if _, err := q.api.cfg.Registry.Read(q.r.Context(), registry.Consistent); err != nil {
		return err
	}
	switch err := q.api.cfg.Snapshots.Restore(q.r.Context(), q.standing().Reader(q.r.Body)); {
	case errkind.Is(err, errkind.Corrupt):
		return errkind.E(errkind.Invalid, "failed to restore", err)
	case err != nil:
		return err
	}
	return q.replyEmpty()
}
