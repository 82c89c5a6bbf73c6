package definition

import (
	"fmt"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/check"
	"corbel.dev/corbel/kit/errkind"
)

// Limits of the contract, section 4.
const (
	maxMetaPairs      = 64
	maxMetaKeyBytes   = 128
	maxMetaValueBytes = 512
	maxWeight         = 65535
)

// maxTags bounds the tags of one instance; the contract has no bound. They are copied with each change of the
// instance and each of its checks, so what nobody means to have would slow down everybody.
const maxTags = 4096

// ValidateTags checks how many tags an instance has. Kind Invalid.
func ValidateTags(tags []string) error {
	if len(tags) > maxTags {
		return errkind.Errorf(errkind.Invalid,
			"Invalid Tags: %d, at most %d are taken; keep what belongs to one instance in Meta", len(tags), maxTags)
	}
	return nil
}

// Validate reports what is wrong with the definition, in the contract's words. Kind Invalid.
func (d *Service) Validate() error {
	if d.Name == "" {
		return errkind.New(errkind.Invalid, "Missing service name")
	}
	switch d.Address {
	case "0.0.0.0", "::", "[::]":
		return errkind.New(errkind.Invalid, "Invalid service address")
	}
	if err := validateKind(d); err != nil {
		return err
	}
	if d.Port != 0 && d.SocketPath != "" {
		return errkind.New(errkind.Invalid, "Port and SocketPath are exclusive: a service has one of them")
	}
	if d.Port < 0 || d.Port > 65535 {
		return errkind.Errorf(errkind.Invalid, "Invalid service port %d", d.Port)
	}
	if err := ValidatePorts(d.Port, d.Sockets); err != nil {
		return err
	}
	if w := d.Weights; w != nil {
		switch {
		case w.Passing < 1 || w.Passing > maxWeight:
			return errkind.Errorf(errkind.Invalid, "Invalid Weights: Passing must be between 1 and %d, got %d",
				maxWeight, w.Passing)
		case w.Warning < 0 || w.Warning > maxWeight:
			return errkind.Errorf(errkind.Invalid, "Invalid Weights: Warning must be between 0 and %d, got %d",
				maxWeight, w.Warning)
		}
	}
	if err := ValidateTags(d.Tags); err != nil {
		return err
	}
	if err := ValidateMeta(d.Meta); err != nil {
		return errkind.Errorf(errkind.Invalid, "Invalid Service Meta: %w", err)
	}
	seen := map[string]bool{}
	for _, c := range d.NormaliseChecks() {
		if err := c.validateType(); err != nil {
			return err
		}
		if !validStatus(c.Status) {
			return errkind.New(errkind.Invalid, "Status for checks must 'passing', 'warning', 'critical'")
		}
		if seen[c.ID] {
			return errkind.Errorf(errkind.Invalid, "Invalid check: duplicate check id %q", c.ID)
		}
		seen[c.ID] = true
	}
	return nil
}

func validateKind(d *Service) error {
	switch d.Kind {
	case catalog.KindTypical, catalog.KindMeshGateway, catalog.KindTerminatingGateway, catalog.KindIngressGateway,
		catalog.KindAPIGateway:
	case catalog.KindConnectProxy:
		if proxyDestination(d.Proxy) == "" {
			return errkind.New(errkind.Invalid, "Invalid Proxy: DestinationServiceName must be non-empty for Connect proxy "+
				"services")
		}
		if d.Port == 0 && d.SocketPath == "" {
			return errkind.New(errkind.Invalid, "Port or SocketPath must be set for a Connect proxy")
		}
		if d.Connect != nil && d.Connect.Native {
			return errkind.New(errkind.Invalid, "A Proxy cannot also be Connect Native, only typical services")
		}
	default:
		return errkind.Errorf(errkind.Invalid, "Invalid service kind %q", d.Kind)
	}
	if c := d.Connect; c != nil && c.SidecarService != nil {
		switch {
		case c.Native:
			return errkind.New(errkind.Invalid, "Connect.Native and Connect.SidecarService are exclusive")
		case c.SidecarService.Connect != nil && c.SidecarService.Connect.SidecarService != nil:
			return errkind.New(errkind.Invalid, "Invalid SidecarService: nested sidecar services are not allowed")
		}
	}
	return nil
}

