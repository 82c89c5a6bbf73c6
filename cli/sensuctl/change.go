package sensuctl

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client/sensu"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// value is a flag's, as the resource has it.
func (x *field) value(f *pflag.FlagSet) (v any) {
	switch x.kind { // the flags are those of fields: their types fit
	case 'n':
		v, _ = f.GetInt(x.name)
	case 'b':
		v, _ = f.GetBool(x.name)
	case 'l':
		v, _ = f.GetStringSlice(x.name)
	default:
		v, _ = f.GetString(x.name)
	}
	return v
}

// read is a value that was typed.
func (x *field) read(text string) (v any, err error) {
	switch x.kind {
	case 'n':
		v, err = strconv.Atoi(text)
	case 'b':
		v, err = strconv.ParseBool(text)
	case 'l':
		return split(text), nil
	default:
		return text, nil
	}
	if err != nil {
		kind := map[byte]string{'n': "a whole number", 'b': "true or false"}[x.kind]
		return nil, command.Usagef("%s: %q is not %s", x.name, text, kind)
	}
	return v, nil
}

// flagsOf gives a command the flags of fields.
func flagsOf(f *pflag.FlagSet, fields []field) {
	for _, x := range fields {
		switch x.kind {
		case 'n':
			f.Int(x.name, 0, x.use)
		case 'b':
			f.Bool(x.name, false, x.use)
		case 'l':
			f.StringSlice(x.name, nil, x.use)
		default:
			f.String(x.name, "", x.use)
		}
	}
}

// changes are the commands that change a part of an object, and those that bind roles.
type changes struct{ *Ctl }

// patch changes fields of an object in one step; nil takes one away.
func (s *Ctl) patch(ctx context.Context, cl *sensu.Client, path string, fields map[string]any, done string) error {
	return s.send(ctx, cl, "PATCH", path, fields, done)
}

// update makes `update NAME` of a type: what flags name is changed; without flags each field is asked for.
func (s changes) update(t *kind, fields []field) *cobra.Command {
	var c *cobra.Command
	c = s.act("update NAME", "Change one of the "+t.Plural+": by flags, or asked field by field",
		command.Between(1, 1, "NAME"),
		func(ctx context.Context, cl *sensu.Client, p *profile, args []string) error {
			change, f := map[string]any{}, c.Flags()
			for _, x := range fields {
				if f.Changed(x.name) {
					change[x.in] = x.value(f)
				}
			}
			path := t.path(p, args[0])
			if len(change) == 0 {
				raw, _, err := cl.Do(ctx, "GET", path, nil, nil)
				if err != nil {
					return err
				}
				if change, err = s.asked(raw, fields); err != nil {
					return err
				}
			}
			if len(change) == 0 {
				return s.env.Printf("nothing was changed\n")
			}
			return s.patch(ctx, cl, path, change, "Updated")
		})
	flagsOf(c.Flags(), fields)
	return c
}

// asked goes through an object's fields with whoever is at stdin: an empty line leaves one as it is.
func (s changes) asked(raw []byte, fields []field) (map[string]any, error) {
	now, err := object(raw)
	if err != nil {
		return nil, err
	}
	change, in := map[string]any{}, bufio.NewReader(s.env.In)
	for _, x := range fields {
		before := cell("", now[x.in])
		text := before
		if err := s.ask(in, x.name, &text, false); err != nil {
			return nil, err
		}
		if text == before {
			continue
		}
		if change[x.in], err = x.read(text); err != nil {
			return nil, err
		}
	}
	return change, nil
}

// checkMore are fields of checks that have a command of their own beside those that `check create` takes.
var checkMore = []field{{"high-flap-threshold", "high_flap_threshold", "the high flap threshold in percent", 'n'},
	{"low-flap-threshold", "low_flap_threshold", "the low flap threshold in percent", 'n'}}

// removable are fields of checks that may be taken away.
var removable = []string{"cron", "handlers", "high-flap-threshold", "low-flap-threshold", "output-metric-format",
	"output-metric-handlers", "proxy-entity-name", "proxy-requests", "runtime-assets", "subdue", "timeout", "ttl"}

// setters are `check set-FIELD NAME VALUE` and `check remove-FIELD NAME`.
func (s changes) setters(t *kind) (list []*cobra.Command) {
	for _, x := range slices.Concat(checkFields, checkMore) {
		list = append(list, s.act("set-"+x.name+" NAME VALUE", "Set "+x.use, command.Between(2, 2, "NAME VALUE"),
			func(ctx context.Context, cl *sensu.Client, p *profile, args []string) error {
				v, err := x.read(args[1])
				if err != nil {
					return err
				}
				change := map[string]any{x.in: v}
				switch x.name { // a check has one schedule
				case "cron":
					change["interval"] = 0
				case "interval":
					change["cron"] = ""
				}
				return s.patch(ctx, cl, t.path(p, args[0]), change, "Updated")
			}))
	}
	for _, name := range removable {
		list = append(list, s.act("remove-"+name+" NAME", "Take "+strings.ReplaceAll(name, "-", " ")+" from a check",
			command.Between(1, 1, "NAME"),
			func(ctx context.Context, cl *sensu.Client, p *profile, args []string) error {
				return s.patch(ctx, cl, t.path(p, args[0]), map[string]any{strings.ReplaceAll(name, "-", "_"): nil}, "Removed")
			}))
	}
	return append(list, s.setFile(t, "proxy-requests", "proxy requests"), s.setFile(t, "subdue", "times without runs"),
		s.setHooks(t), s.removeHook(t))
}

