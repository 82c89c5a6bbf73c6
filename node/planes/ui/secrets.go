package uiplane

import (
	"context"
	"fmt"

	"corbel.dev/corbel/api/uiapi"
	"corbel.dev/corbel/node/planes/ui/planeasker"
)

// sealStatus is what anybody may know of the secrets plane.
type sealStatus struct {
	Initialized bool `json:"initialized"`
	Sealed      bool `json:"sealed"`
	Threshold   int  `json:"t"`
	Progress    int  `json:"progress"`
}

// secretsLine is the secrets plane in one line; false where it is not here, or the person has no login of it.
func secretsLine(ctx context.Context, a *planeasker.Asker, p *uiapi.Person) (planeRow, bool) {
	line := planeRow{Name: "Secrets", State: "passing", Path: "/secrets"}
	if !a.Has("secrets") || p.Secrets == "" {
		return line, false
	}
	var s sealStatus
	err := a.Get(ctx, p, "secrets", "/v1/sys/seal-status", &s)
	switch {
	case err != nil:
		line.State, line.Words = "critical", err.Error()
	case !s.Initialized:
		line.State, line.Words = "warning", "not initialized"
	case s.Sealed:
		line.State, line.Words = "critical", fmt.Sprintf("sealed: %d of %d keys were given", s.Progress, s.Threshold)
	default:
		line.Words = "unsealed"
	}
	return line, true
}
