package ca

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

// Provider is the name of the built-in authority, the only one there is.
const Provider = "consul"

// The bounds of lifetimes, and what holds where the configuration is silent.
const (
	DefaultLeafTTL         = 72 * time.Hour
	DefaultIntermediateTTL = 365 * 24 * time.Hour
	DefaultRootTTL         = 10 * 365 * 24 * time.Hour
	MinLeafTTL             = time.Hour
	MaxLeafTTL             = 365 * 24 * time.Hour

	// DefaultCSRPerSecond is how many certificates a server signs each second.
	DefaultCSRPerSecond = 50
)

// Config is the authority's configuration, read and checked.
type Config struct {
	LeafTTL, IntermediateTTL, RootTTL time.Duration
	// PrivateKey and RootCert (PEM) are the operator's own; "" has them made.
	PrivateKey, RootCert string
	KeyType              string // "ec" or "rsa"
	KeyBits              int
	CSRPerSecond         float64 // 0 is no limit
	CSRConcurrent        int     // 0 is no limit; consulted when CSRPerSecond is 0
	// State is what the operator put under test_state.
	State map[string]string
	// Raw is the configuration as it was written, with the lifetimes filled in.
	Raw map[string]any
	// ForceWithoutCrossSigning allows a rotation that proxies holding only the old root cannot follow.
	ForceWithoutCrossSigning bool
}

// wireConfig is the configuration as clients write it and the record holds it.
type wireConfig struct {
	Provider                 string
	Config                   map[string]any
	ForceWithoutCrossSigning bool
}

// DefaultConfig is what a new cluster begins with.
func DefaultConfig() *Config {
	c, err := build(wireConfig{Provider: Provider})
	if err != nil {
		panic("ca: the default configuration is not valid: " + err.Error())
	}
	return c
}

// ParseConfig reads a configuration as clients and the record write it. The error,
// of kind Invalid, names every wrong field.
func ParseConfig(raw []byte) (*Config, error) {
	var w wireConfig
	if err := json.Unmarshal(raw, &w); err != nil {
		return nil, errkind.New(errkind.Invalid, "Request decode failed: "+err.Error())
	}
	return build(w)
}

// Encode is what ParseConfig reads.
func (c *Config) Encode() ([]byte, error) {
	return json.Marshal(wireConfig{Provider, c.Raw, c.ForceWithoutCrossSigning})
}

func build(w wireConfig) (*Config, error) {
	if w.Provider != Provider {
		return nil, errkind.New(errkind.Invalid, fmt.Sprintf("Provider: %q is not supported: the built-in authority is %q",
			w.Provider, Provider))
	}
	c := &Config{Raw: make(map[string]any, len(w.Config)+3), ForceWithoutCrossSigning: w.ForceWithoutCrossSigning}
	for k, v := range w.Config {
		c.Raw[k] = v
	}
	f := fields{m: c.Raw}
	c.LeafTTL = f.span("LeafCertTTL", "72h", DefaultLeafTTL)
	c.IntermediateTTL = f.span("IntermediateCertTTL", "8760h", DefaultIntermediateTTL)
	c.RootTTL = f.span("RootCertTTL", "87600h", DefaultRootTTL)
	c.PrivateKey, c.RootCert = f.text("PrivateKey"), f.text("RootCert")
	c.KeyType = f.text("PrivateKeyType")
	c.KeyBits = int(f.number("PrivateKeyBits", 0))
	c.CSRPerSecond = f.number("CSRMaxPerSecond", DefaultCSRPerSecond)
	c.CSRConcurrent = int(f.number("CSRMaxConcurrent", 0))
	c.State = f.state("test_state")
	if c.KeyType == "" {
		c.KeyType = keyEC
	}
	if c.KeyBits == 0 {
		c.KeyBits = map[string]int{keyEC: 256, keyRSA: 2048}[c.KeyType]
	}
	if err := errors.Join(errors.Join(f.wrong...), c.check()); err != nil {
		return nil, errkind.E(errkind.Invalid, "", err)
	}
	return c, nil
}

