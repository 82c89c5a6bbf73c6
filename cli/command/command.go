// Package command is what all commands of the binary are made of: the process that
// they may touch, how they reach an agent, how they print, and how they fail.
//
// A command is written once and stands in two command lines: Corbel's own, and
// that of Consul when the binary is called by that name. Vault's has its own commands. Env.Consul tells which one
// is meant where they differ, which is in words and columns, never in what is done.
// Commands run one at a time: nothing here is for several goroutines.
package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"corbel.dev/corbel/client"
	"corbel.dev/corbel/kit/nearest"
	"corbel.dev/corbel/kit/winservice"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Env is what a command may touch of its process.
type Env struct {
	In       io.Reader
	Out, Err io.Writer
	Getenv   func(string) string
	Environ  []string
	// Consul: the command line is Consul's, and so are the forms of the answers.
	Consul bool
	// Vault is the name, vault or bao, when the command line is Vault's.
	Vault string
	// Nomad: the command line is Nomad's.
	Nomad bool
	// Sensu is the name, such as sensu-agent, when the command line is that of one of Sensu's programs.
	Sensu string
	// Service is this process as Windows' service manager knows it; nil is none.
	Service *winservice.Service

	closers []func()
	unsaid  error // the first failure of Say
}

// Program is the name that the user typed, for hints.
func (e *Env) Program() string {
	switch {
	case e.Consul:
		return "consul"
	case e.Vault != "":
		return e.Vault
	case e.Sensu != "":
		return e.Sensu
	case e.Nomad:
		return "nomad"
	}
	return "corbel"
}

// Words picks the text of the command line that is in use.
func (e *Env) Words(corbel, consul string) string {
	if e.Consul {
		return consul
	}
	return corbel
}

// consulWords turns what hints name into what Consul's command line knows.
var consulWords = strings.NewReplacer("`corbel dev`", "`consul agent -dev`", "`corbel server`",
	"`consul agent -server`", "`corbel operator ", "`consul operator ",
	"`corbel members`", "`consul members`", "`corbel join`", "`consul join`", "`corbel keygen`", "`consul keygen`",
	"`corbel validate`", "`consul validate`",
	"CORBEL_TOKEN", "CONSUL_HTTP_TOKEN", "CORBEL_", "CONSUL_")

// Text is an error in the words of the command line that is in use: its hints name commands and variables.
func (e *Env) Text(err error) string {
	if e.Consul {
		return consulWords.Replace(err.Error())
	}
	return err.Error()
}

// OnClose calls f when the command has ended.
func (e *Env) OnClose(f func()) { e.closers = append(e.closers, f) }

// Close ends what the command opened.
func (e *Env) Close() {
	for _, f := range e.closers {
		f()
	}
	e.closers = nil
}

// Printf writes to stdout.
func (e *Env) Printf(format string, args ...any) error {
	_, err := fmt.Fprintf(e.Out, format, args...)
	return err
}

// Say writes to stdout. Where that fails, the command goes on, and has failed at its end: see Unsaid.
func (e *Env) Say(format string, args ...any) {
	if err := e.Printf(format, args...); err != nil && e.unsaid == nil {
		e.unsaid = err
	}
}

// Unsaid is why something that the command had to say could not be written; nil when all was.
func (e *Env) Unsaid() error { return e.unsaid }

// ExitCode is an error that carries the process's exit code and no text of its own.
type ExitCode int

// Error implements error.
func (c ExitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// UsageError is a call that cannot work, whatever the state of the world.
type UsageError struct{ error }

// Usagef makes a UsageError.
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// AsUsage marks err as a wrong call.
func AsUsage(err error) error { return UsageError{err} }

// ErrHelp says that help was printed because the call named no command.
var ErrHelp = errors.New("no command was given")

// Help prints c's help and returns ErrHelp.
func Help(c *cobra.Command) error {
	_ = c.Help() // writes to stdout; a failure there has no other place to go
	return ErrHelp
}

// Signals gives a context that ends with SIGINT or SIGTERM.
func Signals(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
}

// Suggestion names commands that resemble the wrong one.
func Suggestion(c *cobra.Command, wrong string) string {
	c.SuggestionsMinimumDistance = 2
	if near := c.SuggestionsFor(wrong); len(near) > 0 {
		return "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return ""
}

// WrongFlag names the flag that resembles an unknown one, or the command that does where the word before the flag is
// none: a flag of a command that is not there is never known.
func WrongFlag(c *cobra.Command, err error) error {
	if words := c.Flags().Args(); len(words) > 0 && holdsOthers(c) {
		return unknownCommand(c, words[0])
	}
	wrong, ok := strings.CutPrefix(err.Error(), "unknown flag: --")
	if !ok {
		return err
	}
	known := func(yield func(string) bool) {
		stopped := false
		for _, set := range []*pflag.FlagSet{c.Flags(), c.InheritedFlags()} {
			set.VisitAll(func(f *pflag.Flag) { stopped = stopped || !f.Hidden && !yield(f.Name) })
		}
	}
	if near := nearest.To(wrong, known); near != "" {
		return fmt.Errorf("%w; did you mean --%s?", err, near)
	}
	return err
}

// grouping marks commands that only hold others.
const grouping = "corbel.group"

// Group makes c a command that only holds others.
func Group(c *cobra.Command, children ...*cobra.Command) {
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknownCommand(c, args[0])
		}
		return Help(c)
	}
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[grouping] = "yes"
	c.AddCommand(children...)
}

