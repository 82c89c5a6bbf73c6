// Package upgradecmd holds `corbel upgrade-check`: whether the servers that run may be replaced by this release.
//
// gather asks, and judge decides: it is pure. Nothing is changed in the cluster; its state is read as a snapshot, into
// a file that is removed.
package upgradecmd

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
	"corbel.dev/corbel/kit/archive"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/version"
	"corbel.dev/corbel/node"
	"corbel.dev/corbel/node/config"
	catalogplane "corbel.dev/corbel/node/planes/catalog"
)

// Exit codes beside 0, for go on, and 2, for a wrong call.
const (
	exitRefused   command.ExitCode = 1
	exitUnchecked command.ExitCode = 3
)

// maxStateBytes bounds what a snapshot may unpack to.
const maxStateBytes = 64 << 30

// Command builds upgrade-check.
func Command(e *command.Env, c *cobra.Command) {
	var r command.Reading
	var paths []string
	c.Args = command.Between(0, 0, "flags only")
	c.Long = `Ask a running cluster whether its servers may be replaced by this release: releases and
protocols of all members, the features that servers have switched on, a server to spare,
the state (read to its end, and compared with what this release would write), and with
--config-dir the servers' configuration. Run the new release's binary, before it is
installed. Nothing is changed.

  ./corbel-new upgrade-check --config-dir /etc/corbel.d

Exit codes: 0 go on (warnings may be there), 1 something would be refused or lost, 2 wrong
usage, 3 the cluster could not be asked.`
	r.Flags(e, c, false)
	c.Flags().StringArrayVar(&paths, "config-dir", nil, "folder, or file, of the servers' configuration (repeat)")
	c.RunE = func(c *cobra.Command, _ []string) error {
		ctx, stop := command.Signals(c.Context())
		defer stop()
		cl, err := r.Client()
		if err != nil {
			return err
		}
		f, err := gather(ctx, cl)
		if err != nil {
			e.Say("could not be checked: %v\n", err)
			return exitUnchecked
		}
		if err := f.readConfig(paths); err != nil {
			return err
		}
		list := judge(f)
		if r.JSON {
			err = command.WriteJSON(e.Out, list, false)
		} else {
			print(e, list)
		}
		if err == nil && slices.ContainsFunc(list, func(f Finding) bool { return f.Grade == Refused }) {
			return exitRefused
		}
		return err
	}
}

func print(e *command.Env, list []Finding) {
	for _, f := range list {
		e.Say("%-8s %-16s %s\n", f.Grade, f.Name, f.Found)
		if f.Remedy != "" {
			e.Say("%8s %-16s -> %s\n", "", "", f.Remedy)
		}
	}
}

// gather asks the cluster.
func gather(ctx context.Context, cl *client.Client) (*facts, error) {
	f := &facts{own: version.Number}
	var err error
	if f.members, err = cl.Members(ctx, client.Query{}); err != nil {
		return nil, err
	}
	if _, err := cl.Get(ctx, "/v1/status/leader", client.Query{}, &f.leader); err != nil {
		return nil, err
	}
	var raft struct{ Servers []client.RaftServer }
	if _, err := cl.Get(ctx, "/v1/operator/raft/configuration", client.Query{}, &raft); err != nil {
		return nil, err
	}
	f.raft = raft.Servers
	var health struct {
		Healthy          bool
		FailureTolerance int
	}
	_, err = cl.Get(ctx, "/v1/operator/autopilot/state", client.Query{}, &health)
	if err != nil {
		return nil, err
	}
	f.healthy, f.spare = health.Healthy, health.FailureTolerance
	return f, f.readState(ctx, cl)
}

// readState has this release read the state. Only a failure to get it is an error.
func (f *facts) readState(ctx context.Context, cl *client.Client) error {
	snapshot := func(cl *client.Client) (*http.Response, error) {
		return cl.Do(ctx, http.MethodGet, "/v1/snapshot", nil, nil)
	}
	resp, err := snapshot(cl)
	if denied(err) && isDev(ctx, cl) {
		resp, err = snapshot(cl.WithToken(config.DevToken))
	}
	if denied(err) {
		f.stateSkipped = "not checked: " + err.Error()
		return nil
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	spool, err := os.CreateTemp("", "corbel-upgrade-*")
	if err != nil {
		return err
	}
	defer func() {
		_ = spool.Close()
		_ = os.Remove(spool.Name()) // of no use to anybody
	}()
	if _, err := archive.Read(resp.Body, spool, maxStateBytes); err != nil {
		if errkind.Is(err, errkind.Corrupt) {
			f.state = err
			return nil
		}
		return err
	}
	if _, err := spool.Seek(0, io.SeekStart); err != nil {
		return err
	}
	f.same, f.state = catalogplane.KeepsSnapshot(spool)
	return nil
}

func denied(err error) bool {
	var refused *client.Error
	return errors.As(err, &refused) && refused.Code == http.StatusForbidden
}

// isDev tells whether `corbel dev` answers: there requests have most rights without a token, and the token that its
// banner prints has the others.
func isDev(ctx context.Context, cl *client.Client) bool {
	var self struct{ DebugConfig struct{ DevMode bool } }
	_, err := cl.Get(ctx, "/v1/agent/self", client.Query{}, &self)
	return err == nil && self.DebugConfig.DevMode
}

// readConfig judges the servers' files as `corbel server` does.
func (f *facts) readConfig(paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	f.configGiven = true
	o := config.Options{Server: true, Sections: node.Sections(), Judge: node.Check}
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			return errors.Join(command.Usagef("--config-dir: %w", err))
		}
		if info.IsDir() {
			o.Dirs = append(o.Dirs, p)
		} else {
			o.Files = append(o.Files, p)
		}
	}
	cfg, err := config.Load(o)
	if err != nil {
		f.config = config.Problems(err)
		return nil
	}
	f.warnings = cfg.Warnings
	return nil
}
