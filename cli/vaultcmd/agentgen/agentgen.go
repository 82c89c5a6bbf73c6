// Package agentgen writes the configuration of a Vault agent for secrets that there are: `vault agent generate-config`.
//
// Invariants: a file that is there stays; no value of a secret is written, only where it is.
package agentgen

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/vaultcmd"
	"corbel.dev/corbel/kit/errkind"
	"github.com/spf13/cobra"
)

// generated is what `vault agent generate-config` writes.
type generated struct {
	*vaultcmd.Call
	exec  string
	env   map[string]string // variables to secret, member and where members are, with NUL between
	known map[string]bool   // secrets that were read
}

const (
	mostSecrets   = 1_000 // of all paths: an agent reads each of them again and again
	mostVariables = 1_000
)

// Command builds agent generate-config.
func Command(e *command.Env) *cobra.Command {
	return vaultcmd.With(e, "generate-config [FILE]", "Write an agent's configuration for a program with secrets", 0, 1,
		func(cmd *cobra.Command) func(*vaultcmd.Call, []string) error {
			cmd.Example = "  vault agent generate-config -type=env-template -exec=./app -path='secret/app/*'"
			f := cmd.Flags()
			kind := f.String("type", "", "env-template: a variable for each member of each secret")
			program := f.String("exec", "env", "command that the agent runs")
			paths := f.StringArray("path", nil, "path of a KV secret, or PREFIX/* for all below it (repeat)")
			return func(c *vaultcmd.Call, args []string) error {
				file := "agent.hcl"
				if len(args) > 0 {
					file = args[0]
				}
				switch {
				case *kind != "env-template":
					return command.Usagef("-type must be env-template")
				case len(*paths) == 0:
					return command.Usagef("Must specify at least one secret by -path")
				case len(strings.Fields(*program)) == 0:
					return command.Usagef("-exec must be a command")
				}
				g := &generated{Call: c, exec: *program, env: map[string]string{}, known: map[string]bool{}}
				for _, path := range *paths {
					if err := g.add(path); err != nil {
						return err
					}
				}
				out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // another configuration stays
				if err != nil {
					return err
				}
				_, err = out.WriteString(g.text())
				if closed := out.Close(); err == nil {
					err = closed
				}
				if err == nil {
					c.Say("Successfully generated %q configuration file!\n", file)
				}
				return err
			}
		})
}

// place is a secret, or a folder of secrets, in the mount that it was found in.
type place struct {
	mount, name string // without slashes at their ends
	versioned   bool
}

// place asks the server which mount a path lies in.
func (g *generated) place(path string) (*place, error) {
	a, err := g.Do("GET", "sys/internal/ui/mounts/"+path, nil)
	if err != nil {
		return nil, vaultcmd.Doing("asking where "+path+" is mounted", err)
	}
	p := &place{mount: vaultcmd.Clean(fmt.Sprint(a.Data["path"]))}
	options, _ := a.Data["options"].(map[string]any)
	p.versioned = options["version"] == "2"
	p.name = strings.TrimPrefix(strings.TrimPrefix(path, p.mount), "/")
	return p, nil
}

// path is where the API has it: below kind in a versioned store.
func (p *place) path(kind string) string {
	if p.versioned {
		return strings.TrimSuffix(p.mount+"/"+kind+"/"+p.name, "/")
	}
	return strings.TrimSuffix(p.mount+"/"+p.name, "/")
}

// members is where a template finds a secret's members.
func (p *place) members() string {
	if p.versioned {
		return ".Data.data"
	}
	return ".Data"
}

// add reads a path and what is below it where it ends in a star.
func (g *generated) add(path string) error {
	prefix, all := strings.CutSuffix(path, "*")
	k, err := g.place(vaultcmd.Clean(prefix))
	switch {
	case err != nil:
		return err
	case strings.Contains(prefix, "*"):
		return command.Usagef("-path=%s: a star stands at the end alone", path)
	case all && prefix != "" && !strings.HasSuffix(prefix, "/"):
		return command.Usagef("-path=%s: the star stands for whole names: %s/*", path, strings.TrimRight(prefix, "/"))
	case all:
		return g.below(k)
	}
	return g.secret(k)
}

// below reads what a list names, and the lists in it.
func (g *generated) below(k *place) error {
	at := k.path("metadata")
	a, err := g.Do("LIST", at, nil)
	if err != nil {
		return vaultcmd.Doing("listing "+at, err)
	}
	names, _ := a.Data["keys"].([]any)
	for _, one := range names {
		name, _ := one.(string)
		inner := *k
		inner.name = strings.Trim(k.name+"/"+strings.TrimSuffix(name, "/"), "/")
		if strings.HasSuffix(name, "/") {
			err = g.below(&inner)
		} else {
			err = g.secret(&inner)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// secret makes variables of a secret's members.
func (g *generated) secret(k *place) error {
	at := k.path("data")
	if g.known[at] {
		return nil
	}
	if g.known[at] = true; len(g.known) > mostSecrets {
		return errkind.Errorf(errkind.Invalid, "-path: there are more than %d secrets: name fewer", mostSecrets)
	}
	a, err := g.Do("GET", at, nil)
	if vaultcmd.NotFound(err) { // deleted
		return nil
	}
	if err != nil {
		return vaultcmd.Doing("reading "+at, err)
	}
	data := a.Data
	if k.versioned {
		data, _ = a.Data["data"].(map[string]any)
	}
	for _, member := range slices.Sorted(maps.Keys(data)) {
		name := variable(k.name + "_" + member)
		if was, taken := g.env[name]; taken {
			parts := strings.Split(was, "\x00")
			return errkind.Errorf(errkind.Invalid, "-path: %s of %s and %s of %s are both the variable %s: name one of them",
				parts[1], parts[0], member, at, name)
		}
		if g.env[name] = strings.Join([]string{at, member, k.members()}, "\x00"); len(g.env) > mostVariables {
			return errkind.Errorf(errkind.Invalid, "-path: there are more than %d members: name fewer secrets", mostVariables)
		}
	}
	return nil
}

// variable is a name that a shell takes.
func variable(name string) string {
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_':
			return r
		}
		return '_'
	}, name)
	if name[0] >= '0' && name[0] <= '9' {
		return "_" + name
	}
	return name
}

// text is the configuration.
func (g *generated) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, `auto_auth {
  method {
    type = "token_file"
    config {
      token_file_path = %q
    }
  }
}

template_config {
  static_secret_render_interval = "5m"
  exit_on_retry_failure         = true
}

vault {
  address = %q
}
`, g.TokenFile(), g.Server())
	for _, name := range slices.Sorted(maps.Keys(g.env)) {
		parts := strings.Split(g.env[name], "\x00")
		fmt.Fprintf(&b, "\nenv_template %q {\n  contents             = %q\n  error_on_missing_key = true\n}\n", name,
			fmt.Sprintf("{{ with secret %q }}{{ index %s %q }}{{ end }}", parts[0], parts[2], parts[1]))
	}
	var words []string
	for _, word := range strings.Fields(g.exec) {
		words = append(words, fmt.Sprintf("%q", word))
	}
	fmt.Fprintf(&b, `
exec {
  command                   = [%s]
  restart_on_secret_changes = "always"
  restart_stop_signal       = "SIGTERM"
}
`, strings.Join(words, ", "))
	return b.String()
}