// holdsOthers tells whether c does nothing but holding others, or nothing with a word that is none of theirs.
func holdsOthers(c *cobra.Command) bool {
	return !c.HasParent() || c.Annotations[grouping] != "" ||
		c.HasSubCommands() && c.Args != nil && c.Args(c, []string{"word"}) != nil
}

func unknownCommand(c *cobra.Command, word string) error {
	if !c.HasParent() {
		return Usagef("unknown command %q%s", word, Suggestion(c, word))
	}
	return Usagef("unknown command %q for %q%s", word, c.CommandPath(), Suggestion(c, word))
}

// Named makes a command that only holds others.
func Named(name, short string, children ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: name, Short: short}
	Group(c, children...)
	return c
}

// Between checks the number of arguments; high < 0 is no limit. what names them.
func Between(low, high int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < low {
			return Usagef("%s needs %s", c.CommandPath(), what)
		}
		if high >= 0 && len(args) > high {
			return Usagef("%s does not know what to do with %q", c.CommandPath(), args[high])
		}
		return nil
	}
}

// Act makes a command that talks to the agent and changes something.
func Act(e *Env, use, short string, args cobra.PositionalArgs, run func(ctx context.Context, d *Dial, cl *client.Client,
	args []string) error) *cobra.Command {
	var d Dial
	c := &cobra.Command{Use: use, Short: short, Args: args}
	d.Flags(e, c)
	if strings.Contains(use, " NODE") {
		d.CompleteNodes(c)
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := d.Client()
		if err != nil {
			return err
		}
		return run(c.Context(), &d, cl, args)
	}
	return c
}

// Read makes a command that reads and prints text, or with --json the server's own answer.
func Read(e *Env, use, short string, args cobra.PositionalArgs,
	run func(ctx context.Context, r *Reading, cl *client.Client, args []string) error) *cobra.Command {
	var r Reading
	c := &cobra.Command{Use: use, Short: short, Args: args}
	r.Flags(e, c, false)
	r.FormatFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := r.CheckFormat(); err != nil {
			return err
		}
		cl, err := r.Client()
		if err != nil {
			return err
		}
		return run(c.Context(), &r, cl, args)
	}
	return c
}

// Absent makes a command that says why there is none, and ends with 1.
func Absent(name, short, why string) *cobra.Command {
	return &cobra.Command{Use: name, Short: short, Hidden: true, DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error { return errors.New(why) }}
}

// Input reads an argument that may be text, @file or - for stdin. What it reads is bounded.
func (e *Env) Input(arg string) ([]byte, error) {
	switch {
	case arg == "-":
		return bounded(e.In)
	case strings.HasPrefix(arg, "@"):
		return ReadFile(arg[1:])
	}
	return []byte(arg), nil
}

// FileOrStdin reads a file, or stdin when its name is -.
func (e *Env) FileOrStdin(path string) ([]byte, error) {
	if path == "-" {
		return bounded(e.In)
	}
	return ReadFile(path)
}

// maxInput bounds what a command reads into memory: the largest sensible input is
// an export of all keys.
const maxInput = 1 << 30

func bounded(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxInput+1))
	if err == nil && len(text) > maxInput {
		err = errors.New("the input is larger than 1 GiB: split it")
	}
	return text, err
}

// ReadFile reads a file of a bounded size.
func ReadFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return bounded(f)
}

// Pairs splits name=value arguments; flag names the one that holds them.
func Pairs(flag string, args []string) (map[string]string, error) {
	out := make(map[string]string, len(args))
	for _, a := range args {
		name, value, ok := strings.Cut(a, "=")
		if !ok || name == "" {
			return nil, Usagef("--%s %s must be name=value", flag, a)
		}
		out[name] = value
	}
	return out, nil
}

// CleanKey is a key as the API wants it.
func CleanKey(key string) string { return strings.TrimPrefix(key, "/") }

// AllPairs is a map as name=value, sorted, empty values too.
func AllPairs(m map[string]string) string {
	out := make([]string, 0, len(m))
	for _, k := range SortedKeys(m) {
		out = append(out, k+"="+m[k])
	}
	return strings.Join(out, ", ")
}

// SortedKeys lists a map's keys.
func SortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Decode reads an answer into out, with an error that says what went wrong.
func Decode(text []byte, out any) error {
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("the agent's answer is not what was asked for: %w; does %s speak Consul's API?", err,
			"that address")
	}
	return nil
}

// Wait waits for d or the end of ctx.
func Wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
