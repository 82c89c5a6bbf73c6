package monitor

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// The texts of these errors are the contract's.
var (
	errEmpty     = errors.New("must not be empty")
	errLetters   = errors.New("cannot contain spaces or special characters")
	errNamespace = errors.New("namespace must be set")
)

// ValidateName accepts letters, digits and _ . - :
func ValidateName(name string) error { return validate(name, "_.-:", true) }

// ValidateUserName accepts lower case letters, digits and _ . -
func ValidateUserName(name string) error { return validate(name, "_.-", false) }

// ValidateAssetName accepts what ValidateName does, and slashes.
func ValidateAssetName(name string) error { return validate(name, "_.-:/", true) }

// ValidateSubscription accepts names with at most one colon, neither first nor last.
func ValidateSubscription(name string) error {
	before, after, split := strings.Cut(name, ":")
	if err := validate(before, "_.-", true); err != nil {
		return errOf(name, err)
	}
	if split {
		return errOf(name, validate(after, "_.-", true))
	}
	return nil
}

// errOf tells an empty part of a name from an empty name.
func errOf(name string, err error) error {
	if err == errEmpty && name != "" {
		return errLetters
	}
	return err
}

func validate(name, marks string, upper bool) error {
	if name == "" {
		return errEmpty
	}
	for _, r := range []byte(name) {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9', upper && 'A' <= r && r <= 'Z', strings.IndexByte(marks, r) >= 0:
		default:
			return errLetters
		}
	}
	return nil
}

func named(what, name string) error {
	if err := ValidateName(name); err != nil {
		return fmt.Errorf("%s name %w", what, err)
	}
	return nil
}

// Validate returns what is wrong with the event. It has a check, metrics, or both, and no name of its own.
func (e *Event) Validate() error {
	if e.Entity == nil {
		return errors.New("event must contain an entity")
	}
	if e.Check == nil && e.Metrics == nil {
		return errors.New("event must contain a check or metrics")
	}
	if err := e.Entity.Validate(); err != nil {
		return fmt.Errorf("entity is invalid: %w", err)
	}
	if e.Check != nil {
		if err := e.Check.Validate(); err != nil {
			return fmt.Errorf("check is invalid: %w", err)
		}
	}
	for _, ref := range e.Pipelines {
		if err := ref.validPipeline(); err != nil {
			return fmt.Errorf("pipeline reference is invalid: %w", err)
		}
	}
	if e.Name != "" {
		return errors.New("events cannot be named")
	}
	if n := len(e.ID); n != 0 && n != 16 {
		return fmt.Errorf("event ID must be 16 bytes, not %d", n)
	}
	return nil
}

func (r *Ref) validPipeline() error {
	if r.APIVersion != "core/v2" || r.Type != "Pipeline" {
		return fmt.Errorf("resource type not capable of acting as a pipeline: %s.%s", r.APIVersion, r.Type)
	}
	return nil
}

// Validate returns what is wrong with the entity.
func (e *Entity) Validate() error { return validEntity(e.Name, e.Class, e.Namespace) }

// Validate returns what is wrong with the entity's configuration.
func (c *EntityConfig) Validate() error { return validEntity(c.Name, c.Class, c.Namespace) }

func validEntity(name, class, namespace string) error {
	if err := named("entity", name); err != nil {
		return err
	}
	if err := ValidateName(class); err != nil {
		return fmt.Errorf("entity class %w", err)
	}
	if namespace == "" {
		return errNamespace
	}
	return nil
}

// Validate returns what is wrong with the check of an event.
func (c *Check) Validate() error {
	if err := named("check", c.Name); err != nil {
		return err
	}
	if c.Publish {
		if c.Cron == "" && c.Interval == 0 {
			return errors.New("check interval must be greater than or equal to 1")
		}
		if _, err := NewSchedule(c.Name, c.Interval, c.Cron); err != nil {
			return err
		}
	}
	if c.TTL > 0 && c.TTL < 5 {
		return errors.New("minimum ttl is 5 seconds")
	}
	if c.MaxOutputSize < 0 {
		return errors.New("MaxOutputSize must be >= 0")
	}
	return validCommon(&common{c.TTL, c.Interval, c.RuntimeAssets, c.Subscriptions, c.ProxyEntityName, c.ProxyRequests,
		c.MetricFormat,
		c.LowFlapThreshold, c.HighFlapThreshold, c.EnvVars, c.MetricThresholds, c.Subdues})
}

