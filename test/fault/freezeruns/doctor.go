package freezeruns

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"time"

	"corbel.dev/corbel/doctor"

	"corbel.dev/corbel/kit/fault"
	"corbel.dev/corbel/kit/spawn/harness"
	faultrun "corbel.dev/corbel/test/fault"
	"corbel.dev/corbel/test/fault/catalogruns"
)

// DoctorAnswer is what the doctor said of an ill cluster, and how long that took from the command's start to its end.
type DoctorAnswer struct {
	Ill     string
	Servers []string // all, by name
	Took    time.Duration
	Report  doctor.Report
}

const doctorToken = "3f0c0ffe-0000-4000-8000-00000000d0c7"

// doctorHCL has tokens judged, which must not need whoever is ill.
const doctorHCL = `acl { enabled = true, default_policy = "allow", tokens { initial_management = "` +
	doctorToken + `" } }`

// RunDoctor asks `corbel doctor` about a cluster of three whose leader hangs, about one of which the member that is
// asked hangs, has a full disk, or a disk that does not return, and about one whose machine has no CPU left. Each is
// healed before the next.
func RunDoctor(ctx context.Context, l *faultrun.Lab) (answers []DoctorAnswer, err error) {
	c, err := l.Open(ctx, harness.Config{Servers: 3, HCL: []string{doctorHCL}})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	for _, ill := range []struct {
		name string
		make func(leader, asked *faultrun.Server) error
		also bool // the leader is asked first
		spin int  // processes that take the CPU
	}{
		{"the leader hangs", func(leader, _ *faultrun.Server) error { return leader.Freeze() }, false, 0},
		{"who is asked hangs", func(leader, _ *faultrun.Server) error { return leader.Freeze() }, true, 0},
		{"the disk is full", func(_, asked *faultrun.Server) error {
			return asked.Control.Disk(ctx, fault.Command{Name: "full", Ops: "write", Error: "ENOSPC", Glob: asked.Dir + "/**"})
		}, false, 0},
		{"the disk hangs", func(_, asked *faultrun.Server) error {
			return asked.Control.Disk(ctx,
				catalogruns.StallRule(asked))
		}, false, 0},
		{"there is no CPU left", func(_, _ *faultrun.Server) error { return nil }, false, 4 * runtime.NumCPU()},
	} {
		leader, err := c.AwaitLeader(ctx, harness.StartLimit)
		if err != nil {
			return answers, fmt.Errorf("before %q: %w\n%s", ill.name, err, c.Logs())
		}
		asked := c.Followers(leader)[0]
		args := []string{"doctor", "--json", "--token", doctorToken, "--http-addr", asked.HTTP}
		if ill.also {
			args = []string{"doctor", "--json", "--token", doctorToken, "--http-addr", leader.HTTP, "--also", asked.HTTP}
		}
		if err := errors.Join(believed(ctx, c, asked), ill.make(leader, asked)); err != nil {
			return answers, err
		}
		a, err := runDoctor(ctx, l, ill.spin, args)
		a.Ill = ill.name
		for _, s := range c.Servers {
			a.Servers = append(a.Servers, s.Name)
		}
		if err != nil {
			return answers, fmt.Errorf("%s: %w\n%s", ill.name, err, c.Logs())
		}
		answers = append(answers, a)
		if err := c.Heal(ctx); err != nil {
			return answers, err
		}
	}
	return answers, c.Damage()
}

// doctor runs the command while processes that only spin take the CPU. A report with findings ends it with 3 or 4.
func runDoctor(ctx context.Context, l *faultrun.Lab, spin int, args []string) (a DoctorAnswer, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	spinning, stop := context.WithCancel(ctx)
	var spinners []*exec.Cmd
	defer func() {
		stop()
		for _, s := range spinners {
			_ = s.Wait()
		}
	}()
	for range spin {
		s := exec.CommandContext(spinning, "sh", "-c", "while :; do :; done")
		if err := s.Start(); err != nil {
			return a, err
		}
		spinners = append(spinners, s)
	}
	var out, problem bytes.Buffer
	cmd := exec.CommandContext(ctx, l.Binary, args...)
	cmd.Stdout, cmd.Stderr = &out, &problem
	begin := time.Now()
	err = cmd.Run()
	a.Took = time.Since(begin)
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() < 3) {
		return a, fmt.Errorf("%w: %s", err, problem.Bytes())
	}
	return a, json.Unmarshal(out.Bytes(), &a.Report)
}
