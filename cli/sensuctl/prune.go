package sensuctl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client/sensu"
	"github.com/spf13/cobra"
)

// pruning is a prune: what is there of some types, and stands in no file, is deleted.
type pruning struct {
	files                           []string
	recursive, all, wide, dry, sure bool
	users                           []string
	label                           string
	omit                            []string
	s                               *Ctl
	p                               *profile
	cl                              *sensu.Client
	keep                            map[string]bool // paths of what stands in files
}

// unpruned are types that nobody keeps in files, or whose deletion takes more than themselves.
var unpruned = []string{"Event", "EntityConfig", "APIKey", "User", "Namespace"}

// prune builds `sensuctl prune`.
func (s *Ctl) prune(_ *command.Env, c *cobra.Command) {
	x := &pruning{s: s}
	c.Use = "prune TYPE[,TYPE...] | all -f FILE"
	c.Long = "Delete what was made by the person who asks, and stands in no file. Files hold everything that is to stay."
	fileFlags(c, &x.files, &x.recursive)
	c.Args = command.Between(1, 1, "types, separated by commas, or all")
	f := c.Flags()
	f.BoolVarP(&x.all, "all-users", "a", false, "whoever made it")
	f.StringSliceVarP(&x.users, "users", "u", nil, "what these users made")
	f.BoolVarP(&x.wide, "cluster-wide", "c", false, "types of no namespace too")
	f.BoolVarP(&x.dry, "dry-run", "d", false, "only print what would be deleted")
	f.BoolVar(&x.sure, "skip-confirm", false, "do not ask at a terminal")
	f.StringVar(&x.label, "label-selector", "", "labels to match")
	f.StringSliceVar(&x.omit, "omit", nil, "types that all leaves out")
	s.formatFlag(c)
	s.acts(c, func(ctx context.Context, cl *sensu.Client, p *profile, args []string) error {
		x.p, x.cl = p, cl
		return x.run(ctx, args[0])
	})
}

func (x *pruning) run(ctx context.Context, names string) error {
	chosen, err := chooseTypes(names, x.omit)
	if err != nil {
		return err
	}
	for _, t := range chosen {
		if names != "all" && slices.Contains(unpruned, t.Type) {
			return command.Usagef("%s are not pruned: delete them by name", t.Plural)
		}
		if names != "all" && t.Global && !x.wide {
			return command.Usagef("%s belong to no namespace: --cluster-wide prunes them", t.Plural)
		}
	}
	if err := x.stays(); err != nil {
		return err
	}
	if !x.all && len(x.users) == 0 {
		if x.p.User == "" {
			return command.Usagef("whose resources is not known of a login by key, token or provider: --users, or --all-users")
		}
		x.users = []string{x.p.User}
	}
	var found []doomed
	for _, t := range chosen {
		if slices.Contains(unpruned, t.Type) || t.Global && !x.wide {
			continue
		}
		list, err := x.find(ctx, t)
		var refused *sensu.Error
		if names == "all" && errors.As(err, &refused) && (refused.Status == 403 || refused.Status == 404) {
			fmt.Fprintf(x.s.env.Err, "%s are left out: %v\n", t.Plural, err)
			continue
		}
		if err != nil {
			return err
		}
		found = append(found, list...)
	}
	return x.end(ctx, found)
}

// plainPath is one path for what two types show: an entity and its configuration.
func plainPath(path string) string {
	path, _, _ = strings.Cut(path, "?")
	path = strings.Replace(path, "/api/core/v3/", "/api/core/v2/", 1)
	return strings.Replace(path, "/entity-configs/", "/entities/", 1)
}

// stays reads the files.
func (x *pruning) stays() error {
	list, err := read(x.s.env, x.files, x.recursive)
	if err != nil {
		return err
	}
	x.keep = map[string]bool{}
	for i := range list {
		path, _, err := list[i].Request(x.p.Namespace)
		if err != nil {
			return fmt.Errorf("%s: %w: nothing was deleted", list[i].String(), err)
		}
		x.keep[plainPath(path)] = true
	}
	return nil
}

// doomed is what is deleted.
type doomed struct {
	t    *kind
	path string
	*wrapped
}

// find lists what nobody keeps of a type. What bears no name of a person, such as an agent's entity, made itself.
func (x *pruning) find(ctx context.Context, t *kind) (out []doomed, err error) {
	found, err := gather(ctx, x.cl, t, x.p, x.label, "")
	if err != nil {
		return nil, err
	}
	for _, raw := range found {
		w, err := t.wrap(raw)
		if err != nil {
			return nil, err
		}
		name, _ := w.Metadata["name"].(string)
		by, _ := w.Metadata["created_by"].(string)
		path := t.path(x.p, name)
		if name == "" || by == "" || !x.all && !slices.Contains(x.users, by) || x.keep[plainPath(path)] {
			continue
		}
		out = append(out, doomed{t, path, w})
	}
	return out, nil
}

// end shows what was found, and deletes it unless it is only a rehearsal.
func (x *pruning) end(ctx context.Context, found []doomed) error {
	if err := x.show(found); err != nil || x.dry || len(found) == 0 {
		return err
	}
	if !x.sure && x.s.env.Asks() {
		if err := x.s.confirm(fmt.Sprintf("%d resources", len(found))); err != nil {
			return err
		}
	}
	var wrong []error
	for _, d := range slices.Backward(found) {
		if _, _, err := x.cl.Do(ctx, "DELETE", d.path, nil, nil); err != nil && !sensu.NotFound(err) {
			wrong = append(wrong, fmt.Errorf("%s %s: %w", d.Type, d.Metadata["name"], err))
		}
	}
	return errors.Join(wrong...)
}

func (x *pruning) show(found []doomed) error {
	if x.s.format != "" && x.s.format != "tabular" {
		if err := checkFormat(x.s.format); err != nil {
			return err
		}
		list := make([]*wrapped, len(found))
		for i := range found {
			list[i] = found[i].wrapped
		}
		return writeWrapped(x.s.env.Out, x.s.format, list)
	}
	if len(found) == 0 {
		return x.s.env.Printf("there is nothing to prune\n")
	}
	table := command.Table{Head: []string{"Type", "Namespace", "Name", "Created By"}}
	for _, d := range found {
		table.Add(d.APIVersion+"."+d.Type, cell("", d.Metadata["namespace"]), cell("", d.Metadata["name"]),
			cell("", d.Metadata["created_by"]))
	}
	return table.Write(x.s.env.Out)
}
