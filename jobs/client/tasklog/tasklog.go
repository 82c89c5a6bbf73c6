// Package tasklog keeps a task's output in rotated files, and reads it as if it were one.
//
// The files are <task>.stdout.N and <task>.stderr.N. N grows for ever; the oldest go when there are more than
// MaxFiles. An offset counts from the start of the oldest file that is kept. A Writer belongs to one goroutine. A
// Reader needs nothing of the Writer but the files, so it works beside a supervisor in another process. Neither follows
// a link out of the folder: tasks may be able to write there, and their logs are written with the agent's rights.
package tasklog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Limits are how much is kept.
type Limits struct {
	MaxFiles     int   // 10
	MaxFileBytes int64 // 10 MiB
}

func (l Limits) complete() Limits {
	if l.MaxFiles <= 0 {
		l.MaxFiles = 10
	}
	if l.MaxFileBytes <= 0 {
		l.MaxFileBytes = 10 << 20
	}
	return l
}

// Writer writes one stream of a task.
type Writer struct {
	dir, name string // name is task.stdout
	limits    Limits
	file      *os.File
	number    int
	size      int64
}

// NewWriter goes on with the newest file in dir, which must be there. name is task.stdout or task.stderr.
func NewWriter(dir, name string, limits Limits) (*Writer, error) {
	w := &Writer{dir: dir, name: name, limits: limits.complete()}
	list, err := files(dir, name)
	if err != nil {
		return nil, err
	}
	if len(list) > 0 {
		w.number = list[len(list)-1].number
	}
	return w, w.open()
}

func (w *Writer) path(n int) string { return filepath.Join(w.dir, w.name+"."+strconv.Itoa(n)) }

func (w *Writer) open() error {
	root, err := os.OpenRoot(w.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	f, err := root.OpenFile(filepath.Base(w.path(w.number)), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	w.file, w.size = f, info.Size()
	return nil
}

// Write implements io.Writer. What a task says is never a reason to stop it: a disk that takes nothing loses output.
func (w *Writer) Write(p []byte) (int, error) {
	rest := p
	for len(rest) > 0 {
		if w.file == nil || w.size >= w.limits.MaxFileBytes {
			if err := w.rotate(); err != nil {
				return len(p), nil
			}
		}
		n := int(min(int64(len(rest)), w.limits.MaxFileBytes-w.size))
		written, err := w.file.Write(rest[:n])
		w.size += int64(written)
		if err != nil {
			return len(p), nil
		}
		rest = rest[n:]
	}
	return len(p), nil
}

func (w *Writer) rotate() error {
	if w.file != nil {
		_ = w.file.Close()
		w.file = nil
		w.number++
	}
	if err := w.open(); err != nil {
		return err
	}
	list, err := files(w.dir, w.name)
	if err != nil {
		return err
	}
	for len(list) > w.limits.MaxFiles {
		if err := os.Remove(w.path(list[0].number)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		list = list[1:]
	}
	return nil
}

// Close closes the newest file.
func (w *Writer) Close() error {
	if w.file == nil {
		return nil
	}
	return w.file.Close()
}

// part is a file of a stream.
type part struct {
	number int
	size   int64
}

// files are those of a stream, the oldest first.
func files(dir, name string) (list []part, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		tail, ok := strings.CutPrefix(e.Name(), name+".")
		n, err := strconv.Atoi(tail)
		if !ok || err != nil || !e.Type().IsRegular() || n < 0 {
			continue
		}
		if info, err := e.Info(); err == nil {
			list = append(list, part{n, info.Size()})
		}
	}
	slices.SortFunc(list, func(a, b part) int { return a.number - b.number })
	return list, nil
}

// Name is a stream's.
func Name(task string, stderr bool) string {
	if stderr {
		return task + ".stderr"
	}
	return task + ".stdout"
}

// Cursor is a place in a stream.
type Cursor struct {
	dir, name string
	number    int // of the file
	offset    int64
	started   bool
}

// Open finds the place offset bytes after the start of what is kept, or before its end.
func Open(dir, name string, offset int64, atEnd bool) (*Cursor, error) {
	list, err := files(dir, name)
	if err != nil {
		return nil, err
	}
	c := &Cursor{dir: dir, name: name}
	if len(list) == 0 {
		return c, nil
	}
	var total int64
	for _, f := range list {
		total += f.size
	}
	if atEnd {
		offset = total - offset
	}
	offset = min(max(offset, 0), total)
	for i, f := range list {
		if offset < f.size || i == len(list)-1 {
			c.number, c.offset, c.started = f.number, offset, true
			break
		}
		offset -= f.size
	}
	return c, nil
}

// Piece is what was read of a file.
type Piece struct {
	File   string
	Offset int64 // of the end of Data, in the file
	Data   []byte
}

// Next reads at most len(buf) bytes that follow; Data is empty when nothing does, for now. A file that was rotated
// away before it was read is skipped.
func (c *Cursor) Next(buf []byte) (Piece, error) {
	for range 1 << 16 {
		list, err := files(c.dir, c.name)
		if err != nil {
			return Piece{}, err
		}
		at := slices.IndexFunc(list, func(f part) bool { return f.number >= c.number })
		if at < 0 {
			return Piece{}, nil
		}
		if !c.started || list[at].number > c.number {
			c.number, c.offset, c.started = list[at].number, 0, true
		}
		piece, err := c.read(buf)
		if len(piece.Data) > 0 || err != nil {
			return piece, err
		}
		if at == len(list)-1 {
			return Piece{}, nil
		}
		c.number, c.offset = list[at+1].number, 0
	}
	return Piece{}, fmt.Errorf("%s rotates faster than it is read", c.name)
}

func (c *Cursor) read(buf []byte) (Piece, error) {
	file := c.name + "." + strconv.Itoa(c.number)
	root, err := os.OpenRoot(c.dir)
	if err != nil {
		return Piece{}, err
	}
	defer root.Close()
	f, err := root.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return Piece{}, nil
	} else if err != nil {
		return Piece{}, err
	}
	defer f.Close()
	n, err := f.ReadAt(buf, c.offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return Piece{}, err
	}
	if n == 0 {
		return Piece{}, nil
	}
	c.offset += int64(n)
	return Piece{File: file, Offset: c.offset, Data: buf[:n]}, nil
}
