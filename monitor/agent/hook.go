package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"corbel.dev/corbel/kit/shell"
	"corbel.dev/corbel/monitor"
)

// hookFits reports whether hooks of a type run after a status: by its number, its name, or any that is not 0.
func hookFits(kind string, status uint32) bool {
	switch kind {
	case strconv.FormatUint(uint64(status), 10):
		return true
	case "ok":
		return status == 0
	case "warning":
		return status == 1
	case "critical":
		return status == 2
	case "unknown":
		return status > 2
	case "non-zero":
		return status != 0
	}
	return false
}

// hooks runs the hooks of the check's status, each once, one after the other.
func (x *execution) hooks(ctx context.Context) (out []*monitor.Hook) {
	for _, list := range x.check.CheckHooks {
		if !hookFits(list.Type, x.event.Check.Status) {
			continue
		}
		for _, name := range list.Hooks {
			if ctx.Err() == nil && !slices.ContainsFunc(out, func(h *monitor.Hook) bool { return h.Name == name }) {
				out = append(out, x.hook(ctx, name))
			}
		}
	}
	return out
}

// hook runs one hook; what goes wrong is its output.
func (x *execution) hook(ctx context.Context, name string) *monitor.Hook {
	h := &monitor.Hook{Executed: x.agent.cfg.Now().Unix(), Issued: x.request.Issued}
	h.Name, h.Namespace = name, x.check.Namespace
	i := slices.IndexFunc(x.request.Hooks, func(c monitor.HookConfig) bool { return c.Name == name })
	if i < 0 {
		return failedHook(h, fmt.Errorf("hook %s: missing hook config", name), shell.StatusTimedOut)
	}
	h.HookConfig = x.request.Hooks[i]
	filled := h.HookConfig
	if err := filled.Validate(); err != nil {
		return failedHook(h, fmt.Errorf("hook %q is invalid: %w", name, err), shell.StatusTimedOut)
	}
	if err := x.data.Hook(&filled); err != nil {
		return failedHook(h, fmt.Errorf("hook %q: error doing token substitution: %w", name, err), shell.StatusTimedOut)
	}
	var assets []monitor.Asset
	for _, a := range x.request.HookAssets {
		if a.Hook == name {
			assets = a.Assets.Assets
		}
	}
	ended, err := x.command(ctx, commandOf{line: filled.Command, timeout: filled.Timeout, stdin: filled.Stdin,
		assets: assets, what: "check hook"})
	if err != nil {
		return failedHook(h, err, shell.StatusFailed)
	}
	h.Duration, h.Status, h.Output = ended.Duration.Seconds(), int32(ended.Status), string(ended.Output)
	return h
}

func failedHook(h *monitor.Hook, err error, status int32) *monitor.Hook {
	h.Output, h.Status = err.Error(), status
	if errors.Is(err, errDenied) {
		if n, err := strconv.ParseInt(h.Annotations[annotationOnDeny], 10, 32); err == nil {
			h.Status = int32(n)
		}
	}
	return h
}
