package jobscmd

import (
	"fmt"
	"os"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/jobscmd/jobfile"
	"corbel.dev/corbel/jobs/jobwire"
	"github.com/spf13/cobra"
)

// prepared is what is sent: canonical, in the namespace that the command names.
func prepared(c *Call, j *jobwire.Job) *jobwire.Job {
	if c.cfg.Namespace != "" && j.Namespace == nil {
		j.Namespace = &c.cfg.Namespace
	}
	region := j.Region // what follows is about that region too, whatever else the command was told
	if region != nil && *region != "" {
		c.Client.SetRegion(*region)
	}
	j.Canonicalize()
	if j.Region = region; region == nil && c.cfg.Region != "" {
		j.Region = &c.cfg.Region
	}
	if c.cfg.Namespace == "" {
		c.cfg.Namespace = jobwire.Get(j.Namespace)
	}
	return j
}

// jobValidate builds `job validate`.
func jobValidate(e *command.Env) *cobra.Command {
	return Leaf(e, "validate FILE", "Check a job file, here and at the server", 1, 1,
		func(cmd *cobra.Command) func(*Call, []string) error {
			file := &jobfile.File{}
			file.Flags(cmd)
			return func(c *Call, args []string) error {
				j, _, err := file.Read(c.Env, args[0])
				if err != nil {
					return err
				}
				var answer struct {
					ValidationErrors []string
					Warnings         string
				}
				j = prepared(c, j)
				if err := c.Client.Put(c.Ctx(), "validate/job", nil, map[string]any{"Job": j}, &answer); err != nil {
					return err
				}
				if len(answer.ValidationErrors) > 0 {
					return fmt.Errorf("the job is not valid:\n  * %s", strings.Join(answer.ValidationErrors, "\n  * "))
				}
				if answer.Warnings != "" {
					fmt.Fprintf(c.Err, "Job Warnings:\n%s\n", strings.TrimSpace(answer.Warnings))
				}
				return c.Printf("Job validation successful\n")
			}
		})
}

// jobInit builds `job init`.
func jobInit(e *command.Env) *cobra.Command {
	return Leaf(e, "init [FILE]", "Write a job file that runs anywhere", 0, 1,
		func(cmd *cobra.Command) func(*Call, []string) error {
			var short, fleet, connect, full bool
			cmd.Flags().BoolVar(&short, "short", false, "leave the comments out")
			cmd.Flags().BoolVar(&fleet, "fleet", false, "two services, one after the other, with a canary update")
			cmd.Flags().BoolVar(&connect, "connect", false, "two services that talk through the mesh, each with its Envoy")
			cmd.Flags().BoolVar(&full, "full", false, "two services, a task beside one, a secret by template, and a canary")
			return func(c *Call, args []string) error {
				name, text := "example.nomad.hcl", jobfile.Sample
				if full {
					name, text = "shop.nomad.hcl", jobfile.Full
				}
				if fleet {
					name, text = "fleet.nomad.hcl", jobfile.Fleet
				}
				if connect {
					name, text = "mesh.nomad.hcl", jobfile.Mesh
				}
				if len(args) == 1 {
					name = args[0]
				}
				if short {
					text = jobfile.Uncommented(text)
				}
				f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
				if err != nil {
					return fmt.Errorf("%w; name another file", err)
				}
				_, err = f.WriteString(text)
				if closed := f.Close(); err == nil {
					err = closed
				}
				if err != nil {
					return err
				}
				return c.Printf("Example job file written to %s\nRun it with: %s %s\n", name, c.Tool("job run", "jobs run"), name)
			}
		})
}