// setFile is a setter whose value is an object, in a file or at stdin.
func (s changes) setFile(t *kind, name, of string) *cobra.Command {
	var file string
	c := s.act("set-"+name+" NAME", "Set "+of+" from a file or stdin", command.Between(1, 1, "NAME"),
		func(ctx context.Context, cl *sensu.Client, p *profile, args []string) error {
			text, err := s.env.FileOrStdin(cmp.Or(file, "-"))
			if err != nil {
				return err
			}
			var v map[string]any
			if err := json.Unmarshal(text, &v); err != nil || v == nil {
				return command.Usagef("%s: a JSON object is needed: %v", name, err)
			}
			// What is set replaces what was: a merge alone would keep the old one's other fields.
			err = cl.Replace(ctx, t.path(p, args[0]), func(now []byte) ([]byte, error) {
				whole, err := object(now)
				if err != nil {
					return nil, err
				}
				whole[strings.ReplaceAll(name, "-", "_")] = v
				return json.Marshal(whole)
			})
			if err != nil {
				return err
			}
			return s.env.Printf("Updated\n")
		})
	c.Flags().StringVarP(&file, "file", "f", "", "file with the JSON object; - is stdin")
	return c
}

func (s changes) setHooks(t *kind) *cobra.Command {
	var typ string
	var hooks []string
	c := s.act("set-hooks NAME", "Set the hooks of a check for a status", command.Between(1, 1, "NAME"),
		func(ctx context.Context, cl *sensu.Client, p *profile, args []string) error {
			if typ == "" || len(hooks) == 0 {
				return command.Usagef("--type and --hooks are needed, such as --type non-zero --hooks process_tree")
			}
			return s.send(ctx, cl, "PUT", t.path(p, args[0])+"/hooks/"+typ, map[string]any{typ: hooks},
				"Updated")
		})
	c.Flags().StringVarP(&typ, "type", "t", "", "0 to 255, ok, warning, critical, unknown or non-zero")
	c.Flags().StringSliceVar(&hooks, "hooks", nil, "comma-separated hooks")
	return c
}

func (s changes) removeHook(t *kind) *cobra.Command {
	var sure bool
	c := s.act("remove-hook NAME TYPE HOOK", "Take a hook from a check", command.Between(3, 3, "NAME TYPE HOOK"),
		func(ctx context.Context, cl *sensu.Client, p *profile, args []string) error {
			if !sure {
				if err := s.confirm(args[2]); err != nil {
					return err
				}
			}
			path := fmt.Sprintf("%s/hooks/%s/hook/%s", t.path(p, args[0]), args[1], args[2])
			if _, _, err := cl.Do(ctx, "DELETE", path, nil, nil); err != nil {
				return err
			}
			return s.env.Printf("Removed\n")
		})
	c.Flags().BoolVar(&sure, "skip-confirm", false, "do not ask")
	return c
}

// binds makes `create NAME` of a role, or of what binds one.
func (s changes) binds(t *kind) *cobra.Command {
	var verbs, resources, names, users, groups []string
	var role, clusterRole string
	roleItself := strings.HasSuffix(t.Type, "Role")
	c := s.act("create NAME", "Create one of the "+t.Plural, command.Between(1, 1, "NAME"),
		func(ctx context.Context, cl *sensu.Client, p *profile, args []string) error {
			meta := map[string]string{"name": args[0]}
			if !t.Global {
				meta["namespace"] = p.Namespace
			}
			body := map[string]any{"metadata": meta}
			if roleItself {
				if len(verbs) == 0 || len(resources) == 0 {
					return command.Usagef("--verb and --resource are needed")
				}
				body["rules"] = []any{map[string]any{"verbs": verbs, "resources": resources, "resource_names": names}}
				return s.send(ctx, cl, "POST", t.path(p, ""), body, "Created")
			}
			if (role == "") == (clusterRole == "") || len(users)+len(groups) == 0 {
				return command.Usagef("one role, and --user or --group are needed")
			}
			ref := map[string]string{"type": "Role", "name": role}
			if clusterRole != "" {
				ref = map[string]string{"type": "ClusterRole", "name": clusterRole}
			}
			var subjects []any
			for _, list := range []struct {
				typ   string
				names []string
			}{{"User", users}, {"Group", groups}} {
				for _, name := range list.names {
					subjects = append(subjects, map[string]string{"type": list.typ, "name": name})
				}
			}
			body["role_ref"], body["subjects"] = ref, subjects
			return s.send(ctx, cl, "POST", t.path(p, ""), body, "Created")
		})
	f := c.Flags()
	if roleItself {
		f.StringSliceVarP(&verbs, "verb", "v", nil, "get, list, create, update, delete, or *")
		f.StringSliceVarP(&resources, "resource", "r", nil, "types such as checks, or *")
		f.StringSliceVarP(&names, "resource-name", "n", nil, "names; default all")
		return c
	}
	if !t.Global {
		f.StringVarP(&role, "role", "r", "", "role of the namespace")
	}
	f.StringVarP(&clusterRole, "cluster-role", "c", "", "cluster role")
	f.StringSliceVarP(&users, "user", "u", nil, "users")
	f.StringSliceVarP(&groups, "group", "g", nil, "groups")
	return c
}
