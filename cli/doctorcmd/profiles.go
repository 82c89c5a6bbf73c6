package doctorcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"corbel.dev/corbel/client"
	"corbel.dev/corbel/doctor"
)

// maxProfile bounds a file of a profile.
const maxProfile = 16 << 20

// saveProfiles writes what the member of the first finding, or the one that was asked, profiled last: for pprof, and as flame graphs.
func (o *options) saveProfiles(ctx context.Context, r *doctor.Report) error {
	cl, err := o.dial.Client()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.profiles, 0o755); err != nil {
		return fmt.Errorf("--profiles: %w", err)
	}
	prefix, name := "", "asked"
	if len(r.Findings) > 0 && r.Findings[0].Code != "member-silent" {
		name = r.Findings[0].Member
		prefix = "/v1/internal/reach/" + name
	}
	saved := 0
	for _, kind := range []doctor.StackKind{doctor.StackCPU, doctor.StackBlocked, doctor.StackMutex, doctor.StackWaiting, doctor.StackHeap} {
		for format, suffix := range map[string]string{"pprof": ".pb.gz", "svg": ".svg"} {
			file := filepath.Join(o.profiles, safe(name)+"-"+string(kind)+suffix)
			err := save(ctx, cl, prefix+"/v1/doctor/profile?kind="+string(kind)+"&format="+format, file)
			var refused *client.Error
			switch {
			case err == nil:
				saved++
			case errors.As(err, &refused) && refused.Code == http.StatusNotFound: // none of this kind yet
			default:
				return fmt.Errorf("--profiles: %s of %s: %w", kind, name, err)
			}
		}
	}
	_, err = fmt.Fprintf(o.env.Err, "Saved %d files of profiles of %s in %s\n", saved, name, o.profiles)
	return err
}

func save(ctx context.Context, cl *client.Client, path, file string) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	resp, err := cl.Do(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxProfile))
	if err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o600)
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
