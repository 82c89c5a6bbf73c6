//go:build unix

package supervisor

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"corbel.dev/corbel/jobs/client/tasklog"
)

// pipeGrace is how long after the end of all processes what they wrote may take to arrive.
const pipeGrace = 2 * time.Second

// answerFD is the pipe to the agent, as exec.Cmd's ExtraFiles counts.
const answerFD = 3

// Main is the supervisor: args are what follows ChildCommand. It returns the exit code.
func Main(args []string) int {
	if len(args) == 2 && args[0] == isolateCommand {
		return isolated(args[1])
	}
	if len(args) > 0 && args[0] == enterCommand {
		return enter(args[1:])
	}
	if len(args) != 1 {
		return 2
	}
	// Caught and dropped, not ignored: a process inherits what its parent ignores, and a shell could not trap it then.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	adopt()
	dir, answer := args[0], os.NewFile(answerFD, "answer")
	syscall.CloseOnExec(answerFD)
	s := &supervisor{dir: dir}
	err := s.start()
	if err == nil {
		err = write(filepath.Join(dir, pidsFile), &s.pids)
		if err != nil {
			_ = syscall.Kill(-s.pids.Process, syscall.SIGKILL)
		}
	}
	if err != nil {
		text, _ := json.Marshal(map[string]string{"Error": err.Error()})
		_, _ = answer.Write(text)
		_ = answer.Close()
		_ = write(filepath.Join(dir, endedFile), &ended{Code: -1, Error: err.Error(), At: time.Now()})
		return 1
	}
	text, _ := json.Marshal(&s.pids)
	_, _ = answer.Write(text)
	_ = answer.Close()
	if err := write(filepath.Join(dir, endedFile), s.wait()); err != nil {
		return 1
	}
	return 0
}

// supervisor has one process.
type supervisor struct {
	dir     string
	pids    pids
	copies  sync.WaitGroup
	readers []*os.File
}

func (s *supervisor) start() error {
	spec := &Spec{}
	if err := read(filepath.Join(s.dir, specFile), spec); err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	attr := &os.ProcAttr{Dir: spec.Dir, Env: spec.Env, Files: []*os.File{null, null, null},
		Sys: &syscall.SysProcAttr{Setpgid: true}}
	if spec.Logs.Dir != "" {
		for i, stderr := range []bool{false, true} {
			w, err := s.stream(spec, stderr)
			if err != nil {
				return err
			}
			defer w.Close()
			attr.Files[i+1] = w
		}
	}
	path, args, err := s.command(spec, attr)
	if err != nil {
		return err
	}
	var p *os.Process
	if err := join(spec, func() (err error) {
		p, err = os.StartProcess(path, args, attr)
		return err
	}); err != nil {
		return err
	}
	self := os.Getpid()
	s.pids = pids{Supervisor: self, SupervisorStart: startOf(self), Process: p.Pid, ProcessStart: startOf(p.Pid)}
	return p.Release()
}

// command is what is started, as which user.
func (s *supervisor) command(spec *Spec, attr *os.ProcAttr) (path string, args []string, err error) {
	if spec.Isolate != nil {
		return isolate(s.dir, spec, attr)
	}
	if spec.User != "" {
		if attr.Sys.Credential, err = credential(spec.User); err != nil {
			return "", nil, err
		}
	}
	path, err = find(spec.Command, spec.Dir, spec.Env)
	return path, append([]string{spec.Command}, spec.Args...), err
}

// stream makes the pipe of a stream, which a goroutine copies to the log until it ends.
func (s *supervisor) stream(spec *Spec, stderr bool) (*os.File, error) {
	log, err := tasklog.NewWriter(spec.Logs.Dir, tasklog.Name(spec.Logs.Task, stderr), spec.Logs.Limits)
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	s.readers = append(s.readers, r)
	s.copies.Go(func() {
		_, _ = io.Copy(log, r)
		_ = log.Close()
	})
	return w, nil
}

// wait reaps everything until the main process has ended, kills what is left, and says how it ended.
func (s *supervisor) wait() *ended {
	e := &ended{Code: -1}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			e.Error = "wait: " + err.Error()
			break
		}
		if pid == s.pids.Process {
			if e.Code = status.ExitStatus(); status.Signaled() {
				e.Code, e.Signal = 128+int(status.Signal()), int(status.Signal())
			}
			break
		}
	}
	_ = syscall.Kill(-s.pids.Process, syscall.SIGKILL)
	killOrphans()
	for _, r := range s.readers {
		_ = r.SetReadDeadline(time.Now().Add(pipeGrace))
	}
	s.copies.Wait()
	e.At = time.Now()
	return e
}

// credential is a user's.
func credential(name string) (*syscall.Credential, error) {
	u, err := user.Lookup(name)
	if err != nil {
		if u, err = user.LookupId(name); err != nil {
			return nil, err
		}
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	if int(uid) == os.Getuid() && os.Getuid() != 0 {
		return nil, nil // it is us: setgroups would need rights that nothing else needs
	}
	c := &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	if ids, err := u.GroupIds(); err == nil {
		for _, id := range ids {
			if n, err := strconv.ParseUint(id, 10, 32); err == nil {
				c.Groups = append(c.Groups, uint32(n))
			}
		}
	}
	return c, nil
}
