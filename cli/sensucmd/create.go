package sensucmd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"corbel.dev/corbel/client/sensu"
)

type createOptions struct{ allowUnknown, dryRun bool }

// object is one that is to be written.
type object struct {
	file, name, path string
	body             []byte
}

// tried says whether the server can try to write the object without doing it: an event is not stored as it comes, it
// happens, and an API key needs a user, who may stand before it in the file.
func (o *object) tried() bool {
	return !strings.Contains(o.path, "/events/") && !strings.Contains(o.path, "/apikeys/") &&
		!strings.HasSuffix(o.path, "/tessen")
}

func create(ctx context.Context, d *dial, cl *sensu.Client, files []string, o createOptions) error {
	list, err := readObjects(d, files)
	if err != nil {
		return err
	}
	how := url.Values{"dry_run": {"true"}, "strict": {"true"}}
	if o.allowUnknown {
		how.Del("strict")
	}
	if err := try(ctx, cl, list, how); err != nil {
		return err
	}
	if o.dryRun {
		if err := warn(ctx, d, cl, list); err != nil {
			return err
		}
		return d.env.Printf("%d objects could be written\n", len(list))
	}
	for i, w := range list {
		if _, _, err := cl.Do(ctx, "PUT", w.path, nil, w.body); err != nil {
			return fmt.Errorf("%s (%d of %d; those before it were written): %w", w.name, i+1, len(list), err)
		}
		if err := d.env.Printf("Wrote %s\n", w.name); err != nil {
			return err
		}
	}
	return warn(ctx, d, cl, list)
}

// readObjects reads all files.
func readObjects(d *dial, files []string) (list []object, err error) {
	for _, file := range files {
		text, err := d.env.FileOrStdin(file)
		if err != nil {
			return nil, err
		}
		found, err := sensu.ReadResources(text)
		if err == nil && len(found) == 0 {
			err = errors.New("there are no objects in it")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, r := range found {
			path, body, err := r.Request(d.namespace)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			list = append(list, object{file, r.String(), path, body})
		}
	}
	return list, nil
}

// try has the server look at all objects, and lists all that it would refuse.
func try(ctx context.Context, cl *sensu.Client, list []object, how url.Values) error {
	var wrong []error
	for i := range list {
		w := &list[i]
		if !w.tried() {
			continue
		}
		_, _, err := cl.Do(ctx, "PUT", w.path, how, w.body)
		var refused *sensu.Error
		switch {
		case err == nil:
		case errors.As(err, &refused) && refused.Status == 400:
			text := refused.Message
			if strings.Contains(text, "unknown key") {
				text += "\n  (--allow-unknown drops unknown keys)"
			}
			wrong = append(wrong, fmt.Errorf("%s: %s: %s", w.file, w.name, text))
		default:
			return fmt.Errorf("%s: %s: %w", w.file, w.name, err)
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("nothing was written:\n%w", errors.Join(wrong...))
	}
	return nil
}

// warn prints what the server wants known of the objects, now that all of them are there.
func warn(ctx context.Context, d *dial, cl *sensu.Client, list []object) error {
	for i := range list {
		w := &list[i]
		if !w.tried() {
			continue
		}
		_, h, err := cl.Do(ctx, "PUT", w.path, url.Values{"dry_run": {"true"}}, w.body)
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		for _, text := range sensu.Warnings(h) {
			fmt.Fprintf(d.env.Err, "warning: %s: %s\n", w.name, text)
		}
	}
	return nil
}
