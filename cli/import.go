package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/migrate"
	"corbel.dev/corbel/cli/migrate/snapfile"
	"corbel.dev/corbel/client"
	"github.com/spf13/cobra"
)

// Import builds import.
func Import(e *command.Env, c *cobra.Command) {
	command.Group(c, importConsul(e), importVault(e, "vault"), importVault(e, "openbao"), importSensu(e), importNomad(e))
}

// importFlags are the flags of `import consul`.
type importFlags struct {
	from              client.Config
	fromTokenFile     string
	kinds             []string
	snapshot          string
	dryRun, overwrite bool
	asJSON            bool
}

func importConsul(e *command.Env) *cobra.Command {
	var d command.Dial
	var o importFlags
	c := &cobra.Command{Use: "consul --from URL | --snapshot FILE",
		Short: "Import the state of a Consul, from its API or a snapshot", Args: command.Between(0, 0, "flags only")}
	c.Long = `Import the state of a Consul: policies, roles, auth methods, binding rules and tokens
(with their secrets), config entries, intentions, keys, nodes and services without an
agent, and prepared queries. The source is a running Consul's API, or a file from
` + "`consul snapshot save`" + `. Agents register their own services once they join here.
Existing objects are kept, so you can run it repeatedly. The exit code is 1 if
something failed or differs.

  corbel import consul --snapshot backup.snap --dry-run
  corbel import consul --from http://consul.example:8500 --from-token-file token --dry-run
  corbel import consul --from http://consul.example:8500 --from-token-file token`
	d.Flags(e, c)
	f := c.Flags()
	f.StringVar(&o.from.Address, "from", "", "address of a Consul server or agent")
	f.StringVar(&o.snapshot, "snapshot", "", "file of a Consul snapshot, in place of --from")
	f.StringVar(&o.from.Token, "from-token", "",
		"token for it, with the right to read all, and acl:write for secrets (CONSUL_HTTP_TOKEN)")
	f.StringVar(&o.fromTokenFile, "from-token-file", "", "file that holds that token")
	f.StringVar(&o.from.CAFile, "from-ca-file", "", "CA certificates to trust there, PEM")
	f.StringVar(&o.from.CertFile, "from-client-cert", "", "client certificate to present there, PEM")
	f.StringVar(&o.from.KeyFile, "from-client-key", "", "its private key, PEM")
	f.StringVar(&o.from.ServerName, "from-tls-server-name", "", "name that its certificate must have")
	f.StringSliceVar(&o.kinds, "only", nil,
		"only these kinds: policies, roles, auth-methods, binding-rules, tokens, config, intentions, keys, catalog, queries")
	f.BoolVar(&o.dryRun, "dry-run", false, "show what would be done, change nothing")
	f.BoolVar(&o.overwrite, "overwrite", false, "also overwrite what exists and differs")
	f.BoolVar(&o.asJSON, "json", false, "print the report as JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if (o.from.Address == "") == (o.snapshot == "") {
			return command.Usagef("import consul needs --from, the address of a Consul server or agent, or --snapshot, a " +
				"file: one of them")
		}
		ctx, stop := command.Signals(c.Context())
		defer stop()
		return runImport(ctx, e, &d, &o)
	}
	return c
}

func runImport(ctx context.Context, e *command.Env, d *command.Dial, o *importFlags) error {
	var file *snapfile.Source
	if o.snapshot != "" {
		var err error
		if file, err = snapfile.Open(o.snapshot); err != nil {
			return err
		}
		o.from = client.Config{Address: "snapshot", Transport: file}
	}
	if o.fromTokenFile != "" {
		token, err := client.ReadToken(o.fromTokenFile)
		if err != nil {
			return err
		}
		o.from.Token = token
	}
	o.from.Token = cmp.Or(o.from.Token, e.Getenv("CONSUL_HTTP_TOKEN"))
	from, err := client.New(o.from)
	if err != nil {
		return err
	}
	e.OnClose(from.Close)
	to, err := d.Client()
	if err != nil {
		return err
	}
	report, err := migrate.Run(ctx, migrate.Config{From: from, To: to, Kinds: o.kinds, DryRun: o.dryRun,
		Overwrite: o.overwrite,
		Progress: func(kind string, counts map[migrate.Result]int) {
			if !o.asJSON {
				fmt.Fprintf(e.Err, "%s: done\n", kind)
			}
		}})
	if report == nil {
		return err
	}
	if file != nil {
		report.From, report.Notes = o.snapshot, file.Notes()
	}
	print := func() error { return writeReport(e.Out, report, migrate.Kinds) }
	if o.asJSON {
		print = func() error { return command.WriteJSON(e.Out, report, false) }
	}
	if werr := print(); werr != nil || err != nil {
		return cmp.Or(err, werr)
	}
	if !report.Complete() || file != nil && !file.Complete() {
		return command.ExitCode(1) // the report says why
	}
	return nil
}

// writeReport prints the counts by kind, then what needs a look, then what was left out on purpose.
func writeReport(w io.Writer, r *migrate.Report, kinds []string) error {
	if r.DryRun {
		fmt.Fprintln(w, "Nothing was written: this is what would be done.")
	}
	t := command.Table{Head: []string{"KIND", "CREATED", "UPDATED", "UNCHANGED", "SKIPPED", "DIFFERS", "FAILED"}}
	for _, kind := range kinds {
		counts, ok := r.Counts[kind]
		if !ok {
			continue
		}
		row := []string{kind}
		for _, result := range migrate.Results {
			row = append(row, strconv.Itoa(counts[result]))
		}
		t.Add(row...)
	}
	if err := t.Write(w); err != nil {
		return err
	}
	for _, result := range []migrate.Result{migrate.Failed, migrate.Differs, migrate.Skipped} {
		items := slices.DeleteFunc(slices.Clone(r.Items), func(it migrate.Item) bool { return it.Result != result })
		if len(items) == 0 {
			continue
		}
		fmt.Fprintf(w, "\n%s:\n", result)
		for _, it := range items {
			if _, err := fmt.Fprintf(w, "  %s %s: %s\n", it.Kind, it.Name, it.Why); err != nil {
				return err
			}
		}
	}
	if len(r.Notes) > 0 {
		fmt.Fprintln(w, "\nin the source, and not brought over:")
	}
	for _, note := range r.Notes {
		if _, err := fmt.Fprintf(w, "  %s\n", note); err != nil {
			return err
		}
	}
	return nil
}
