// Package sensucmd is the monitor's command line: events, checks, entities, silences, users, create. Corbel's own,
// that is: sensuctl works too.
package sensucmd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/keptlogin"
	"corbel.dev/corbel/client/sensu"
	"github.com/spf13/cobra"
)

// dial is how a command reaches the monitor, and what it asks about.
type dial struct {
	env       *command.Env
	cfg       sensu.Config
	namespace string
	all       bool
	json      bool
	labels    string
	fields    string
}

// flags gives c the flags that say which server to ask, and as whom.
func (d *dial) flags(e *command.Env, c *cobra.Command) {
	d.env = e
	f := c.Flags()
	f.StringVar(&d.cfg.Address, "monitor-addr", "",
		"monitor to talk to, http://… or https://… (CORBEL_MONITOR_ADDR, SENSU_API_URL; default http://127.0.0.1:8080)")
	f.StringVar(&d.cfg.User, "username", "", "user to log in as (CORBEL_MONITOR_USERNAME)")
	f.StringVar(&d.cfg.Password, "password", "", "its password (CORBEL_MONITOR_PASSWORD)")
	f.StringVar(&d.cfg.APIKey, "api-key", "", "API key, instead of a user (CORBEL_MONITOR_API_KEY, SENSU_API_KEY)")
	f.StringVar(&d.cfg.CAFile, "ca-file", "", "CA certificates to trust, PEM (CORBEL_CACERT, SENSU_TRUSTED_CA_FILE)")
	f.StringVar(&d.namespace, "namespace", "", "namespace (SENSU_NAMESPACE; default default)")
}

// listFlags adds those of a command that lists.
func (d *dial) listFlags(c *cobra.Command) {
	d.jsonFlag(c)
	f := c.Flags()
	f.BoolVar(&d.all, "all-namespaces", false, "of all namespaces")
	f.StringVar(&d.labels, "label-selector", "", `labels to match: region == "eu" && tier in [web, db]`)
	f.StringVar(&d.fields, "field-selector", "", `fields to match: "linux" in event.check.subscriptions`)
}

func (d *dial) jsonFlag(c *cobra.Command) {
	c.Flags().BoolVar(&d.json, "json", false, "print JSON")
}

// client logs in as the flags say, or the environment where they say nothing.
func (d *dial) client() (*sensu.Client, error) {
	cfg := sensu.FromEnv(d.env.Getenv)
	for _, pair := range []struct{ from, to *string }{{&d.cfg.Address, &cfg.Address}, {&d.cfg.CAFile, &cfg.CAFile}} {
		if *pair.from != "" {
			*pair.to = *pair.from
		}
	}
	switch {
	case d.cfg.APIKey != "" && d.cfg.User != "":
		return nil, command.Usagef("--api-key and --username exclude each other")
	case d.cfg.APIKey != "":
		cfg.APIKey, cfg.User = d.cfg.APIKey, ""
	case d.cfg.User != "":
		cfg.APIKey, cfg.User = "", d.cfg.User
	}
	if d.cfg.Password != "" {
		cfg.Password = d.cfg.Password
	}
	if cfg.APIKey == "" && cfg.User == "" && cfg.AccessToken == "" {
		kept := keptlogin.Of(d.env.Getenv, keptlogin.Monitor, cmp.Or(cfg.Address, sensu.DefaultAddress))
		cfg.APIKey, cfg.User, cfg.Password = kept.Token, kept.User, kept.Password
		if token := d.env.Getenv("CORBEL_TOKEN"); token != "" && kept == (keptlogin.Login{}) {
			cfg.APIKey = token
		}
	}
	if d.namespace == "" {
		d.namespace = d.env.Getenv("SENSU_NAMESPACE")
	}
	if d.namespace == "" {
		d.namespace = "default"
	}
	cl, err := sensu.New(cfg)
	if err == nil {
		d.env.OnClose(cl.Close)
	}
	return cl, err
}

// query are the selectors.
func (d *dial) query() url.Values {
	q := url.Values{}
	for name, v := range map[string]string{"labelSelector": d.labels, "fieldSelector": d.fields} {
		if v != "" {
			q.Set(name, v)
		}
	}
	return q
}

// path is where an object is, or with an empty name their list.
func (d *dial) path(typ, name string) string {
	namespace := d.namespace
	if d.all && name == "" {
		namespace = ""
	}
	return sensu.ObjectPath("core/v2/"+typ, true, namespace, name)
}

// act makes a command that asks the monitor.
func act(e *command.Env, use, short string, args cobra.PositionalArgs, more func(*cobra.Command, *dial),
	run func(context.Context, *dial, *sensu.Client, []string) error) *cobra.Command {
	d := new(dial)
	c := &cobra.Command{Use: use, Short: short, Args: args}
	d.flags(e, c)
	if more != nil {
		more(c, d)
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := d.client()
		if err != nil {
			return err
		}
		ctx, stop := command.Signals(c.Context())
		defer stop()
		return run(ctx, d, cl, args)
	}
	return c
}

