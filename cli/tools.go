package cli

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"

	"corbel.dev/corbel/kit/version"
	"corbel.dev/corbel/node/config"
	"github.com/spf13/cobra"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func versionLine() string {
	return fmt.Sprintf("Corbel v%s\nRevision %s\nBuild Date %s", version.Number, version.Of().Revision, version.Of().Date)
}

func (e *env) version(c *cobra.Command) {
	var format string
	var asJSON bool
	c.Args = between(0, 0, "no arguments")
	c.Flags().StringVar(&format, "format", "pretty", "pretty or json")
	c.Flags().BoolVar(&asJSON, "json", false, "same as --format=json")
	c.RunE = func(c *cobra.Command, args []string) error {
		if asJSON {
			format = "json"
		}
		switch format {
		case "pretty":
			_, err := fmt.Fprintf(e.out, "%s\n%s %s/%s\n", versionLine(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		case "json":
			// Programs that start us choose features by Version, as by node meta: both are the contract's.
			return writeJSON(e.out, struct{ Version, Revision, BuildDate, CorbelVersion, GoVersion string }{
				version.Contract, version.Of().Revision, version.Of().Date, version.Number, runtime.Version()}, false)
		}
		return usagef("--format=%s must be pretty or json", format)
	}
}

func (e *env) keygen(c *cobra.Command) {
	c.Args = between(0, 0, "no arguments")
	c.RunE = func(c *cobra.Command, args []string) error {
		key := make([]byte, 32)
		_, _ = rand.Read(key) // never fails
		_, err := fmt.Fprintln(e.out, base64.StdEncoding.EncodeToString(key))
		return err
	}
}

func (e *env) validate(c *cobra.Command) {
	var quiet, asJSON bool
	var format, style string
	c.Use = "validate PATH..."
	c.Args = between(1, -1, "files or folders of configuration")
	c.Long = "Check configuration files and folders, all together as a process would read them.\nEvery problem is listed; nothing is started."
	c.Flags().BoolVar(&quiet, "quiet", false, "print problems only")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().StringVar(&format, "config-format", "", "hcl or json, for files of other names")
	c.Flags().StringVar(&style, "style", "corbel", "whose defaults hold: corbel (TLS, default-deny), consul, or dev")
	c.RunE = func(c *cobra.Command, args []string) error {
		o := config.Options{Style: config.Consul, Format: format}
		switch style {
		case "consul":
		case "dev":
			o.Dev, o.Server = true, true
		case "corbel":
			o.Style = config.Corbel
		default:
			return usagef("--style=%s must be corbel, consul or dev", style)
		}
		for _, path := range args {
			if info, err := os.Stat(path); err == nil && info.IsDir() {
				o.Dirs = append(o.Dirs, path)
			} else {
				o.Files = append(o.Files, path)
			}
		}
		cfg, err := config.Load(o)
		if err == nil {
			err = checkDefinitions(&cfg.Definitions)
		}
		if asJSON {
			out := struct {
				Valid    bool
				Problems []string
				Warnings []string
			}{Valid: err == nil, Problems: []string{}, Warnings: []string{}}
			if err != nil {
				out.Problems = config.Problems(err)
			} else {
				out.Warnings = append(out.Warnings, cfg.Warnings...)
			}
			if werr := writeJSON(e.out, out, false); werr != nil || err == nil {
				return werr
			}
			return exitCode(1)
		}
		if err != nil {
			return fmt.Errorf("Config validation failed: %w", err)
		}
		for _, w := range cfg.Warnings {
			fmt.Fprintf(e.err, "warning: %s\n", w)
		}
		if !quiet {
			_, err = fmt.Fprintln(e.out, "Configuration is valid!")
		}
		return err
	}
}
