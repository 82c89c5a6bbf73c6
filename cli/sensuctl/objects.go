package sensuctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client/sensu"
	"github.com/spf13/cobra"
)

func (t *kind) path(p *profile, name string) string {
	return sensu.ObjectPath(t.Path, !t.Global, p.Namespace, name)
}

// group has the commands of one type.
func (s *Ctl) group(c *cobra.Command, t *kind) {
	words := max(t.Names, 1)
	use := map[int]string{1: "NAME", 2: "ENTITY CHECK"}[words]
	one := command.Between(words, words, use)
	var all bool
	var label, field string
	list := s.act("list", "List "+t.Plural, command.Between(0, 0, "flags only"),
		func(ctx context.Context, cl *sensu.Client, p *profile, _ []string) error {
			if all {
				p.Namespace = ""
			}
			found, err := gather(ctx, cl, t, p, label, field)
			if err != nil {
				return err
			}
			return s.write(p, t, found, false)
		})
	list.Flags().BoolVar(&all, "all-namespaces", false, "of all namespaces")
	list.Flags().StringVar(&label, "label-selector", "", "labels to match")
	list.Flags().StringVar(&field, "field-selector", "", "fields to match")
	list.Flags().Int("chunk-size", 0, "accepted: lists are read in pages anyhow")
	s.formatFlag(list)
	info := s.act("info "+use, "Show one of the "+t.Plural, one,
		func(ctx context.Context, cl *sensu.Client, p *profile, args []string) error {
			raw, _, err := cl.Do(ctx, "GET", t.path(p, strings.Join(args, "/")), nil, nil)
			if err != nil {
				return err
			}
			return s.write(p, t, []json.RawMessage{raw}, true)
		})
	s.formatFlag(info)
	var sure bool
	remove := s.act("delete "+use, "Delete one of the "+t.Plural, one,
		func(ctx context.Context, cl *sensu.Client, p *profile, args []string) error {
			name := strings.Join(args, "/")
			if !sure {
				if err := s.confirm(name); err != nil {
					return err
				}
			}
			if _, _, err := cl.Do(ctx, "DELETE", t.path(p, name), nil, nil); err != nil {
				return err
			}
			return s.env.Printf("Deleted\n")
		})
	remove.Flags().BoolVar(&sure, "skip-confirm", false, "do not ask")
	command.Group(c, append([]*cobra.Command{list, info, remove}, s.special(t)...)...)
}

// confirm asks for the name once more.
func (s *Ctl) confirm(name string) error {
	if err := s.env.Printf("? Are you sure you would like to delete resource %q? (y/N) ", name); err != nil {
		return err
	}
	b := make([]byte, 16)
	n, err := s.env.In.Read(b)
	if word := strings.ToLower(strings.TrimSpace(string(b[:n]))); word == "y" || word == "yes" {
		return nil
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return errors.New("nothing was deleted; --skip-confirm does not ask")
}

// gather reads all objects of a type.
func gather(ctx context.Context, cl *sensu.Client, t *kind, p *profile, label, field string) (out []json.RawMessage,
	err error) {
	q := url.Values{}
	for name, v := range map[string]string{"labelSelector": label, "fieldSelector": field} {
		if v != "" {
			q.Set(name, v)
		}
	}
	for raw, err := range cl.List(ctx, t.path(p, ""), q) {
		if err != nil {
			return nil, err
		}
		out = append(out, raw)
	}
	return out, nil
}

// read gives the objects of files, folders and URLs, or of stdin.
func read(e *command.Env, files []string, recursive bool) (list []sensu.Resource, err error) {
	if len(files) == 0 {
		files = []string{"-"}
	}
	for _, name := range files {
		inside, err := filesOf(name, recursive)
		if err != nil {
			return nil, err
		}
		for _, file := range inside {
			text, err := text(e, file)
			if err != nil {
				return nil, err
			}
			found, err := sensu.ReadResources(text)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			list = append(list, found...)
		}
	}
	if len(list) == 0 {
		return nil, command.Usagef("there are no resources in it: -f FILE, or stdin")
	}
	return list, nil
}

// filesOf is a file, or what a folder holds of such.
func filesOf(name string, recursive bool) (out []string, err error) {
	info, err := os.Stat(name)
	if err != nil || !info.IsDir() { // stdin, a URL, a file, or nothing
		return []string{name}, nil
	}
	err = filepath.WalkDir(name, func(path string, e os.DirEntry, err error) error {
		if err == nil && e.IsDir() && path != name && !recursive {
			return filepath.SkipDir
		}
		if ext := filepath.Ext(path); err == nil && !e.IsDir() && (ext == ".yaml" || ext == ".yml" || ext == ".json") {
			out = append(out, path)
		}
		return err
	})
	return out, err
}

// urlTime and maxURL bound what is read from a URL.
const (
	urlTime = time.Minute
	maxURL  = 64 << 20
)

// text is what a file, a URL or stdin (-) holds.
func text(e *command.Env, file string) ([]byte, error) {
	if !strings.HasPrefix(file, "https://") && !strings.HasPrefix(file, "http://") {
		return e.FileOrStdin(file)
	}
	ctx, cancel := context.WithTimeout(context.Background(), urlTime)
	defer cancel()
	body, err := open(ctx, file)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, maxURL+1))
	if err == nil && len(text) > maxURL {
		err = fmt.Errorf("%s is larger than 64 MiB", file)
	}
	return text, err
}

