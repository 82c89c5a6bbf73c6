// Package uicmd holds the command that leads to the web UI.
package uicmd

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"corbel.dev/corbel/cli/command"
	"github.com/spf13/cobra"
)

// openTime bounds the program that opens a browser: it hands the address on and ends.
const openTime = 5 * time.Second

// Command builds ui.
func Command(e *command.Env, c *cobra.Command) {
	var dial command.Dial
	var only bool
	c.Long = "Print the address of the web UI, and open it where there is a desktop. It is at /ui of\n" +
		"each server's ports for HTTP; its login takes a token, or a user and a password.\n\n  corbel ui\n  corbel ui --print"
	c.Args = command.Between(0, 0, "flags only")
	dial.Flags(e, c)
	c.Flags().BoolVar(&only, "print", false, "print the address, open nothing")
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := dial.Config()
		if err != nil {
			return err
		}
		url, err := Address(cfg.Address)
		if err != nil {
			return err
		}
		if err := e.Printf("%s\n", url); err != nil || only {
			return err
		}
		open(c.Context(), e, url)
		return nil
	}
}

// Address is where the web UI is behind an agent's or server's HTTP address.
func Address(addr string) (string, error) {
	switch {
	case addr == "":
		addr = "127.0.0.1:8500"
	case strings.HasPrefix(addr, "unix:"):
		return "", command.Usagef("a browser does not reach %s: name a server's host:port with --http-addr", addr)
	}
	if !strings.Contains(addr, "://") {
		addr = "http://" + addr
	}
	return strings.TrimSuffix(addr, "/") + "/ui", nil
}

// open asks the desktop for a browser; where there is none, the address that was printed is all.
func open(ctx context.Context, e *command.Env, url string) {
	program := "xdg-open"
	switch {
	case runtime.GOOS == "darwin":
		program = "open"
	case e.Getenv("DISPLAY") == "" && e.Getenv("WAYLAND_DISPLAY") == "":
		return
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	c := exec.CommandContext(ctx, path, url)
	c.Env = os.Environ()
	_ = c.Run() // the address was printed
}
