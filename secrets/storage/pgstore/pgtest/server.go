// Package pgtest runs a real PostgreSQL for tests: a server of the distribution's in a folder of its own.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/postgres"
)

// Bin finds the folder of initdb and postgres.
func Bin() (string, error) { return postgres.Bin() }

// Server is a real PostgreSQL of this test run, behind a socket in its own folder.
type Server struct {
	dir  string
	proc *spawn.Process
}

// New makes a cluster of databases and starts its server.
func New() (*Server, error) {
	dir, err := os.MkdirTemp("/tmp", "corbel-pg-") // a socket's path is short
	if err != nil {
		return nil, err
	}
	made, err := postgres.Make(context.Background(), dir)
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, proc: &spawn.Process{Name: "postgres", Plain: true, Command: func() *exec.Cmd {
		again := exec.Command(made.Path, made.Args[1:]...)
		again.Dir, again.SysProcAttr = made.Dir, made.SysProcAttr
		again.WaitDelay = time.Second // its children outlive a crash for a while
		return again
	}}}
	return s, s.Start()
}

// Start starts the server and returns when it takes connections. After a SIGKILL the children of the one before may
// still be on their way out; it is tried again until they are gone.
func (s *Server) Start() error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(polltest.Deadline); ; <-tick.C {
		err := s.start()
		if !errors.Is(err, errEnded) || time.Now().After(end) {
			return err
		}
	}
}

// errEnded says that a server ended before it took a connection.
var errEnded = errors.New("postgres ended at once")

func (s *Server) start() error {
	if err := s.proc.Start(); err != nil {
		return err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(polltest.Deadline); ; <-tick.C {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		conn, err := pgx.Connect(ctx, s.URL(""))
		if err == nil {
			_ = conn.Close(ctx)
		}
		cancel()
		if err == nil {
			return nil
		}
		if !s.proc.Running() {
			return fmt.Errorf("%w:\n%s", errEnded, s.proc.Log())
		}
		if time.Now().After(end) {
			return fmt.Errorf("postgres takes no connection: %w", err)
		}
	}
}

// Texts asks the server, as the superuser, and returns the first column of what it answers.
func (s *Server) Texts(ctx context.Context, sql string) ([]string, error) {
	conn, err := pgx.Connect(ctx, s.URL(""))
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// Stop ends the server: SIGINT is an orderly end, SIGQUIT one without a checkpoint, SIGKILL a crash of the first
// process, whose children end when they notice.
func (s *Server) Stop(how syscall.Signal) {
	_ = s.proc.End(how, polltest.Deadline)
}

// URL is how to connect as the superuser; schema "" is the default.
func (s *Server) URL(schema string) string {
	url := fmt.Sprintf("host=%s port=5432 user=corbel dbname=postgres", s.dir)
	if schema != "" {
		url += " search_path=" + schema
	}
	return url
}

// Remove ends the server and takes its folder away.
func (s *Server) Remove() {
	s.Stop(syscall.SIGINT)
	_ = os.RemoveAll(s.dir)
}
