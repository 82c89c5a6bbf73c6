package agentrows

import (
	"context"
	"time"

	"corbel.dev/corbel/catalog/local"
)

// Local is what this host registered (catalog/local.Local). Errors carry their
// kind and the contract's text.
type Local interface {
	View() *local.View
	// AwaitService returns the service once its hash differs from hash, or after wait.
	AwaitService(ctx context.Context, id, hash string, wait time.Duration) (*local.Service, error)
	// ServiceHealth returns a nil service when there is none of that id.
	ServiceHealth(id string) (status string, s *local.Service, checks []*local.Check)
	ServicesNamed(name string) []string
	RegisterService(ctx context.Context, d *local.ServiceDefinition, o local.RegisterOptions) error
	RegisterServices(ctx context.Context, list []*local.ServiceDefinition, o local.RegisterOptions) error
	DeregisterService(ctx context.Context, id string) error
	RegisterCheck(ctx context.Context, d *local.CheckDefinition, o local.RegisterOptions) error
	DeregisterCheck(ctx context.Context, id string) error
	// UpdateTTL is a heartbeat: it stays on this host unless the status changes.
	UpdateTTL(id, status, output string) error
	SetServiceMaintenance(ctx context.Context, id string, enable bool, reason string, persist bool) error
	SetServiceDrain(ctx context.Context, id string, enable bool, reason string) error
	// DrainServices is SetServiceDrain for many, and kept on no disk.
	DrainServices(ctx context.Context, ids []string, reason string) error
	SetNodeMaintenance(ctx context.Context, enable bool, reason string, persist bool) error
}
