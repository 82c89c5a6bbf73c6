package doctorcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"corbel.dev/corbel/client"
	"corbel.dev/corbel/client/vault"
	"corbel.dev/corbel/doctor"
	"corbel.dev/corbel/kit/plotpage"
)

// maxProfile bounds a file of a profile.
const maxProfile = 16 << 20

// saveProfiles writes what the member of the first finding, or the one that was asked, profiled last: for pprof, and
// as flame graphs.
func (o *options) saveProfiles(ctx context.Context, r *doctor.Report) error {
	cl, err := o.dial.Client()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.profiles, 0o755); err != nil {
		return fmt.Errorf("--profiles: %w", err)
	}
	member, name := profiled(r)
	saved := 0
	for _, kind := range []doctor.StackKind{doctor.StackCPU, doctor.StackBlocked, doctor.StackMutex, doctor.StackWaiting,
		doctor.StackHeap} {
		for format, suffix := range map[string]string{"pprof": ".pb.gz", "svg": ".svg"} {
			file := filepath.Join(o.profiles, safe(name)+"-"+string(kind)+suffix)
			err := o.save(ctx, cl, member, url.Values{"kind": {string(kind)}, "format": {format}}, file)
			switch {
			case err == nil:
				saved++
			case noneYet(err):
			default:
				return fmt.Errorf("--profiles: %s of %s: %w", kind, name, err)
			}
		}
	}
	_, err = fmt.Fprintf(o.env.Err, "Saved %d files of profiles of %s in %s\n", saved, name, o.profiles)
	return err
}

// profiled is the member whose profiles tell of a report: that of the first finding, or "", the one that is asked.
func profiled(r *doctor.Report) (member, name string) {
	if len(r.Findings) > 0 && r.Findings[0].Code != "member-silent" {
		return r.Findings[0].Member, r.Findings[0].Member
	}
	return "", "asked"
}

// noneYet tells whether an answer was that no profile of the kind was taken yet.
func noneYet(err error) bool {
	var refused *client.Error
	var secret *vault.Error
	return errors.As(err, &refused) && refused.Code == http.StatusNotFound ||
		errors.As(err, &secret) && secret.Status == http.StatusNotFound
}

// flames are flame graphs of where the time of the report's member went; why there are none is told in their place.
func (o *options) flames(ctx context.Context, r *doctor.Report) (parts []plotpage.Part) {
	if o.from != "" {
		return nil
	}
	cl, err := o.dial.Client()
	if err != nil {
		return nil
	}
	member, name := profiled(r)
	if member == "" {
		name = "the member that was asked"
	}
	for _, kind := range []doctor.StackKind{doctor.StackCPU, doctor.StackBlocked} {
		part := plotpage.Part{Head: "Where the time goes: " + string(kind) + " of " + name}
		b, err := o.profile(ctx, cl, member, url.Values{"kind": {string(kind)}, "format": {"tree"}})
		if noneYet(err) {
			continue
		}
		var tree struct{ Root node }
		if err == nil {
			err = json.Unmarshal(b, &tree)
		}
		if err != nil {
			part.Words = []string{"It could not be had: " + err.Error()}
		} else if f := tree.Root.frame(); f.Value > 0 {
			part.Flame = &f
		} else {
			continue
		}
		parts = append(parts, part)
	}
	return parts
}

// node is a frame of a profile as servers tell of it.
type node struct {
	Name  string  `json:"n"`
	Value float64 `json:"v"`
	Calls []node  `json:"c"`
}

func (n *node) frame() plotpage.Frame {
	f := plotpage.Frame{Name: n.Name, Value: n.Value}
	for i := range n.Calls {
		f.Calls = append(f.Calls, n.Calls[i].frame())
	}
	return f
}

// save writes a profile of member into a file.
func (o *options) save(ctx context.Context, cl *client.Client, member string, query url.Values, file string) error {
	b, err := o.profile(ctx, cl, member, query)
	if err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o600)
}

// profile is the newest profile of member; "" is the one that is asked. A server of secrets alone tells of itself.
func (o *options) profile(ctx context.Context, cl *client.Client, member string, query url.Values) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	prefix := ""
	if member != "" {
		prefix = "/v1/internal/reach/" + member
	}
	var b []byte
	resp, err := cl.Do(ctx, http.MethodGet, prefix+"/v1/doctor/profile", query, nil)
	var refused *client.Error
	switch {
	case errors.As(err, &refused) && isSecrets(refused):
		b, err = o.secretsProfile(ctx, query)
	case err == nil:
		defer resp.Body.Close()
		b, err = io.ReadAll(io.LimitReader(resp.Body, maxProfile))
	}
	return b, err
}

func (o *options) secretsProfile(ctx context.Context, query url.Values) ([]byte, error) {
	cfg, err := o.dial.Config()
	if err != nil {
		return nil, err
	}
	v, err := o.secrets(cfg)
	if err != nil {
		return nil, err
	}
	defer v.Close()
	a, err := v.Do(ctx, http.MethodGet, "sys/doctor/profile", query, nil)
	if err != nil {
		return nil, err
	}
	return a.Raw, nil
}

// safe is a member's name as a part of a file's.
func safe(name string) string {
	return strings.Map(func(c rune) rune {
		if strings.ContainsRune("/\\:", c) {
			return '_'
		}
		return c
	}, strings.TrimLeft(name, "."))
}
