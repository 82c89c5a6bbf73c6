package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"corbel.dev/corbel/cli/command"
	"github.com/spf13/cobra"
)

// names are what the binary answers to when it is called by them, through a link or
// with the name as the first argument. A name is added with its command line.
var names = []struct{ name, what string }{
	{"consul", "Consul's agent and command line"},
	{"vault", "Vault's command line"},
	{"bao", "OpenBao's, the same"},
	{"nomad", "Nomad's command line"},
	{sensuAgent, "Sensu Go's agent"},
	{sensuBackend, "Sensu Go's backend"},
	{sensuCtl, "Sensu Go's command line"},
}

// nameList is the names alone.
func nameList() []string {
	list := make([]string, len(names))
	for i, n := range names {
		list[i] = n.name
	}
	return list
}

// knownName tells which of names a program path ends in, "" for none.
func knownName(path string) string {
	base := strings.TrimSuffix(strings.ToLower(filepath.Base(path)), ".exe")
	for _, n := range names {
		if n.name == base {
			return base
		}
	}
	return ""
}

// Link builds link.
func Link(e *command.Env, c *cobra.Command) {
	var force, asJSON bool
	c.Use = "link DIR"
	c.Args = command.Between(1, 1, "the folder for the links, one that is in PATH")
	c.Long = "Make a link to this binary in DIR for each name that it answers to, and say what was\ndone. A file that " +
		"is there and is not such a link stays, unless --force is given.\n\n  corbel link /usr/local/bin"
	c.Flags().BoolVar(&force, "force", false, "overwrite what is in the way")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		self, err := os.Executable()
		if err == nil {
			self, err = filepath.EvalSymlinks(self)
		}
		if err != nil {
			return fmt.Errorf("cannot tell where this binary is: %w; make the links with ln -s", err)
		}
		info, err := os.Stat(args[0])
		if err != nil || !info.IsDir() {
			return fmt.Errorf("%s is not a folder; make it first with mkdir -p", args[0])
		}
		type made struct{ Link, Target, Result string }
		var list []made
		var failures []error
		for _, n := range names {
			m := made{Link: filepath.Join(args[0], n.name), Target: self}
			if m.Result, err = placeLink(m.Link, self, force); err != nil {
				failures = append(failures, err)
				m.Result = "failed"
			}
			list = append(list, m)
			if !asJSON {
				if err := e.Printf("%s -> %s (%s; %s)\n", m.Link, m.Target, m.Result, n.what); err != nil {
					return err
				}
			}
		}
		if asJSON {
			failures = append(failures, command.WriteJSON(e.Out, list, false))
		}
		return errors.Join(failures...)
	}
}

// placeLink makes one link and says what it did.
func placeLink(link, target string, force bool) (string, error) {
	info, err := os.Lstat(link)
	result := "made"
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return "", err
	default:
		if now, err := filepath.EvalSymlinks(link); err == nil && now == target {
			return "was there", nil
		}
		if !force {
			return "", fmt.Errorf("%s is there and is no link to this binary: move it away, or give --force to replace it", link)
		}
		if info.IsDir() {
			return "", fmt.Errorf("%s is a folder: move it away", link)
		}
		// A link beside it renamed over it: there is no moment without the name.
		result = "replaced"
	}
	next := link + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err := os.Symlink(target, next); err != nil {
		return "", fmt.Errorf("%w; may this user write there?", err)
	}
	return result, os.Rename(next, link)
}
