// Package cli holds the commands of the corbel binary.
//
// Commands are built lazily: `corbel --help` makes only names and one-line texts;
// a command's flags exist once it is called. Commands talk to agents through
// package client alone; server, agent and dev build a node. A command writes its
// result to stdout and everything else to stderr, takes --json when it reads, and
// ends with 0, 1 (it failed) or 2 (it was called wrongly). lock and watch end with
// their child's code.
//
// Single-dash long flags (-http-addr=…, as the peers' tools have them) are turned
// into double-dash ones before cobra sees them.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// env is what a command may touch of its process.
type env struct {
	in       io.Reader
	out, err io.Writer
	getenv   func(string) string
	environ  []string
	closers  []func() // called when the command has ended
}

// Main runs the command line and returns the exit code.
func Main(args []string) int {
	e := &env{in: os.Stdin, out: os.Stdout, err: os.Stderr, getenv: os.Getenv, environ: os.Environ()}
	return e.run(context.Background(), args[1:])
}

// exitCode is an error that carries the process's exit code and no text of its own.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// usageError is a call that cannot work, whatever the state of the world.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// run executes one command line.
func (e *env) run(ctx context.Context, args []string) int {
	defer func() {
		for _, f := range e.closers {
			f()
		}
		e.closers = nil
	}()
	root := e.root(args)
	args = normalise(root, args)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	var code exitCode
	var usage usageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	case errors.Is(err, context.Canceled):
		return 1 // a signal: whoever sent it knows
	case errors.As(err, &usage) || isCobraUsage(err):
		fmt.Fprintf(e.err, "corbel: %v\nSee `%s --help`.\n", err, cmd.CommandPath())
		return 2
	}
	fmt.Fprintf(e.err, "corbel: %v\n", err)
	return 1
}

// isCobraUsage knows the mistakes that cobra reports without a type.
func isCobraUsage(err error) bool { return strings.HasPrefix(err.Error(), "unknown command") }

// signals gives a context that ends with SIGINT or SIGTERM.
func signals(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
}

// entry is one top-level command before it is built.
type entry struct {
	name, short, group string
	build              func(e *env, c *cobra.Command)
}

const (
	groupRun     = "run"
	groupCatalog = "catalog"
	groupCluster = "cluster"
	groupTools   = "tools"
)

// entries are all commands, in the order of --help.
var entries = []entry{
	{"dev", "Run server and agent in one process, with nothing to configure", groupRun, (*env).dev},
	{"server", "Run a member of the control-plane cluster", groupRun, (*env).server},
	{"agent", "Run the agent of a host", groupRun, (*env).agent},
	{"services", "List, show, register and deregister services", groupCatalog, (*env).services},
	{"nodes", "List the hosts of the catalog", groupCatalog, (*env).nodes},
	{"kv", "Read and write the key-value store", groupCatalog, (*env).kv},
	{"lock", "Run a command while holding a lock", groupCatalog, (*env).lock},
	{"watch", "Wait for changes and hand them to a command", groupCatalog, (*env).watch},
	{"maint", "Put a node or service in or out of maintenance", groupCatalog, (*env).maint},
	{"members", "List agents and servers with their status", groupCluster, (*env).members},
	{"join", "Make the agent join others", groupCluster, (*env).join},
	{"leave", "Make the agent leave its cluster and end", groupCluster, (*env).leave},
	{"force-leave", "Declare a failed member gone", groupCluster, (*env).forceLeave},
	{"operator", "Look after the servers: Raft members, autopilot", groupCluster, (*env).operator},
	{"info", "Show what an agent says about itself", groupCluster, (*env).info},
	{"monitor", "Follow an agent's log", groupCluster, (*env).monitor},
	{"reload", "Make the agent read its configuration again", groupCluster, (*env).reload},
	{"validate", "Check configuration files", groupTools, (*env).validate},
	{"bench", "Measure Corbel, or the system that it replaces", groupTools, (*env).bench},
	{"keygen", "Make a key for gossip encryption", groupTools, (*env).keygen},
	{"version", "Show the version", groupTools, (*env).version},
}

// root builds the command tree: the called command in full, names of the others.
func (e *env) root(args []string) *cobra.Command {
	root := &cobra.Command{
		Use:           "corbel",
		Short:         "The control plane of a fleet in one binary",
		Long:          "Corbel is the control plane of a fleet in one binary: it knows which services run\nwhere and whether they are healthy. Begin with `corbel dev`.",
		SilenceErrors: true, SilenceUsage: true,
		CompletionOptions: cobra.CompletionOptions{},
		Args:              cobra.ArbitraryArgs,
	}
	showVersion := root.Flags().Bool("version", false, "show the version")
	root.RunE = func(c *cobra.Command, args []string) error {
		if *showVersion {
			_, err := fmt.Fprintln(e.out, versionLine())
			return err
		}
		if len(args) > 0 {
			return usagef("unknown command %q%s", args[0], suggestion(c, args[0]))
		}
		_ = c.Help() // writes to stdout; a failure there has no other place to go
		return exitCode(2)
	}
	root.SetIn(e.in)
	root.SetOut(e.out)
	root.SetErr(e.err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddGroup(&cobra.Group{ID: groupRun, Title: "Run:"}, &cobra.Group{ID: groupCatalog, Title: "Catalog:"},
		&cobra.Group{ID: groupCluster, Title: "Cluster:"}, &cobra.Group{ID: groupTools, Title: "Tools:"})
	root.SetCompletionCommandGroupID(groupTools)
	root.SetHelpCommandGroupID(groupTools)
	called := firstWord(args)
	all := slices.Contains([]string{"help", "completion", cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd}, called)
	for _, en := range entries {
		c := &cobra.Command{Use: en.name, Short: en.short, GroupID: en.group, Run: func(*cobra.Command, []string) {}}
		if all || en.name == called {
			c.Run = nil
			en.build(e, c)
		}
		root.AddCommand(c)
	}
	return root
}

func firstWord(args []string) string {
	for _, a := range args {
		if !strings.HasPrefix(a, "-") {
			return a
		}
	}
	return ""
}

// suggestion names commands that resemble the wrong one.
func suggestion(c *cobra.Command, wrong string) string {
	c.SuggestionsMinimumDistance = 2
	if near := c.SuggestionsFor(wrong); len(near) > 0 {
		return "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return ""
}

// group makes c a command that only holds others.
func group(c *cobra.Command, children ...*cobra.Command) {
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usagef("unknown command %q for %q%s", args[0], c.CommandPath(), suggestion(c, args[0]))
		}
		_ = c.Help() // writes to stdout; a failure there has no other place to go
		return exitCode(2)
	}
	c.AddCommand(children...)
}

// between checks the number of arguments; max < 0 is no limit. what names them.
func between(low, high int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < low {
			return usagef("%s wants %s", c.CommandPath(), what)
		}
		if high >= 0 && len(args) > high {
			return usagef("%s does not know what to do with %q", c.CommandPath(), args[high])
		}
		return nil
	}
}
