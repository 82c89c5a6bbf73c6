package cli

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client/sensu"
	"corbel.dev/corbel/client/vaultagent"
	"corbel.dev/corbel/kit/version"
	"corbel.dev/corbel/node"
	"corbel.dev/corbel/node/config"
	monitorplane "corbel.dev/corbel/node/planes/monitor"
	"github.com/spf13/cobra"
)

// printVersion prints the version as text. Under Consul's name the first line is the
// contract's: programs take it apart.
func printVersion(e *command.Env) error {
	if e.Vault != "" {
		return e.Printf("%s", vaultVersionLine())
	}
	if e.Nomad {
		b := version.Of()
		return e.Printf("Nomad v%s\nBuildDate %s\nRevision %s\nServed by Corbel v%s\n", version.NomadContract, b.Date,
			b.Revision, version.Number)
	}
	what := "Corbel v" + version.Number
	if e.Consul {
		what = "Consul v" + version.Contract
	}
	return e.Printf("%s\nRevision %s\nBuild Date %s\n%s%s %s/%s\n", what, version.Of().Revision, version.Of().Date,
		e.Words("", "Served by Corbel v"+version.Number+"\n"), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// protocols are the gossip protocols as the contract's version tells them.
type protocols struct{ Default, Min, Max int }

// Version builds version.
func Version(e *command.Env, c *cobra.Command) {
	var format string
	var asJSON, verify bool
	var sums, key string
	c.Args = command.Between(0, 0, "no arguments")
	if !e.Consul {
		c.Flags().BoolVar(&verify, "verify", false, "check this binary against the signed checksums of its release")
		c.Flags().StringVar(&sums, "sums", "", "SHA256SUMS of the release, with SHA256SUMS.sig beside it")
		c.Flags().StringVar(&key, "key", "", "public key that signs releases, PEM")
	}
	c.Flags().StringVar(&format, "format", "pretty", "pretty or json")
	c.Flags().BoolVar(&asJSON, "json", false, "same as --format=json")
	c.RunE = func(c *cobra.Command, args []string) error {
		if verify {
			return verifySelf(e, sums, key)
		}
		if asJSON {
			format = "json"
		}
		switch format {
		case "pretty":
			return printVersion(e)
		case "json":
			// Programs that start us choose features by Version, as by node meta: both are the contract's.
			return command.WriteJSON(e.Out, struct {
				Version, Revision, Prerelease, BuildDate string
				Protocol                                 protocols
				CorbelVersion, GoVersion                 string
			}{version.Contract, version.Of().Revision, "", version.Of().Date, protocols{2, 2, 3}, version.Number,
				runtime.Version()}, false)
		}
		return command.Usagef("--format=%s must be pretty or json", format)
	}
}

// Keygen builds keygen.
func Keygen(e *command.Env, c *cobra.Command) {
	c.Args = command.Between(0, 0, "no arguments")
	c.RunE = func(c *cobra.Command, args []string) error {
		key := make([]byte, 32)
		_, _ = rand.Read(key) // never fails
		_, err := fmt.Fprintln(e.Out, base64.StdEncoding.EncodeToString(key))
		return err
	}
}

// Validate builds validate.
func Validate(e *command.Env, c *cobra.Command) {
	var quiet, asJSON bool
	var format, style string
	var objects []string
	c.Use = "validate PATH..."
	c.Args = command.Between(1, -1, "files or folders of configuration")
	c.Long = "Check configuration files and folders, all together as a process would read them.\nEvery problem is " +
		"listed; nothing is started. Files with a key of servers, such as\nbootstrap_expect, are judged as `corbel " +
		"server` does, others as `corbel agent`.\nFiles of YAML (*.yaml, *.yml) hold objects of the monitor, as `corbel " +
		"create` takes them. Files\nwith auto_auth or api_proxy are judged, each alone, as `vault agent` and " +
		"`vault proxy` do."
	c.Flags().BoolVar(&quiet, "quiet", false, "print problems only")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().StringVar(&format, "config-format", "", "hcl or json, for files of other names")
	c.Flags().StringVar(&style, "style", e.Program(), "whose defaults hold: corbel (TLS, default-deny), consul, or dev")
	c.RunE = func(c *cobra.Command, args []string) error {
		o, err := judgedAs(style)
		if err != nil {
			return err
		}
		o.Format = format
		for _, path := range args {
			info, err := os.Stat(path)
			switch {
			case err == nil && info.IsDir():
				o.Dirs = append(o.Dirs, path)
			case !e.Consul && (holdsObjects(path) || vaultagent.Configures(path)):
				objects = append(objects, path)
			default:
				o.Files = append(o.Files, path)
			}
		}
		cfg := new(config.Config)
		if len(o.Dirs)+len(o.Files) > 0 {
			o.Sections, o.Judge = node.Sections(), node.Check
			cfg, err = config.Load(o)
		}
		wrong := checkObjects(c.Context(), objects)
		if asJSON {
			out := struct {
				Valid    bool
				Problems []string
				Warnings []string
			}{Valid: err == nil && len(wrong) == 0, Problems: []string{}, Warnings: []string{}}
			if err != nil {
				out.Problems = config.Problems(err)
			} else {
				out.Warnings = append(out.Warnings, cfg.Warnings...)
			}
			for _, one := range wrong {
				out.Problems = append(out.Problems, one.Error())
			}
			if werr := command.WriteJSON(e.Out, out, false); werr != nil || out.Valid {
				return werr
			}
			return command.ExitCode(1)
		}
		if err = errors.Join(append([]error{err}, wrong...)...); err != nil {
			return fmt.Errorf("Config validation failed: %w", err)
		}
		for _, w := range cfg.Warnings {
			fmt.Fprintf(e.Err, "warning: %s\n", w)
		}
		if !quiet {
			_, err = fmt.Fprintln(e.Out, "Configuration is valid!")
		}
		return err
	}
}

// judgedAs is how configuration is judged that nothing starts with.
func judgedAs(style string) (o config.Options, err error) {
	switch style {
	case "consul":
		o.Style = config.Consul
	case "dev":
		o.Style, o.Dev, o.Server = config.Consul, true, true
	case "corbel":
		o.Style, o.Either = config.Corbel, true
	default:
		err = command.Usagef("--style=%s must be corbel, consul or dev", style)
	}
	return o, err
}

// holdsObjects tells a file of the monitor's objects from one of configuration, which is HCL or JSON.
func holdsObjects(path string) bool {
	return strings.HasSuffix(path, ".yaml") || strings.HasSuffix(path, ".yml")
}

// checkObjects names every mistake in files of the monitor's objects, and in those of Vault's agents.
func checkObjects(ctx context.Context, files []string) (wrong []error) {
	for _, file := range files {
		if !holdsObjects(file) {
			if err := vaultagent.Check(file); err != nil {
				wrong = append(wrong, err)
			}
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		list, err := sensu.ReadResources(text)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", file, err))
		}
		for _, r := range list {
			_, _, err := r.Request("default")
			problems := []error{err}
			if err == nil {
				problems = monitorplane.CheckObject(ctx, r.APIVersion, r.Type, r.Metadata, r.Spec)
			}
			for _, err := range problems {
				wrong = append(wrong, fmt.Errorf("%s: %s: %w", file, r.String(), err))
			}
		}
	}
	return wrong
}