// Validate returns what is wrong with the check.
func (c *CheckConfig) Validate() error {
	if err := named("check", c.Name); err != nil {
		return err
	}
	if _, err := NewSchedule(c.Name, c.Interval, c.Cron); err != nil {
		return err
	}
	if c.Namespace == "" {
		return errNamespace
	}
	if c.MaxOutputSize < 0 {
		return errors.New("MaxOutputSize must be >= 0")
	}
	for _, list := range c.CheckHooks {
		if err := list.Validate(); err != nil {
			return err
		}
	}
	if c.Subdue != nil {
		if err := c.Subdue.Validate(); err != nil {
			return fmt.Errorf("subdue invalid: %w", err)
		}
	}
	for _, ref := range c.Pipelines {
		if err := ref.validPipeline(); err != nil {
			return fmt.Errorf("pipeline reference is invalid: %w", err)
		}
	}
	return validCommon(&common{c.TTL, c.Interval, c.RuntimeAssets, c.Subscriptions, c.ProxyEntityName, c.ProxyRequests,
		c.MetricFormat,
		c.LowFlapThreshold, c.HighFlapThreshold, c.EnvVars, c.MetricThresholds, c.Subdues})
}

// common is what a check and its configuration are judged by alike.
type common struct {
	ttl              int64
	interval         uint32
	assets, subs     []string
	proxy            string
	requests         *ProxyRequests
	metricFormat     string
	lowFlap, highTop uint32
	env              []string
	thresholds       []*MetricThreshold
	subdues          []*Subdue
}

func validCommon(c *common) error {
	if c.ttl > 0 && c.ttl <= int64(c.interval) {
		return errors.New("ttl must be greater than check interval")
	}
	if c.ttl > math.MaxUint32 {
		return fmt.Errorf("ttl must be at most %d seconds", uint32(math.MaxUint32))
	}
	for _, a := range c.assets {
		if err := ValidateAssetName(a); err != nil {
			return fmt.Errorf("asset's name %w", err)
		}
	}
	for _, s := range c.subs {
		if s == "" {
			return errors.New("subscriptions cannot be empty strings")
		}
	}
	if c.proxy != "" {
		if err := named("proxy entity", c.proxy); err != nil {
			return err
		}
	}
	if r := c.requests; r != nil && (r.SplayCoverage > 100 || r.Splay && r.SplayCoverage == 0) {
		return errors.New("proxy request splay coverage must be between 1 and 100 percent")
	}
	switch c.metricFormat {
	case "", "nagios_perfdata", "graphite_plaintext", "influxdb_line", "opentsdb_line", "prometheus_text":
	default:
		return errors.New("output metric format is not valid")
	}
	if c.lowFlap != 0 && c.highTop != 0 && c.lowFlap >= c.highTop {
		return errors.New("invalid flap thresholds")
	}
	if err := validEnv(c.env); err != nil {
		return err
	}
	for i, t := range c.thresholds {
		if err := t.Validate(); err != nil {
			return fmt.Errorf("invalid metric threshold %d: %w", i, err)
		}
	}
	for i, s := range c.subdues {
		if err := s.Validate(); err != nil {
			return fmt.Errorf("subdue %d invalid: %w", i, err)
		}
	}
	return nil
}

func validEnv(vars []string) error {
	for _, v := range vars {
		if name, _, ok := strings.Cut(v, "="); !ok || name == "" {
			return fmt.Errorf("environment variable %q is not of the form KEY=value", v)
		}
	}
	return nil
}

// Validate returns what is wrong with the threshold.
func (t *MetricThreshold) Validate() error {
	if t.Name == "" {
		return errors.New("metric threshold name must not be empty")
	}
	if len(t.Thresholds) == 0 {
		return errors.New("there must be at least one threshold rule")
	}
	for i, rule := range t.Thresholds {
		if rule.Min == "" && rule.Max == "" {
			return fmt.Errorf("rule %d: one of min or max is required", i)
		}
		for _, limit := range []string{rule.Min, rule.Max} {
			if _, err := strconv.ParseFloat(limit, 64); limit != "" && err != nil {
				return fmt.Errorf("rule %d: %q is not a number", i, limit)
			}
		}
	}
	for i, tag := range t.Tags {
		if tag.Name == "" || tag.Value == "" {
			return fmt.Errorf("tag %d: name and value must not be empty", i)
		}
	}
	return nil
}
