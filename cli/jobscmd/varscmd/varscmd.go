// Package varscmd holds the commands of variables: `nomad var`, and `corbel vars`.
package varscmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"text/template"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/jobscmd"
	"corbel.dev/corbel/client/nomad"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/jobs/spec"
	"corbel.dev/corbel/kit/errkind"
	"github.com/spf13/cobra"
)

// variableMeta is a variable in a list.
type variableMeta struct {
	Namespace, Path          string
	CreateIndex, ModifyIndex uint64
	CreateTime, ModifyTime   int64
}

// variable is one with what it holds.
type variable struct {
	variableMeta
	Items map[string]string
}

// Var builds `nomad var` and `corbel vars`.
func Var(e *command.Env, cmd *cobra.Command) {
	command.Group(cmd, varList(e), varGet(e), varPut(e), varPurge(e), varInit(e))
	cmd.Example = "  " + (&jobscmd.Call{Env: e}).Tool("var put", "vars put") + " nomad/jobs/example password=s3cret\n  " +
		(&jobscmd.Call{Env: e}).Tool("var get", "vars get") + " nomad/jobs/example"
}

func varPath(path string) string {
	parts := strings.Split(path, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return "var/" + strings.Join(parts, "/")
}

// run is what a command does with its arguments.
type run = func(*jobscmd.Call, []string) error

func varList(e *command.Env) *cobra.Command {
	return jobscmd.Leaf(e, "list [PREFIX]", "List the variables, without what they hold", 0, 1,
		func(cmd *cobra.Command) run {
			f := cmd.Flags()
			page := f.Int("per-page", 0, "most variables to print; 0 is all")
			next := f.String("page-token", "", "where the page begins, as the page before said")
			filter := f.String("filter", "", "only what this expression matches")
			out := f.String("out", "", "table, json or terse")
			return func(c *jobscmd.Call, args []string) error {
				query := url.Values{}
				for name, value := range map[string]string{"prefix": strings.Join(args, ""), "next_token": *next,
					"filter": *filter} {
					if value != "" {
						query.Set(name, value)
					}
				}
				if *page > 0 {
					query.Set("per_page", strconv.Itoa(*page))
				}
				list := []*variableMeta{}
				meta, err := c.Client.Get(c.Ctx(), "vars", query, &list)
				if err != nil {
					return err
				}
				if err := varTable(c, *out, list); err != nil || meta.Next == "" || c.JSON || *out == "json" {
					return err
				}
				return c.Printf("\nResults have been paginated. To get the next page run:\n\n%s -page-token %s\n",
					c.Tool("var list", "vars list"), meta.Next)
			}
		})
}

func varTable(c *jobscmd.Call, out string, list []*variableMeta) error {
	switch {
	case c.JSON || out == "json":
		return command.WriteJSON(c.Out, list, false)
	case out == "terse":
		for _, m := range list {
			c.Say("%s\n", m.Path)
		}
		return nil
	case out != "" && out != "table":
		return command.Usagef("-out %s: use table, json or terse", out)
	}
	rows := [][]string{}
	for _, m := range list {
		rows = append(rows, []string{m.Namespace, m.Path, moment(m.ModifyTime)})
	}
	return c.Table([]string{"Namespace", "Path", "Last Updated"}, rows, "No matching variables found")
}

func moment(nanos int64) string { return time.Unix(0, nanos).UTC().Format(time.RFC3339) }

func varGet(e *command.Env) *cobra.Command {
	return jobscmd.Leaf(e, "get PATH", "Print a variable", 1, 1, func(cmd *cobra.Command) run {
		f := cmd.Flags()
		item := f.String("item", "", "print this item's value alone")
		out := f.String("out", "", "table, json, hcl, go-template or none")
		text := f.String("template", "", "what -out go-template prints, such as {{ .Items.password }}")
		return func(c *jobscmd.Call, args []string) error {
			one := &variable{}
			_, err := c.Client.Get(c.Ctx(), varPath(args[0]), nil, one)
			if nomad.IsNotFound(err) {
				return fmt.Errorf("there is no variable %q in namespace %q", args[0], c.Client.Namespace())
			}
			if err != nil {
				return err
			}
			if *item != "" {
				value, ok := one.Items[*item]
				if !ok {
					return fmt.Errorf("the variable has no item %q: it has %s", *item,
						strings.Join(command.SortedKeys(one.Items), ", "))
				}
				return c.Printf("%s\n", value)
			}
			return show(c, one, *out, *text)
		}
	})
}

// show prints a variable.
func show(c *jobscmd.Call, one *variable, out, text string) error {
	if out == "" && c.JSON {
		out = "json"
	}
	switch out {
	case "none":
		return nil
	case "json":
		return command.WriteJSON(c.Out, one, false)
	case "hcl":
		return c.Printf("%s", varHCL(one))
	case "go-template":
		t, err := template.New("template").Parse(text)
		if err != nil || text == "" {
			return command.Usagef("-template: a template is needed, such as {{ .Items.password }}: %v", err)
		}
		if err := t.Execute(c.Out, one); err != nil {
			return fmt.Errorf("-template: %w", err)
		}
		return c.Printf("\n")
	case "", "table":
		c.Fields("Namespace", one.Namespace, "Path", one.Path, "Create Time", moment(one.CreateTime),
			"Check Index", strconv.FormatUint(one.ModifyIndex, 10))
		c.Say("\nItems\n")
		for _, name := range command.SortedKeys(one.Items) {
			c.Fields(name, one.Items[name])
		}
		return nil
	}
	return command.Usagef("-out %s: use table, json, hcl, go-template or none", out)
}

// varHCL is a variable as a file that put reads.
func varHCL(one *variable) string {
	var b strings.Builder
	fmt.Fprintf(&b, "namespace    = %s\npath         = %s\nmodify_index = %d\n\nitems = {\n", hclText(one.Namespace),
		hclText(one.Path), one.ModifyIndex)
	for _, name := range command.SortedKeys(one.Items) {
		fmt.Fprintf(&b, "  %s = %s\n", hclText(name), hclText(one.Items[name]))
	}
	b.WriteString("}\n")
	return b.String()
}

// hclText quotes a text as HCL does: as Go, and no template begins in it.
func hclText(s string) string {
	return strings.NewReplacer("${", "$${", "%{", "%%{").Replace(strconv.Quote(s))
}

func varPut(e *command.Env) *cobra.Command {
	return jobscmd.Leaf(e, "put PATH|@FILE|- [NAME=VALUE...]", "Store a variable, with the items given", 1, -1,
		func(cmd *cobra.Command) run {
			f := cmd.Flags()
			check := f.String("check-index", "", "only when the stored one's check index is this; 0 is for none (the default)")
			force := f.Bool("force", false, "whatever is stored")
			in := f.String("in", "", "the file's format: hcl or json; else by its name")
			out := f.String("out", "", "what is printed of it: table, json, hcl, go-template or none")
			text := f.String("template", "", "what -out go-template prints")
			return func(c *jobscmd.Call, args []string) error {
				one, err := given(c, args, *in)
				if err != nil {
					return err
				}
				query := url.Values{"namespace": {one.Namespace}}
				if index, checked, err := checkIndex(*check, one.ModifyIndex); err != nil {
					return err
				} else if !*force || checked {
					query.Set("cas", strconv.FormatUint(index, 10))
				}
				body := map[string]any{"Namespace": one.Namespace, "Path": one.Path, "Items": one.Items}
				stored := &variable{}
				if err := c.Client.Put(c.Ctx(), varPath(one.Path), query, body, stored); err != nil {
					return conflict(err)
				}
				if *out == "" && !c.JSON {
					return c.Printf("Successfully created variable %q with modify index %d\n", stored.Path, stored.ModifyIndex)
				}
				return show(c, stored, *out, *text)
			}
		})
}

// checkIndex is what a flag says, or else a file.
func checkIndex(flag string, otherwise uint64) (index uint64, checked bool, err error) {
	if flag == "" {
		return otherwise, false, nil
	}
	index, err = strconv.ParseUint(flag, 10, 64)
	if err != nil {
		err = command.Usagef("-check-index %s is not a number", flag)
	}
	return index, true, err
}

// conflict tells what to do about a check that failed.
func conflict(err error) error {
	var refused *nomad.Error
	now := &variable{}
	if !errors.As(err, &refused) || refused.Status != http.StatusConflict ||
		json.Unmarshal([]byte(refused.Text), now) != nil {
		return err
	}
	if now.ModifyIndex == 0 {
		return errors.New("Check-and-Set conflict: there is no such variable: -check-index 0 creates it")
	}
	return fmt.Errorf("Check-and-Set conflict: the server's variable has index %d, of %s: look at it, and add "+
		"-check-index %d to replace that one, or -force", now.ModifyIndex, moment(now.ModifyTime), now.ModifyIndex)
}

// given is what put stores: a file, items of the command line, or both, where the latter count.
func given(c *jobscmd.Call, args []string, format string) (*variable, error) {
	one := &variable{Items: map[string]string{}}
	name, isFile := strings.CutPrefix(args[0], "@")
	switch {
	case isFile || args[0] == "-":
		text, err := c.FileOrStdin(name)
		if err != nil {
			return nil, fmt.Errorf("read the variable: %w", err)
		}
		if err := one.read(text, name, format); err != nil {
			return nil, err
		}
	default:
		one.Path = args[0]
	}
	for _, pair := range args[1:] {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			if isFile || args[0] == "-" {
				one.Path = pair
				continue
			}
			return nil, command.Usagef("%q must be NAME=VALUE", pair)
		}
		text, err := c.Input(value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		one.Items[key] = string(text)
	}
	switch {
	case one.Path == "":
		return nil, command.Usagef("the variable has no path")
	case len(one.Items) == 0:
		return nil, command.Usagef("a variable has one item at least: NAME=VALUE")
	}
	if one.Namespace == "" || c.Client.Namespace() != "default" {
		one.Namespace = c.Client.Namespace()
	}
	return one, nil
}

// read takes a file of a variable.
func (v *variable) read(text []byte, name, format string) error {
	if format == "" {
		format = "hcl"
		if strings.HasSuffix(name, ".json") || strings.HasPrefix(strings.TrimSpace(string(text)), "{") {
			format = "json"
		}
	}
	switch format {
	case "json":
		read, err := jobwire.Decode[variable](text)
		if err != nil {
			return fmt.Errorf("the file is no variable in JSON: %s", errkind.Text(err))
		}
		*v = *read
	case "hcl":
		read, err := spec.ParseVariable(text, name)
		if err != nil {
			return fmt.Errorf("the file is no variable: %s", errkind.Text(err))
		}
		v.Namespace, v.Path, v.Items, v.ModifyIndex = read.Namespace, read.Path, read.Items, read.ModifyIndex
	default:
		return command.Usagef("-in %s: use hcl or json", format)
	}
	if v.Items == nil {
		v.Items = map[string]string{}
	}
	return nil
}

func varPurge(e *command.Env) *cobra.Command {
	return jobscmd.Leaf(e, "purge PATH", "Delete a variable", 1, 1, func(cmd *cobra.Command) run {
		check := cmd.Flags().String("check-index", "", "only when the stored one's check index is this")
		return func(c *jobscmd.Call, args []string) error {
			query := url.Values{}
			if index, checked, err := checkIndex(*check, 0); err != nil {
				return err
			} else if checked {
				query.Set("cas", strconv.FormatUint(index, 10))
			}
			if _, err := c.Client.Do(c.Ctx(), http.MethodDelete, varPath(args[0]), query, nil, nil); err != nil {
				return conflict(err)
			}
			return c.Printf("Successfully purged variable %q!\n", args[0])
		}
	})
}

// The files that init writes.
const (
	varSample = `# A variable of a job: its tasks read it in a template as
#   {{ with nomadVar "nomad/jobs/example" }}{{ .password }}{{ end }}
namespace = "default"
path      = "nomad/jobs/example"

items {
  user     = "example"
  password = "change me"
}
`
	varSampleJSON = `{
  "Namespace": "default",
  "Path": "nomad/jobs/example",
  "Items": {
    "user": "example",
    "password": "change me"
  }
}
`
)

func varInit(e *command.Env) *cobra.Command {
	c := &jobscmd.Call{Env: e}
	cmd := &cobra.Command{Use: "init [FILE]", Short: "Write a file that describes a variable"}
	asJSON := cmd.Flags().Bool("json", false, "in JSON")
	quiet := cmd.Flags().BoolP("quiet", "q", false, "print nothing")
	cmd.Args = command.Between(0, 1, "one file at most")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		name, text := "spec.nv.hcl", varSample
		if *asJSON {
			name, text = "spec.nv.json", varSampleJSON
		}
		if len(args) == 1 {
			name = args[0]
		}
		f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if os.IsExist(err) {
			return fmt.Errorf("%s is there already: nothing is overwritten", name)
		}
		if err != nil {
			return err
		}
		_, err = f.WriteString(text)
		if err := errors.Join(err, f.Close()); err != nil || *quiet {
			return err
		}
		return c.Printf("Example variable specification written to %s\nStore it with: %s @%s\n", name,
			c.Tool("var put", "vars put"), name)
	}
	return cmd
}