// fileFlags gives a command -f and -r.
func fileFlags(c *cobra.Command, files *[]string, recursive *bool) {
	c.Flags().StringArrayVarP(files, "file", "f", nil,
		"files, folders or URLs of resources, YAML or JSON; - is stdin (repeat)")
	c.Flags().BoolVarP(recursive, "recursive", "r", false, "folders with all below them")
	c.Args = command.Between(0, 0, "-f FILE")
}

func (s *Ctl) create(_ *command.Env, c *cobra.Command) {
	var files []string
	var recursive bool
	fileFlags(c, &files, &recursive)
	s.acts(c, func(ctx context.Context, cl *sensu.Client, p *profile, _ []string) error {
		list, err := read(s.env, files, recursive)
		if err != nil {
			return err
		}
		return s.put(ctx, cl, p, list)
	})
}

// put writes resources in their order; the error of one does not keep the others.
func (s *Ctl) put(ctx context.Context, cl *sensu.Client, p *profile, list []sensu.Resource) error {
	var wrong []error
	for i := range list {
		if unneeded(s.env, &list[i]) {
			continue
		}
		path, body, err := list[i].Request(p.Namespace)
		if err == nil {
			_, _, err = cl.Do(ctx, "PUT", path, nil, body)
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", list[i].String(), err))
		}
	}
	return errors.Join(wrong...)
}

func (s *Ctl) remove(_ *command.Env, c *cobra.Command) {
	var files []string
	var recursive bool
	fileFlags(c, &files, &recursive)
	s.acts(c, func(ctx context.Context, cl *sensu.Client, p *profile, _ []string) error {
		list, err := read(s.env, files, recursive)
		if err != nil {
			return err
		}
		var wrong []error
		for _, r := range slices.Backward(list) { // a namespace stands before what is in it
			if unneeded(s.env, &r) {
				continue
			}
			path, _, err := r.Request(p.Namespace)
			if err == nil {
				_, _, err = cl.Do(ctx, "DELETE", path, nil, nil)
			}
			if err != nil && !sensu.NotFound(err) {
				wrong = append(wrong, fmt.Errorf("%s: %w", r.String(), err))
			}
		}
		return errors.Join(wrong...)
	})
}

func (s *Ctl) dump(_ *command.Env, c *cobra.Command) {
	var all bool
	var omit []string
	var file, label, field string
	c.Use = "dump TYPE[,TYPE...] | all"
	c.Args = command.Between(1, 1, "types, separated by commas, or all")
	f := c.Flags()
	f.BoolVar(&all, "all-namespaces", false, "of all namespaces")
	f.StringSliceVar(&omit, "omit", nil, "types that all leaves out")
	f.StringVarP(&file, "file", "f", "", "file to write")
	f.StringVar(&label, "label-selector", "", "labels to match")
	f.StringVar(&field, "field-selector", "", "fields to match")
	s.formatFlag(c)
	s.acts(c, func(ctx context.Context, cl *sensu.Client, p *profile, args []string) error {
		chosen, err := chooseTypes(args[0], omit)
		if err != nil {
			return err
		}
		if all {
			p.Namespace = ""
		}
		var out []*wrapped
		for _, t := range chosen {
			found, err := gather(ctx, cl, t, p, label, field)
			var refused *sensu.Error
			if args[0] == "all" && errors.As(err, &refused) && (refused.Status == 403 || refused.Status == 404) {
				fmt.Fprintf(s.env.Err, "%s are left out: %v\n", t.Plural, err)
				continue
			}
			if err != nil {
				return err
			}
			for _, raw := range found {
				w, err := t.wrap(raw)
				if err != nil {
					return err
				}
				out = append(out, w)
			}
		}
		format := s.format
		if format == "" || format == "tabular" {
			format = "yaml"
		}
		if err := checkFormat(format); err != nil {
			return err
		}
		var b bytes.Buffer
		if err := writeWrapped(&b, format, out); err != nil {
			return err
		}
		if file != "" {
			return os.WriteFile(file, b.Bytes(), 0o600)
		}
		_, err = s.env.Out.Write(b.Bytes())
		return err
	})
}

