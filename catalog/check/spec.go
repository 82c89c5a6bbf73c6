package check

import (
	"context"
	"maps"
	"slices"
	"time"

	"corbel.dev/corbel/catalog"
)

// Kind is how a check is run; its text is the Type that clients see.
type Kind string

// The kinds. Docker and OSService are accepted and always critical: not supported yet.
const (
	KindHTTP      Kind = "http"
	KindTCP       Kind = "tcp"
	KindUDP       Kind = "udp"
	KindGRPC      Kind = "grpc"
	KindH2Ping    Kind = "h2ping"
	KindScript    Kind = "script"
	KindTTL       Kind = "ttl"
	KindAlias     Kind = "alias"
	KindDocker    Kind = "docker"
	KindOSService Kind = "os_service"
	// KindMaintenance is never run: its status stays as it was set.
	KindMaintenance Kind = "maintenance"
)

// Defaults and limits of the contract, section 23.
const (
	MinInterval          = time.Second
	DefaultTimeout       = 10 * time.Second
	DefaultScriptTimeout = 30 * time.Second
	DefaultOutputBytes   = 4 << 10
)

// Result is what one run of a check gave.
type Result struct {
	Status catalog.Health
	Output string
}

// Probe runs a check once. It must return soon after ctx ends.
type Probe func(ctx context.Context) Result

// HTTPRequest is the request of an HTTP check. Its tags are those of the contract's Definition object.
type HTTPRequest struct {
	Header           map[string][]string `json:",omitempty"`
	Method           string              `json:",omitempty"`
	Body             string              `json:",omitempty"`
	DisableRedirects bool                `json:",omitempty"`
}

// Start is what a check starts from.
type Start struct {
	Status catalog.Health
	// Output is what it showed last; a TTL check that expires quotes it.
	Output string
	// TTLLeft shortens the first period of a TTL check that came back after a
	// restart; 0 means TTL.
	TTLLeft time.Duration
}

// Spec is one check. Zero durations and sizes mean the contract's defaults.
type Spec struct {
	Kind   Kind
	Target string // URL, host:port, host:port/service

	HTTPRequest

	UseTLS        bool
	TLSServerName string
	TLSSkipVerify bool

	Args []string // script

	Interval, Timeout, TTL time.Duration

	Thresholds
	OutputMaxSizeBytes int
	Start

	// Probe runs alias checks; other kinds make their own.
	Probe Probe
}

// Same reports whether a running check may go on when o replaces s: everything
// but the status it starts from is equal.
func (s Spec) Same(o Spec) bool {
	return s.Kind == o.Kind && s.Target == o.Target && s.Method == o.Method && s.Body == o.Body &&
		maps.EqualFunc(s.Header, o.Header, slices.Equal[[]string]) && s.DisableRedirects == o.DisableRedirects &&
		s.UseTLS == o.UseTLS && s.TLSServerName == o.TLSServerName && s.TLSSkipVerify == o.TLSSkipVerify &&
		slices.Equal(s.Args, o.Args) && s.Interval == o.Interval && s.Timeout == o.Timeout && s.TTL == o.TTL &&
		s.Thresholds == o.Thresholds && s.OutputMaxSizeBytes == o.OutputMaxSizeBytes
}

// complete fills in the defaults.
func (s *Spec) complete() {
	if s.Interval < MinInterval {
		s.Interval = MinInterval
	}
	if s.Timeout <= 0 {
		s.Timeout = DefaultTimeout
		if s.Kind == KindScript {
			s.Timeout = DefaultScriptTimeout
		}
	}
	if s.OutputMaxSizeBytes <= 0 {
		s.OutputMaxSizeBytes = DefaultOutputBytes
	}
	if s.TTLLeft <= 0 || s.TTLLeft > s.TTL {
		s.TTLLeft = s.TTL
	}
}
