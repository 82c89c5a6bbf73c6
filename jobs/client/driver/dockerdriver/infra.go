package dockerdriver

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"corbel.dev/corbel/kit/errkind"
)

// DefaultInfra is the image of the container that holds an allocation's network: all that it does is to wait.
const DefaultInfra = "registry.k8s.io/pause:3.10"

// infraName is the name of that container.
func infraName(alloc string) string { return "nomad_init_" + alloc }

// Hold implements hostnet.Holder: an Engine lets containers join the network of another container, and no other.
func (d *Driver) Hold(ctx context.Context, alloc, hostname string) (path, container string, err error) {
	name := infraName(alloc)
	var is struct {
		State struct {
			Running bool
			Pid     int
		}
	}
	look := func() error { return d.engine.call(ctx, http.MethodGet, "/containers/"+name+"/json", nil, &is) }
	err = look()
	if err == nil && !is.State.Running {
		if err = d.Release(ctx, alloc); err == nil {
			err = errkind.New(errkind.NotFound, "it had ended")
		}
	}
	if errkind.Is(err, errkind.NotFound) {
		if err = d.hold(ctx, name, alloc, hostname); err == nil {
			err = look()
		}
	}
	if err == nil && is.State.Pid <= 0 {
		err = errkind.New(errkind.Unavailable, "the container has no process on this host")
	}
	if err != nil {
		return "", "", errkind.E(errkind.Of(err), "container that holds the network", err)
	}
	return fmt.Sprintf("/proc/%d/ns/net", is.State.Pid), name, nil
}

func (d *Driver) hold(ctx context.Context, name, alloc, hostname string) error {
	image := d.Infra
	if image == "" {
		image = DefaultInfra
	}
	if err := d.image(ctx, &config{Image: image}); err != nil {
		return err
	}
	var made struct{ ID string }
	err := d.engine.call(ctx, http.MethodPost, "/containers/create?name="+url.QueryEscape(name), &create{Image: image,
		Hostname: hostname, Labels: map[string]string{"com.hashicorp.nomad.alloc_id": alloc},
		HostConfig: hostConfig{NetworkMode: "none", Mounts: []engineMount{},
			hostResources: hostResources{Ulimits: []ulimit{}}}}, &made)
	if err != nil {
		return err
	}
	return d.engine.call(ctx, http.MethodPost, "/containers/"+made.ID+"/start", nil, nil)
}

// Release implements hostnet.Holder.
func (d *Driver) Release(ctx context.Context, alloc string) error {
	err := d.engine.call(ctx, http.MethodDelete, "/containers/"+infraName(alloc)+"?force=true&v=true", nil, nil)
	if errkind.Is(err, errkind.NotFound) {
		return nil
	}
	return err
}