// sets tells whether the field was written, with more than the zero value.
func (c *Config) sets(name string) bool {
	v := c.Raw[name]
	return v != nil && v != "" && v != 0.0 && v != "0"
}

// SigningLimits are how many certificates a server may sign each second, or else at once, where an operator
// wrote so; zero is no limit. The contract's default of 50 a second is for authorities whose queue is not fair.
func (c *Config) SigningLimits() (perSecond float64, concurrent int) {
	if c.sets("CSRMaxPerSecond") {
		return c.CSRPerSecond, 0
	}
	return 0, c.CSRConcurrent
}

// check compares the fields with their bounds and with each other.
func (c *Config) check() error {
	var wrong []error
	say := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	say(c.LeafTTL < MinLeafTTL, "LeafCertTTL: must be at least %s", MinLeafTTL)
	say(c.LeafTTL > MaxLeafTTL, "LeafCertTTL: must be at most %s", MaxLeafTTL)
	say(c.IntermediateTTL < 3*c.LeafTTL, "IntermediateCertTTL: must be at least three times LeafCertTTL (%s)", 3*c.LeafTTL)
	say(c.RootTTL < c.IntermediateTTL, "RootCertTTL: must be at least IntermediateCertTTL (%s)", c.IntermediateTTL)
	say(!soundKey(c.KeyType, c.KeyBits), "PrivateKeyType, PrivateKeyBits: %q with %d bits is not supported: ec has 256,"+
		" 384 or 521, rsa 2048, 3072 or 4096", c.KeyType, c.KeyBits)
	say(c.CSRPerSecond < 0, "CSRMaxPerSecond: must not be negative")
	say(c.CSRConcurrent < 0, "CSRMaxConcurrent: must not be negative")
	say(c.RootCert != "" && c.PrivateKey == "", "PrivateKey: is needed with RootCert")
	if c.PrivateKey != "" {
		if _, err := c.given(); err != nil {
			wrong = append(wrong, err)
		}
	}
	return errors.Join(wrong...)
}

// fields reads values of the loose types that HCL, JSON and Terraform write.
type fields struct {
	m     map[string]any
	wrong []error
}

func (f *fields) fail(name, want string) {
	f.wrong = append(f.wrong, fmt.Errorf("%s: must be %s", name, want))
}

// span reads a duration, as text or in nanoseconds; unset, it is filled in.
func (f *fields) span(name, text string, otherwise time.Duration) time.Duration {
	switch v := f.m[name].(type) {
	case nil:
	case float64:
		if v < 0 || v > math.MaxInt64/2 {
			f.fail(name, "a duration like "+text)
			return otherwise
		}
		if v != 0 {
			return time.Duration(v)
		}
	case string:
		if v != "" {
			d, err := time.ParseDuration(v)
			if err != nil {
				f.fail(name, "a duration like "+text)
				return otherwise
			}
			return d
		}
	default:
		f.fail(name, "a duration like "+text)
		return otherwise
	}
	f.m[name] = text
	return otherwise
}

func (f *fields) text(name string) string {
	s, ok := f.m[name].(string)
	if !ok && f.m[name] != nil {
		f.fail(name, "text")
	}
	return s
}

func (f *fields) number(name string, otherwise float64) float64 {
	switch v := f.m[name].(type) {
	case nil:
		return otherwise
	case float64:
		return v
	case string: // Terraform's maps hold text alone
		var n float64
		if err := json.Unmarshal([]byte(v), &n); err == nil {
			return n
		}
	}
	f.fail(name, "a number")
	return otherwise
}

func (f *fields) state(name string) map[string]string {
	in, ok := f.m[name].(map[string]any)
	if !ok {
		if f.m[name] != nil {
			f.fail(name, "an object of texts")
		}
		return nil
	}
	out := make(map[string]string, len(in))
	for k, v := range in {
		s, ok := v.(string)
		if !ok {
			f.fail(name+"."+k, "text")
		}
		out[k] = s
	}
	return out
}
