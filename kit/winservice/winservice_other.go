//go:build !windows

package winservice

import (
	"context"

	"corbel.dev/corbel/kit/errkind"
)

var errElsewhere = errkind.New(errkind.Invalid, "this system has no service manager of Windows: the packages have "+
	"units of systemd (`systemctl enable --now corbel-agent`)")

// Started reports whether the service manager started this process.
func Started() bool { return false }

// Run runs body; nobody manages it.
func Run(body func(context.Context, *Service) int) int { return body(context.Background(), nil) }

// Install makes a service that starts with the host.
func Install(Definition) error { return errElsewhere }

// Remove removes a service that does not run.
func Remove(string) error { return errElsewhere }

// Start starts a service, and returns once it runs.
func Start(context.Context, string) error { return errElsewhere }

// Stop stops a service, and returns once it has ended.
func Stop(context.Context, string) error { return errElsewhere }

// State tells what a service does, in a word.
func State(string) (string, error) { return "", errElsewhere }