func chooseTypes(names string, omit []string) (out []*kind, err error) {
	without := map[*kind]bool{typeNamed("entity_configs"): true} // they are entities, once more
	for _, name := range omit {
		t := typeNamed(name)
		if t == nil {
			return nil, command.Usagef("%q is no type; sensuctl describe-type all shows them", name)
		}
		without[t] = true
	}
	if names == "all" {
		for i := range types {
			if !without[&types[i]] {
				out = append(out, &types[i])
			}
		}
		return out, nil
	}
	for name := range strings.SplitSeq(names, ",") {
		t := typeNamed(strings.TrimSpace(name))
		if t == nil {
			return nil, command.Usagef("%q is no type; sensuctl describe-type all shows them", name)
		}
		out = append(out, t)
	}
	return out, nil
}

func (s *Ctl) describe(_ *command.Env, c *cobra.Command) {
	c.Use = "describe-type TYPE[,TYPE...] | all"
	c.Args = command.Between(1, 1, "types, separated by commas, or all")
	c.RunE = func(_ *cobra.Command, args []string) error {
		list, err := chooseTypes(args[0], nil)
		if err != nil {
			return err
		}
		table := command.Table{Head: []string{"Fully Qualified Name", "Short Name", "API Version", "Type", "Namespaced"}}
		for _, t := range list {
			table.Add(t.API+"."+t.Type, t.Short, t.API, t.Type, fmt.Sprint(!t.Global))
		}
		return table.Write(s.env.Out)
	}
}

// edit opens one object in $EDITOR and writes it back where it was changed.
func (s *Ctl) edit(_ *command.Env, c *cobra.Command) {
	c.Use = "edit TYPE NAME [CHECK]"
	c.Args = command.Between(2, 3, "TYPE NAME")
	s.formatFlag(c)
	s.acts(c, func(ctx context.Context, cl *sensu.Client, p *profile, args []string) error {
		t := typeNamed(args[0])
		if t == nil {
			return command.Usagef("%q is no type; sensuctl describe-type all shows them", args[0])
		}
		raw, _, err := cl.Do(ctx, "GET", t.path(p, strings.Join(args[1:], "/")), nil, nil)
		if err != nil {
			return err
		}
		w, err := t.wrap(raw)
		if err != nil {
			return err
		}
		var before bytes.Buffer
		format := "yaml"
		if strings.HasSuffix(s.format, "json") {
			format = s.format
		}
		if err := writeWrapped(&before, format, []*wrapped{w}); err != nil {
			return err
		}
		after, err := s.edited(ctx, before.Bytes())
		if err != nil {
			return err
		}
		if bytes.Equal(before.Bytes(), after) {
			return s.env.Printf("nothing was changed\n")
		}
		list, err := sensu.ReadResources(after)
		if err != nil {
			return err
		}
		if err := s.put(ctx, cl, p, list); err != nil {
			return err
		}
		return s.env.Printf("Updated %s\n", strings.Join(args, " "))
	})
}

// edited lets a person change a text.
func (s *Ctl) edited(ctx context.Context, text []byte) ([]byte, error) {
	f, err := os.CreateTemp("", "sensuctl")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // a remnant in the folder of such
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	words := strings.Fields(s.first("", "EDITOR", "vi"))
	run := exec.CommandContext(ctx, words[0], append(words[1:], f.Name())...)
	run.Stdin, run.Stdout, run.Stderr = s.env.In, s.env.Out, s.env.Err
	if err := run.Run(); err != nil {
		return nil, fmt.Errorf("the editor %s: %w", words[0], err)
	}
	return os.ReadFile(f.Name())
}
