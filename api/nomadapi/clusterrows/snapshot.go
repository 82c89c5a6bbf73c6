package clusterrows

import (
	"crypto/sha256"
	"encoding/base64"
	"io"
	"strconv"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/kit/errkind"
)

// saveSnapshot answers with an archive. Its digest goes before it, by which clients know that they have all of it.
func saveSnapshot(q *request) error {
	archive, err := q.Snapshots.Save(q.Ctx(), q.Stale())
	if err != nil {
		return err
	}
	defer archive.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, archive)
	if err == nil {
		_, err = archive.Seek(0, io.SeekStart)
	}
	if err != nil {
		return errkind.E(errkind.Unavailable, "read the snapshot", err)
	}
	h := q.W.Header()
	h["Content-Type"] = []string{"application/x-gzip"}
	h["Content-Length"] = []string{strconv.FormatInt(size, 10)}
	h["Digest"] = []string{"sha-256=" + base64.StdEncoding.EncodeToString(sum.Sum(nil))}
	if _, err := io.Copy(q.W, q.While(nomadrows.Management, archive)); err != nil {
		q.Log.Warn("a snapshot was not sent completely", "error", err) // the client misses bytes, and is told so
	}
	return nil
}

// restoreSnapshot replaces everything by what an archive has. Whoever waits for a change is answered.
func restoreSnapshot(q *request) error {
	index, err := q.Snapshots.Restore(q.Ctx(), q.While(nomadrows.Management, q.R.Body))
	switch {
	case errkind.Is(err, errkind.Corrupt), errkind.Is(err, errkind.Invalid):
		return nomadrows.BadRequest("failed to restore: %s", errkind.Text(err))
	case err != nil:
		return err
	}
	return q.Wrote(index, nil)
}
