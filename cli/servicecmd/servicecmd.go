// Package servicecmd holds the commands that make an agent a service of Windows.
package servicecmd

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/kit/winservice"
)

// defaultName is the service's where none is given.
const defaultName = "corbel-agent"

// waitTime is how long a start or a stop is waited for.
const waitTime = 2 * time.Minute

// agents are the commands that may be a service: servers need Linux or macOS.
var agents = []string{"agent", "sensu-agent"}

// Command builds service.
func Command(e *command.Env, c *cobra.Command) {
	c.Long = `Make the agent of this host a service of Windows: it starts with the host, and anew
when it fails. Run these as Administrator. Elsewhere the packages bring systemd units.

  corbel service install -- agent --config-dir C:\ProgramData\corbel
  corbel service start
  corbel service status`
	command.Group(c, install(e),
		named("remove", "Remove a service that does not run", func(_ context.Context, name string) error {
			if err := winservice.Remove(name); err != nil {
				return err
			}
			return e.Printf("Service %s is removed. Its configuration and data stay.\n", name)
		}),
		named("start", "Start a service and wait until it runs", func(ctx context.Context, name string) error {
			if err := winservice.Start(ctx, name); err != nil {
				return err
			}
			return e.Printf("Service %s runs.\n", name)
		}),
		named("stop", "Stop a service and wait until it has ended", func(ctx context.Context, name string) error {
			if err := winservice.Stop(ctx, name); err != nil {
				return err
			}
			return e.Printf("Service %s has ended.\n", name)
		}),
		named("status", "Say whether a service runs", func(_ context.Context, name string) error {
			word, err := winservice.State(name)
			if err != nil {
				return err
			}
			if err := e.Printf("%s\n", word); err != nil || word == "running" {
				return err
			}
			return command.ExitCode(1)
		}))
}

// named is a command about one service.
func named(use, short string, do func(context.Context, string) error) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: command.Between(0, 0, "flags only")}
	name := c.Flags().String("name", defaultName, "name of the service")
	c.RunE = func(c *cobra.Command, _ []string) error {
		ctx, stop := command.Signals(c.Context())
		defer stop()
		ctx, cancel := context.WithTimeout(ctx, waitTime)
		defer cancel()
		return do(ctx, *name)
	}
	return c
}

func install(e *command.Env) *cobra.Command {
	c := &cobra.Command{Use: "install [flags] -- agent FLAGS...", Short: "Install a service that starts with the host"}
	var d winservice.Definition
	c.Flags().StringVar(&d.Name, "name", defaultName, "name of the service")
	c.Flags().StringVar(&d.Display, "display-name", "Corbel agent", "name that people see")
	c.Flags().StringVar(&d.Description, "description", "Services, health checks and DNS of this host", "what it is for")
	c.Args = command.Between(1, -1, "the command that the service runs, after --: agent and its flags")
	c.RunE = func(_ *cobra.Command, args []string) error {
		if err := judge(d.Name, args); err != nil {
			return err
		}
		self, err := os.Executable()
		if err != nil {
			return err
		}
		d.Command, d.Args = self, args
		if err := winservice.Install(d); err != nil {
			return err
		}
		return e.Printf("Service %s is installed: `corbel service start --name %s` starts it.\n", d.Name, d.Name)
	}
	return c
}

// maxName is Windows's bound of a service's name.
const maxName = 256

// judge refuses what could not run as a service.
func judge(name string, args []string) error {
	switch {
	case name == "" || len(name) > maxName || strings.ContainsAny(name, `/\`):
		return command.Usagef("--name %q: want 1 to %d characters without / and \\", name, maxName)
	case !slices.Contains(agents, args[0]):
		return command.Usagef("%q cannot be a service: want one of %s", args[0], strings.Join(agents, ", "))
	}
	return nil
}