func listing(c *cobra.Command, d *dial) { d.listFlags(c) }
func reading(c *cobra.Command, d *dial) { d.jsonFlag(c) }

// list makes a command that prints a table of all objects of a type.
func list[T any](e *command.Env, typ, what string, head []string, row func(*T) []string) *cobra.Command {
	return act(e, "list", "List "+what, command.Between(0, 0, "flags only"), listing,
		func(ctx context.Context, d *dial, cl *sensu.Client, _ []string) error {
			return printList(ctx, d, cl, typ, head, row)
		})
}

func printList[T any](ctx context.Context, d *dial, cl *sensu.Client, typ string, head []string,
	row func(*T) []string) error {
	t := command.Table{Head: head}
	all := []json.RawMessage{}
	for raw, err := range cl.List(ctx, d.path(typ, ""), d.query()) {
		if err != nil {
			return err
		}
		if d.json {
			all = append(all, raw)
			continue
		}
		o := new(T)
		if err := json.Unmarshal(raw, o); err != nil {
			return fmt.Errorf("the monitor's answer: %w", err)
		}
		t.Add(row(o)...)
	}
	if d.json {
		return command.WriteJSON(d.env.Out, all, false)
	}
	return t.Write(d.env.Out)
}

// info makes a command that prints one object.
func info[T any](e *command.Env, typ, use, short string, n int, fields func(*T, *command.Fields)) *cobra.Command {
	return act(e, "info "+use, short, command.Between(n, n, use), reading,
		func(ctx context.Context, d *dial, cl *sensu.Client, args []string) error {
			var raw json.RawMessage
			if err := cl.Get(ctx, d.path(typ, strings.Join(args, "/")), &raw); err != nil {
				return absent(err, typ, args)
			}
			if d.json {
				return command.WriteJSON(d.env.Out, raw, false)
			}
			o := new(T)
			if err := json.Unmarshal(raw, o); err != nil {
				return fmt.Errorf("the monitor's answer: %w", err)
			}
			f := &command.Fields{Width: 16}
			fields(o, f)
			return f.Write(d.env.Out)
		})
}

// remove makes a command that deletes one object.
func remove(e *command.Env, typ, use, short string, n int, name func([]string) string) *cobra.Command {
	return act(e, "delete "+use, short, command.Between(n, n, use), nil,
		func(ctx context.Context, d *dial, cl *sensu.Client, args []string) error {
			if _, _, err := cl.Do(ctx, "DELETE", d.path(typ, name(args)), nil, nil); err != nil {
				return absent(err, typ, args)
			}
			return d.env.Printf("Deleted %s\n", strings.Join(args, " "))
		})
}

func joined(args []string) string { return strings.Join(args, "/") }

// absent says in plain words that something is not there.
func absent(err error, typ string, args []string) error {
	if sensu.NotFound(err) {
		return fmt.Errorf("there is no such thing among the %s: %s", typ, strings.Join(args, " "))
	}
	return err
}

// at is a time in full, for one object and for what is written as it comes.
func at(unix int64) string {
	if unix == 0 {
		return "-"
	}
	return time.Unix(unix, 0).UTC().Format("2006-01-02 15:04:05Z")
}

// ago is a time as a table shows it.
func ago(unix int64) string { return command.Ago(time.Now(), time.Unix(unix, 0)) }

// line is the first line of an output, cut to a width.
func line(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	if runes := []rune(text); len(runes) > 60 {
		return string(runes[:59]) + "…"
	}
	return text
}

// Create builds `create`: objects of files.
func Create(e *command.Env, c *cobra.Command) {
	var files []string
	var o createOptions
	d := new(dial)
	c.Use = "create -f FILE [flags]"
	c.Long = `Create or replace monitor objects from files in sensuctl's format: YAML documents or JSON,
each with type, api_version, metadata and spec. - reads stdin. All objects are validated
before anything is written, and all errors are listed, including unknown keys unless
--allow-unknown is set. Then they are written in the order of the files. References to
handlers, filters, mutators, assets or secrets that do not exist cause a warning.

  corbel create -f checks.yaml --username admin --password 'P@ssw0rd!'`
	c.Args = command.Between(0, 0, "-f FILE")
	d.flags(e, c)
	c.Flags().StringArrayVarP(&files, "file", "f", nil, "file to read; may be repeated")
	c.Flags().BoolVar(&o.allowUnknown, "allow-unknown", false,
		"take objects with keys that their type does not have, and drop these")
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "report errors, write nothing")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if len(files) == 0 {
			return command.Usagef("create needs -f FILE")
		}
		cl, err := d.client()
		if err != nil {
			return err
		}
		return create(c.Context(), d, cl, files, o)
	}
}

func yes(b bool) string { return strconv.FormatBool(b) }
