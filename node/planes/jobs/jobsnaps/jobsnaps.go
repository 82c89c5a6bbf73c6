// Package jobsnaps saves the state of the jobs plane as archives, has one replace it, and looks into them. It works on
// each server of the plane: what the leader has to do goes there in pieces.
//
// What is on its way is spooled beside the data, in files without a name; there are few at a time (node/spool), and one
// restore. Nothing changes before an archive was verified to its last byte.
package jobsnaps

import (
	"context"
	"errors"
	"io"
	"os"

	"corbel.dev/corbel/core/group/snapshot"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/jobs/jobstore"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/node/plane"
	"corbel.dev/corbel/node/raftgroup"
	"corbel.dev/corbel/node/spool"
)

// The RPCs by which archives go between the server that is asked and the leader, in pieces, so that no server holds one
// in memory. Who may ask is judged by the first, before the first piece.
const (
	methodSave    = "jobs.snapshot.save"    // a stream of pieces
	methodOffer   = "jobs.snapshot.offer"   // makes room for an archive, and names it
	methodPiece   = "jobs.snapshot.piece"   // takes a piece of it
	methodRestore = "jobs.snapshot.restore" // has it replace everything; a stream with the index
)

// pieceBytes is how much of an archive goes at once.
const pieceBytes = 256 << 10

// Snapshots implements nomadrows.Snapshots on each server, by way of the leader. It is safe for concurrent use.
type Snapshots struct {
	raft   *raftgroup.Group
	store  *jobstore.Store
	dir    string
	bodies *spool.Bodies // for this server, while it leads
	turn   chan struct{} // capacity 1: one restore at a time, for each is raised above the one before
}

// New has the process answer the other servers, too. raft is the group of the plane whose state store has.
func New(d *plane.Doors, raft *raftgroup.Group, store *jobstore.Store) *Snapshots {
	s := &Snapshots{raft: raft, store: store, dir: d.Cfg.DataDir, bodies: &spool.Bodies{Dir: d.Cfg.DataDir},
		turn: make(chan struct{}, 1)}
	d.HandleStream(wire.Servers, methodSave, s.serveSave)
	d.Handle(wire.Servers, methodOffer, s.serveOffer)
	d.Handle(wire.Servers, methodPiece, s.bodies.Piece)
	d.HandleStream(wire.Servers, methodRestore, s.serveRestore)
	return s
}

// Close drops what is on its way.
func (s *Snapshots) Close() { s.bodies.Close() }

func (s *Snapshots) leads() error {
	if !s.raft.IsLeader() {
		return errkind.New(errkind.NotLeader, "No cluster leader")
	}
	return nil
}

// Save implements nomadrows.Snapshots.
func (s *Snapshots) Save(ctx context.Context, stale bool) (out io.ReadSeekCloser, err error) {
	if stale {
		return s.saved(s.raft.SaveArchive(ctx, s.dir))
	}
	err = s.raft.Hold(ctx, func() (err error) {
		if s.raft.IsLeader() {
			if err := s.raft.VerifyLeader(ctx); err != nil {
				return err
			}
			out, err = s.saved(s.raft.SaveArchive(ctx, s.dir))
			return err
		}
		addr, err := s.raft.Target()
		if err == nil {
			out, err = s.saved(s.fetch(ctx, addr))
		}
		return err
	})
	return out, err
}

// saved keeps a nil file from becoming a reader.
func (s *Snapshots) saved(f *os.File, err error) (io.ReadSeekCloser, error) {
	if err != nil {
		return nil, err
	}
	return f, nil
}

// fetch has the leader's archive in a file, at its beginning.
func (s *Snapshots) fetch(ctx context.Context, addr string) (*os.File, error) {
	stream, err := s.raft.Base.RPC.Stream(ctx, addr, methodSave, nil)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	f, err := spool.TempFile(s.dir)
	if err != nil {
		return nil, errkind.E(errkind.Unavailable, "spool the snapshot", err)
	}
	for err == nil {
		var piece []byte
		if piece, err = stream.Recv(); err == nil {
			_, err = f.Write(piece)
		}
	}
	if errors.Is(err, io.EOF) {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		_ = f.Close() // the first error is the one to report
		return nil, err
	}
	return f, nil
}

