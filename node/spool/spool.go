// Package spool keeps what is too large for memory while it is on its way, in files without a name: they go when they
// are closed, however the process ends.
//
// A body that was sent ahead belongs to the connection that began it and to the request whose head was judged: its name
// alone takes nobody to it. There are few at a time, and one that nobody goes on with makes room after a minute.
package spool

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
)

// Bounds of bodies that were sent ahead.
const (
	maxUploads     = 4
	maxUploadBytes = 16 << 30
	uploadIdle     = time.Minute
)

// Bodies are those that were sent ahead. Their methods may be called from any goroutine.
type Bodies struct {
	Dir string // "" is the system's folder for temporary files

	mu    sync.Mutex
	parts map[string]*upload
}

type upload struct {
	owner  Owner
	file   *os.File
	size   int64
	newest time.Time
}

// Owner is whose a body is: of the connection that began it, and of the request whose head was judged.
type Owner struct {
	Conn               *wire.Peer // each connection has its own
	Method, URI, Token string
}

// ofLocked finds a body that was begun over the connection.
func (u *Bodies) ofLocked(id string, conn *wire.Peer) *upload {
	if part := u.parts[id]; part != nil && part.owner.Conn == conn {
		return part
	}
	return nil
}

// Piece takes the next piece of a body, which is encoded with its name and its place, from the caller's connection. It
// is the handler of a call.
func (u *Bodies) Piece(ctx context.Context, p []byte) ([]byte, error) {
	rd := pack.Read(p)
	id, offset, data := rd.String(), int64(rd.Uint()), rd.Bytes()
	if rd.Err() != nil {
		return nil, errkind.E(errkind.Invalid, "upload", rd.Err())
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	part := u.ofLocked(id, rpc.Caller(ctx))
	if part == nil || offset != part.size || part.size+int64(len(data)) > maxUploadBytes {
		return nil, errkind.Errorf(errkind.Invalid, "upload: a piece at %d does not fit", offset)
	}
	if _, err := part.file.WriteAt(data, offset); err != nil {
		u.dropLocked(id)
		return nil, errkind.E(errkind.Unavailable, "upload", err)
	}
	part.size += int64(len(data))
	part.newest = time.Now()
	return nil, nil
}

// Begin makes room for a body whose head was judged, and names it.
func (u *Bodies) Begin(o Owner) (string, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for other, part := range u.parts {
		if time.Since(part.newest) > uploadIdle {
			u.dropLocked(other)
		}
	}
	if len(u.parts) >= maxUploads {
		return "", errkind.New(errkind.Overloaded, "too many uploads at a time")
	}
	f, err := TempFile(u.Dir)
	if err != nil {
		return "", errkind.E(errkind.Unavailable, "upload", err)
	}
	if u.parts == nil {
		u.parts = map[string]*upload{}
	}
	id := uuid.NewString()
	u.parts[id] = &upload{owner: o, file: f, newest: time.Now()}
	return id, nil
}

func (u *Bodies) dropLocked(id string) {
	_ = u.parts[id].file.Close() // it has no name: this removes it
	delete(u.parts, id)
}

// Take hands the body over to the request that it belongs to.
func (u *Bodies) Take(id string, o Owner) (io.ReadCloser, int64, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	part := u.ofLocked(id, o.Conn)
	if part == nil || part.owner != o {
		return nil, 0, errkind.New(errkind.Unavailable, "the request's body is not here any more: send it again")
	}
	delete(u.parts, id)
	return &uploadBody{io.NewSectionReader(part.file, 0, part.size), part.file}, part.size, nil
}

type uploadBody struct {
	io.Reader
	io.Closer
}

// Kept says how many bodies there are, and of how many bytes.
func (u *Bodies) Kept() (count int, size int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, part := range u.parts {
		size += part.size
	}
	return len(u.parts), size
}

// Close drops all.
func (u *Bodies) Close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for id := range u.parts {
		u.dropLocked(id)
	}
}

// TempFile returns a file that goes when it is closed, however the process ends.
func TempFile(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, "corbel-spool-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
