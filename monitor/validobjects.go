package monitor

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// Validate returns what is wrong with the list of hooks. Its type is an exit status or a word for several.
func (l *HookList) Validate() error {
	if l.Type == "" {
		return errors.New("type cannot be empty")
	}
	if len(l.Hooks) == 0 {
		return errors.New("hooks cannot be empty")
	}
	switch l.Type {
	case "ok", "warning", "critical", "unknown", "non-zero":
		return nil
	}
	if n, err := strconv.ParseUint(l.Type, 10, 8); err != nil || strconv.FormatUint(n, 10) != l.Type {
		return errors.New("valid check hook types are \"0\" to \"255\", \"ok\", \"warning\", \"critical\", \"unknown\", " +
			"and \"non-zero\"")
	}
	return nil
}

// Validate returns what is wrong with the hook.
func (h *HookConfig) Validate() error {
	if err := named("hook", h.Name); err != nil {
		return err
	}
	switch {
	case h.Command == "":
		return errors.New("command cannot be empty")
	case h.Timeout == 0:
		return errors.New("hook timeout must be greater than 0")
	case h.Namespace == "":
		return errNamespace
	}
	return nil
}

// Validate returns what is wrong with the handler.
func (h *Handler) Validate() error {
	if err := named("handler", h.Name); err != nil {
		return err
	}
	if h.Namespace == "" {
		return errNamespace
	}
	switch h.Type {
	case "":
		return errors.New("empty handler type")
	case HandlerPipe:
		if h.Command == "" {
			return errors.New("missing command")
		}
	case HandlerSet:
	case HandlerTCP, HandlerUDP:
		switch {
		case h.Socket == nil:
			return errors.New("tcp and udp handlers need a valid socket")
		case h.Socket.Host == "":
			return errors.New("socket host undefined")
		case h.Socket.Port == 0:
			return errors.New("socket port undefined")
		case h.Socket.Port > 65535:
			return fmt.Errorf("socket port %d is not a port", h.Socket.Port)
		}
	default:
		return fmt.Errorf("unknown handler type: %s", h.Type)
	}
	return validEnv(h.EnvVars)
}

// Validate returns what is wrong with the mutator.
func (m *Mutator) Validate() error {
	if err := named("mutator", m.Name); err != nil {
		return err
	}
	switch {
	case m.Type != "" && m.Type != MutatorPipe && m.Type != MutatorJavaScript:
		return fmt.Errorf("invalid mutator type %q, valid types are \"pipe\" and \"javascript\"", m.Type)
	case m.Command == "" && m.Eval == "":
		return errors.New("mutator command or eval must be set")
	case m.Type == MutatorJavaScript && m.Eval == "":
		return errors.New(`"command" used with javascript mutator, should be "eval"`)
	case m.Type != MutatorJavaScript && m.Command == "":
		return errors.New(`"eval" used with pipe mutator, should be "command"`)
	case m.Namespace == "":
		return errNamespace
	}
	return validEnv(m.EnvVars)
}

// Validate returns what is wrong with the filter.
func (f *EventFilter) Validate() error {
	if err := named("filter", f.Name); err != nil {
		return err
	}
	if f.Action != FilterAllow && f.Action != FilterDeny {
		return fmt.Errorf("action '%s' is not valid", f.Action)
	}
	if len(f.Expressions) == 0 {
		return errors.New("filter must have one or more expressions")
	}
	if f.When != nil {
		if err := f.When.Validate(); err != nil {
			return err
		}
	}
	if f.Namespace == "" {
		return errNamespace
	}
	return nil
}

// maxSeconds bounds times and times to live, so that sums of them are numbers still: the year 33658.
const maxSeconds = 1_000_000_000_000

// Validate returns what is wrong with the silence.
func (s *Silenced) Validate() error {
	if s.Begin < 0 || s.Begin > maxSeconds || s.ExpireAt < 0 || s.ExpireAt > maxSeconds || s.Expire > maxSeconds {
		return fmt.Errorf("begin and expire_at are seconds since 1970, and expire is seconds: at most %d", int64(maxSeconds))
	}
	if wild(s.Subscription) && wild(s.Check) {
		return errors.New("must provide check or subscription")
	}
	if !wild(s.Subscription) {
		if err := ValidateSubscription(s.Subscription); err != nil {
			return fmt.Errorf("Subscription %w", err)
		}
	}
	if !wild(s.Check) {
		if err := ValidateName(s.Check); err != nil {
			return fmt.Errorf("Check %w", err)
		}
	}
	return nil
}