func (s *Snapshots) serveSave(ctx context.Context, _ []byte, send func([]byte) error) error {
	if err := s.leads(); err != nil {
		return err
	}
	if err := s.raft.VerifyLeader(ctx); err != nil {
		return err
	}
	f, err := s.raft.SaveArchive(ctx, s.dir)
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		piece := make([]byte, pieceBytes) // what was sent may still be on its way
		n, err := io.ReadFull(f, piece)
		if n > 0 {
			if err := send(piece[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return errkind.E(errkind.Unavailable, "read the snapshot", err)
		}
	}
}

// Restore implements nomadrows.Snapshots.
func (s *Snapshots) Restore(ctx context.Context, in io.Reader) (uint64, error) {
	id, addr := "", ""
	err := s.raft.Hold(ctx, func() (err error) { // nothing was read yet: it may be tried again
		if s.raft.IsLeader() {
			addr = ""
			return s.raft.VerifyLeader(ctx)
		}
		if addr, err = s.raft.Target(); err != nil {
			return err
		}
		answer, err := s.raft.Base.RPC.Call(ctx, addr, methodOffer, nil)
		if err == nil {
			r := pack.Read(answer)
			id = r.String()
			err = r.Err()
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	if addr == "" {
		return s.replace(ctx, in)
	}
	if err := s.push(ctx, addr, id, in); err != nil {
		return 0, err
	}
	stream, err := s.raft.Base.RPC.Stream(ctx, addr, methodRestore, pack.String(nil, id))
	if err != nil {
		return 0, err
	}
	defer stream.Close()
	answer, err := stream.Recv()
	if err != nil {
		return 0, err
	}
	r := pack.Read(answer)
	index := r.Uint()
	return index, r.Err()
}

// push sends an archive to the leader, as what it named id.
func (s *Snapshots) push(ctx context.Context, addr, id string, in io.Reader) error {
	buf := make([]byte, pieceBytes)
	for offset := uint64(0); ; {
		n, err := io.ReadFull(in, buf)
		if n > 0 {
			if _, err := s.raft.Base.RPC.Call(ctx, addr, methodPiece, pack.Bytes(pack.Uint(pack.String(nil, id), offset),
				buf[:n])); err != nil {
				return err
			}
			offset += uint64(n)
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return unread(err)
		}
	}
}

// unread is the error of an archive that did not come to its end. One that has a kind is that of the right to send it.
func unread(err error) error {
	if kind := errkind.Of(err); kind != errkind.Internal {
		return err
	}
	return errkind.E(errkind.Invalid, "read the snapshot", err)
}

func (s *Snapshots) serveOffer(ctx context.Context, _ []byte) ([]byte, error) {
	if err := s.leads(); err != nil {
		return nil, err
	}
	id, err := s.bodies.Begin(spool.Owner{Conn: rpc.Caller(ctx)})
	if err != nil {
		return nil, err
	}
	return pack.String(nil, id), nil
}

func (s *Snapshots) serveRestore(ctx context.Context, req []byte, send func([]byte) error) error {
	r := pack.Read(req)
	id := r.String()
	if r.Err() != nil {
		return errkind.E(errkind.Invalid, methodRestore, r.Err())
	}
	body, _, err := s.bodies.Take(id, spool.Owner{Conn: rpc.Caller(ctx)})
	if err != nil {
		return err
	}
	defer body.Close()
	if err := s.leads(); err != nil {
		return err
	}
	index, err := s.replace(ctx, body)
	if err != nil {
		return err
	}
	return send(pack.Uint(nil, index))
}

// replace has an archive replace everything. This server leads.
//
// Its indexes are raised here, once, and not where each server takes the snapshot: what they have must be the same.
func (s *Snapshots) replace(ctx context.Context, in io.Reader) (uint64, error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	default:
		return 0, errkind.New(errkind.Overloaded, "another snapshot is being restored: try again when it is done")
	}
	state, meta, err := raftgroup.ReadArchive(in, s.dir)
	if err != nil {
		return 0, err
	}
	defer state.Close()
	if err := s.raft.VerifyLeader(ctx); err != nil { // what was acknowledged is in this server's state from here on
		return 0, err
	}
	present := s.store.View().State.Index()
	var next *jobstore.View
	err = snapshot.Read(state, func(r io.Reader) (err error) {
		next, err = jobstore.ReadRaised(r, present)
		return err
	})
	if err != nil {
		return 0, foreign(err)
	}
	raised, err := spool.TempFile(s.dir)
	if err != nil {
		return 0, errkind.E(errkind.Unavailable, "spool the snapshot", err)
	}
	defer raised.Close()
	if err := snapshot.Write(raised, next); err != nil {
		return 0, errkind.E(errkind.Unavailable, "spool the snapshot", err)
	}
	if _, err := raised.Seek(0, io.SeekStart); err != nil {
		return 0, errkind.E(errkind.Unavailable, "spool the snapshot", err)
	}
	g := s.raft.Raft.Load()
	if g == nil {
		return 0, raftgroup.ErrForming
	}
	if err := g.Restore(ctx, raised); err != nil {
		return 0, err
	}
	s.raft.Base.Log.Info("the state of the jobs plane was replaced by a snapshot", "id", meta.ID, "bytes", meta.Size,
		"was", present, "index", next.State.Index())
	return next.State.Index(), nil
}

// foreign says whose snapshots can be restored, where the archive is whole and its state is not the plane's.
func foreign(err error) error {
	return errkind.Errorf(errkind.Invalid, "%s: the archive must be one of `nomad operator snapshot save` of Corbel's "+
		"jobs plane; the catalog's belongs to `corbel snapshot restore`, and Nomad's own servers are brought over with "+
		"`corbel import nomad`", errkind.Text(err))
}
