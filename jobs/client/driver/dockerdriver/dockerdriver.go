// Package dockerdriver starts tasks as containers of a Docker Engine, or of Podman, which has the same API at its own
// socket. Its names in job files are docker and podman.
//
// A container lives on while the agent is away. Its output is copied to the task's rotated files by the agent, from
// where it stopped: a note beside the task says up to which moment.
package dockerdriver

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"time"

	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/kit/errkind"
)

// The drivers' names in job files.
const (
	Name   = "docker"
	Podman = "podman"
)

// Driver implements driver.Driver.
type Driver struct {
	Kind       string // Name or Podman
	Privileged bool   // jobs may ask for what reaches the host
	Infra      string // image of containers that hold networks; default DefaultInfra
	engine     *engine
}

// New makes a driver of the Engine at an address, unix:///path.
func New(kind, address string, privileged bool) (*Driver, error) {
	e, err := newEngine(address)
	return &Driver{Kind: kind, Privileged: privileged, engine: e}, err
}

// Fingerprint implements driver.Driver.
func (d *Driver) Fingerprint(ctx context.Context) driver.Fingerprint {
	var v struct{ Version, Os, Arch string }
	err := d.engine.call(ctx, http.MethodGet, "/version", nil, &v)
	if err != nil || v.Version == "" {
		return driver.Fingerprint{Text: "Failed to connect to " + d.Kind + " daemon"}
	}
	at := "driver." + d.Kind
	return driver.Fingerprint{Detected: true, Healthy: true, Text: "Healthy", Attributes: map[string]string{at: "1",
		at + ".version": v.Version, at + ".os_type": v.Os, at + ".privileged.enabled": map[bool]string{true: "true",
			false: "false"}[d.Privileged]}}
}

// Inside are a task's folders as it sees them.
func (d *Driver) Inside(driver.Dirs) driver.Dirs { return driver.Dirs{Task: "", Shared: "/alloc"} }

// defaultPull bounds a pull.
const defaultPull = 5 * time.Minute

// Start implements driver.Driver.
func (d *Driver) Start(ctx context.Context, t *driver.Task) (driver.Running, error) {
	var c config
	if err := driver.Decode(t.Config, &c); err != nil {
		return nil, err
	}
	request, err := d.create(t, &c)
	if err != nil {
		return nil, err
	}
	if err := d.image(ctx, &c); err != nil {
		return nil, err
	}
	name := t.Name + "-" + t.Alloc
	var made struct{ ID string }
	err = d.engine.call(ctx, http.MethodPost, "/containers/create?name="+name, request, &made)
	if errkind.Is(err, errkind.Conflict) { // what a former try left
		if err = d.engine.call(ctx, http.MethodDelete, "/containers/"+name+"?force=true", nil, nil); err == nil {
			err = d.engine.call(ctx, http.MethodPost, "/containers/create?name="+name, request, &made)
		}
	}
	if err != nil {
		return nil, errkind.E(errkind.Of(err), "create the container", err)
	}
	if err := d.engine.call(ctx, http.MethodPost, "/containers/"+made.ID+"/start", nil, nil); err != nil {
		_ = d.engine.call(context.WithoutCancel(ctx), http.MethodDelete, "/containers/"+made.ID+"?force=true", nil, nil)
		return nil, errkind.E(errkind.Of(err), "start the container", err)
	}
	if err := os.MkdirAll(t.Dirs.Private, 0o700); err != nil {
		return nil, err
	}
	return d.follow(t, made.ID, request.Tty), nil
}

// image has the Engine have the image.
func (d *Driver) image(ctx context.Context, c *config) error {
	name, tag := split(c.Image)
	if !c.ForcePull && tag != "latest" || strings.HasPrefix(tag, "sha256:") {
		if d.engine.call(ctx, http.MethodGet, "/images/"+c.Image+"/json", nil, nil) == nil {
			return nil
		}
	}
	limit := defaultPull
	if c.PullTimeout != "" {
		span, err := time.ParseDuration(c.PullTimeout)
		if err != nil || span <= 0 {
			return errkind.Errorf(errkind.Invalid, "config: image_pull_timeout: %q is no duration", c.PullTimeout)
		}
		limit = span
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var who *auth
	if len(c.Auth) > 0 {
		who = &c.Auth[0]
	}
	err := d.engine.pull(ctx, c.Image, who)
	if err != nil && !c.ForcePull && d.engine.call(ctx, http.MethodGet, "/images/"+c.Image+"/json", nil, nil) == nil {
		return nil // the registry is away, and the image is here
	}
	if err != nil {
		return errkind.E(errkind.Unavailable, "Failed to pull `"+name+"`", err)
	}
	return nil
}

// state is what a container is found by.
type state struct {
	Container string
	TTY       bool
}

// Recover implements driver.Driver.
func (d *Driver) Recover(ctx context.Context, t *driver.Task, text []byte) (driver.Running, error) {
	var s state
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, errkind.E(errkind.NotFound, "state of the task", err)
	}
	if err := d.engine.call(ctx, http.MethodGet, "/containers/"+s.Container+"/json", nil, nil); err != nil {
		return nil, err
	}
	return d.follow(t, s.Container, s.TTY), nil
}
