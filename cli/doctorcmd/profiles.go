package doctorcmd

import (
	"context"
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
	member, name := "", "asked"
	if len(r.Findings) > 0 && r.Findings[0].Code != "member-silent" {
		member = r.Findings[0].Member
		name = member
	}
	saved := 0
	for _, kind := range []doctor.StackKind{doctor.StackCPU, doctor.StackBlocked, doctor.StackMutex, doctor.StackWaiting,
		doctor.StackHeap} {
		for format, suffix := range map[string]string{"pprof": ".pb.gz", "svg": ".svg"} {
			file := filepath.Join(o.profiles, safe(name)+"-"+string(kind)+suffix)
			err := o.save(ctx, cl, member, url.Values{"kind": {string(kind)}, "format": {format}}, file)
			var refused *client.Error
			var secret *vault.Error
			switch {
			case err == nil:
				saved++
			case errors.As(err, &refused) && refused.Code == http.StatusNotFound, errors.As(err, &secret) &&
				secret.Status == http.StatusNotFound:
				// none of this kind yet
			default:
				return fmt.Errorf("--profiles: %s of %s: %w", kind, name, err)
			}
		}
	}
	_, err = fmt.Fprintf(o.env.Err, "Saved %d files of profiles of %s in %s\n", saved, name, o.profiles)
	return err
}

// save writes the answer of path below /v1/ of member into a file. A server of secrets alone tells of itself.
func (o *options) save(ctx context.Context, cl *client.Client, member string, query url.Values, file string) error {
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
	if err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o600)
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