const sha512Digits = 128

// Validate returns what is wrong with the asset.
func (a *Asset) Validate() error {
	if a.Name == "" {
		return errors.New("name cannot be empty")
	}
	if err := ValidateAssetName(a.Name); err != nil {
		return fmt.Errorf("name %w", err)
	}
	if a.Namespace == "" {
		return errors.New("namespace cannot be empty")
	}
	if len(a.Builds) == 0 {
		return validArchive(a.URL, a.SHA512)
	}
	for _, b := range a.Builds {
		if err := validArchive(b.URL, b.SHA512); err != nil {
			return err
		}
	}
	return nil
}

func validArchive(url, sum string) error {
	switch {
	case sum == "":
		return errors.New("SHA-512 checksum cannot be empty")
	case len(sum) < sha512Digits:
		return errors.New("SHA-512 checksum must be at least 128 characters")
	case url == "":
		return errors.New("URL cannot be empty")
	}
	return nil
}

// capable lists the types that may stand in each place of a workflow, by API version.
var capable = map[string][]string{
	"filtering": {"core/v2.EventFilter"},
	"mutating":  {"core/v2.Mutator"},
	"handling":  {"core/v2.Handler", "pipeline/v1.TCPStreamHandler", "pipeline/v1.SumoLogicMetricsHandler"},
}

func (r *Ref) validate(doing string) error {
	if err := ValidateName(r.Name); err != nil {
		return fmt.Errorf("name %w", err)
	}
	if r.Type == "" {
		return errors.New("type must be set")
	}
	if r.APIVersion == "" {
		return errors.New("api_version must be set")
	}
	if !slices.Contains(capable[doing], r.APIVersion+"."+r.Type) {
		return fmt.Errorf("resource type not capable of %s events: %s.%s", doing, r.APIVersion, r.Type)
	}
	return nil
}

// Validate returns what is wrong with the pipeline.
func (p *Pipeline) Validate() error {
	if err := ValidateName(p.Name); err != nil {
		return fmt.Errorf("name %w", err)
	}
	if p.Namespace == "" {
		return errNamespace
	}
	for _, w := range p.Workflows {
		if err := w.validate(); err != nil {
			return fmt.Errorf("workflow %w", err)
		}
	}
	return nil
}

func (w *Workflow) validate() error {
	if err := ValidateName(w.Name); err != nil {
		return fmt.Errorf("name %w", err)
	}
	for _, f := range w.Filters {
		if err := f.validate("filtering"); err != nil {
			return fmt.Errorf("filter %w", err)
		}
	}
	if w.Mutator != nil {
		if err := w.Mutator.validate("mutating"); err != nil {
			return fmt.Errorf("mutator %w", err)
		}
	}
	if w.Handler == nil {
		return errors.New("handler must be set")
	}
	if err := w.Handler.validate("handling"); err != nil {
		return fmt.Errorf("handler %w", err)
	}
	return nil
}

// Validate returns what is wrong with the namespace.
func (n *Namespace) Validate() error { return named("namespace", n.Name) }

// Validate returns what is wrong with the user, its password apart.
func (u *User) Validate() error {
	if err := ValidateUserName(u.Username); err != nil {
		return fmt.Errorf("username %w", err)
	}
	return nil
}

// MinPassword is how many characters a password has at least.
const MinPassword = 8

// ValidatePassword returns what is wrong with the user's new password.
func (u *User) ValidatePassword() error {
	switch {
	case u.Password == "":
		return errors.New("password can't be empty")
	case len(u.Password) < MinPassword:
		return errors.New("password length must be at least 8 characters")
	}
	return nil
}

// Validate returns what is wrong with the key.
func (k *APIKey) Validate() error {
	if err := ValidateUserName(k.Username); err != nil {
		return fmt.Errorf("username %w", err)
	}
	return nil
}