// Validate reports what is wrong with a check that is registered by itself. Kind Invalid.
func (d *Check) Validate() error {
	if d.Name == "" {
		return errkind.New(errkind.Invalid, "Missing check name")
	}
	if !validStatus(d.Status) {
		return errkind.New(errkind.Invalid, "Bad check status")
	}
	return d.validateType()
}

func validStatus(s string) bool {
	_, ok := catalog.ParseHealth(s)
	return ok || s == ""
}

// validateType checks what makes a check runnable.
func (d *Check) validateType() error {
	if reason := d.typeProblem(); reason != "" {
		return errkind.New(errkind.Invalid, "Invalid check: "+reason)
	}
	return nil
}

func (d *Check) typeProblem() string {
	kind := d.Kind()
	probed := d.HTTP != "" || d.TCP != "" || d.GRPC != "" || d.UDP != "" || d.H2PING != "" ||
		len(d.ScriptArgs) > 0 || d.DockerContainerID != "" || d.OSService != ""
	switch {
	case d.TTL < 0:
		return "TTL must be > 0 for TTL checks"
	case d.Interval < 0 || d.Timeout < 0 || d.DeregisterCriticalServiceAfter < 0:
		return "durations must not be negative"
	case kind == check.KindMaintenance:
		return ""
	case kind == check.KindAlias && d.Interval != 0:
		return "Interval cannot be set for Alias checks"
	case kind == check.KindAlias && d.TTL != 0:
		return "TTL cannot be set for Alias checks"
	case d.Interval > 0 && d.TTL > 0:
		return "Interval and TTL cannot both be specified"
	case kind == check.KindAlias:
		return ""
	case probed && d.TTL > 0:
		return "TTL cannot be set for a check that the agent runs"
	case probed && d.Interval <= 0:
		return "Interval must be > 0 for Script, HTTP, H2PING, TCP, UDP, GRPC, Docker or OSService checks"
	case kind == "":
		return "TTL must be > 0 for TTL checks"
	case d.OutputMaxSize < 0:
		return "OutputMaxSize must be positive"
	case d.SuccessBeforePassing < 0 || d.FailuresBeforeWarning < 0 || d.FailuresBeforeCritical < 0:
		return "thresholds must not be negative"
	case d.FailuresBeforeCritical > 0 && d.FailuresBeforeWarning > d.FailuresBeforeCritical:
		return "FailuresBeforeWarning can't be higher than FailuresBeforeCritical"
	}
	return ""
}

// ValidateMeta checks service or node meta against the contract's limits.
func ValidateMeta(meta map[string]string) error {
	if len(meta) > maxMetaPairs {
		return fmt.Errorf("Node/Service metadata cannot contain more than %d key/value pairs", maxMetaPairs)
	}
	for _, key := range sortedKeys(meta) {
		switch {
		case key == "":
			return fmt.Errorf("Key cannot be blank")
		case len(key) > maxMetaKeyBytes:
			return fmt.Errorf("Key is too long (limit: %d characters): %.32s…", maxMetaKeyBytes, key)
		case !metaKeyOK(key):
			return fmt.Errorf("Key contains invalid characters: %q", key)
		case len(meta[key]) > maxMetaValueBytes:
			return fmt.Errorf("Value for key %q is too long (limit: %d characters)", key, maxMetaValueBytes)
		}
	}
	return nil
}

func metaKeyOK(key string) bool {
	for _, c := range []byte(key) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-') {
			return false
		}
	}
	return true
}
