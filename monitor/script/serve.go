package script

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
)

const (
	// overtime is how long a built-in function may go on after its program should have ended, before the child ends
	// itself.
	overtime = 50 * time.Millisecond
	// prepareTime is how long a program and its library may take to be read and made ready.
	prepareTime = 2 * libraryLimit
	// maxData is what the kernel grants a child's memory beyond what it has when it begins.
	maxData = 64 << 20
	// maxStack bounds the child's own stacks: a text whose brackets nest a million deep ends the child at once.
	maxStack = 32 << 20

	exitOvertime = 3
)

// Serve is the child: it runs the tasks that in brings, one after the other, and answers on out, until in ends. It
// gives up what a program does not need first: memory, processors' time beyond its turn, core dumps.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	debug.SetMaxStack(maxStack)
	debug.SetMemoryLimit(maxData * 3 / 4)
	if err := confine(maxData); err != nil {
		return fmt.Errorf("limit the memory of scripts: %w", err)
	}
	s := &server{machine: newMachine(), sources: map[[32]byte]*Program{}, libraries: map[[32]byte]*Library{}}
	for {
		body, err := readFrame(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		r, code, err := s.task(ctx, body)
		if err := writeFrame(out, encodeAnswer(r, code, err)); err != nil {
			return err
		}
	}
}

type server struct {
	machine   *machine
	sources   map[[32]byte]*Program
	libraries map[[32]byte]*Library
}

func (s *server) task(ctx context.Context, body []byte) (Result, uint64, error) {
	t, known, err := s.decode(body)
	switch {
	case err != nil:
		return Result{}, threw, errkind.E(errkind.Internal, "a task of JavaScript", err)
	case !known:
		return Result{}, unknownText, nil
	}
	// Reading the program, and making a runtime with its library ready, is not the program's own time.
	late := time.AfterFunc(prepareTime, func() { os.Exit(exitOvertime) })
	defer late.Stop()
	t.begins = func() { late.Reset(t.limit() + overtime) }
	r, err := s.machine.run(ctx, t)
	switch {
	case errors.Is(err, ErrTime):
		return r, ranLong, err
	case errors.Is(err, ErrMemory):
		return r, neededMuch, err
	case err != nil:
		return r, threw, err
	}
	return r, answered, nil
}

func (s *server) decode(body []byte) (t Task, known bool, err error) {
	r := pack.Read(body)
	id := identity(r)
	t.Program = s.sources[id]
	isBody := r.Bool()
	if r.Bool() {
		if t.Program, err = newProgram(r.String(), isBody); err != nil {
			return t, false, err
		}
		if len(s.sources) >= maxPrograms {
			clear(s.sources)
		}
		s.sources[id] = t.Program
	}
	known = t.Program != nil
	if r.Bool() {
		id := identity(r)
		t.Library = s.libraries[id]
		if r.Bool() {
			if t.Library, err = NewLibrary(r.Strings()); err != nil {
				return t, false, err
			}
			if len(s.libraries) >= maxLibraries {
				clear(s.libraries)
			}
			s.libraries[id] = t.Library
		}
		known = known && t.Library != nil
	}
	t.Limit = time.Duration(r.Int())
	t.After, t.check, t.mayAsk = r.Bool(), r.Bool(), r.Bool()
	for range r.Count() {
		if t.fetched == nil {
			t.fetched = map[string]string{}
		}
		name := r.String()
		t.fetched[name] = r.String()
	}
	for range r.Count() {
		v := Var{Name: r.String()}
		if r.Bool() {
			v.JSON = r.Bytes()
		} else {
			v.Text = r.String()
		}
		t.Vars = append(t.Vars, v)
	}
	return t, known, r.Err()
}

func identity(r *pack.Reader) (id [sha256.Size]byte) {
	copy(id[:], r.Bytes())
	return id
}
