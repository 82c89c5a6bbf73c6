package telemetry

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
)

// Settings is what operators write in the telemetry stanza. The comment of each
// field names its key. The zero value, completed, is the contract's default:
// prefix "consul", host names in gauge names, every metric allowed, no sink.
type Settings struct {
	StatsdAddress           string        // statsd_address: host:port, UDP
	StatsiteAddress         string        // statsite_address: host:port, TCP
	DogstatsdAddr           string        // dogstatsd_addr: host:port, or unix://path
	DogstatsdTags           []string      // dogstatsd_tags: "key:value" on each line
	OTLPEndpoint            string        // otlp_endpoint: http://host:port[/path]
	OTLPTracesEndpoint      string        // otlp_traces_endpoint: http://host:port[/path]; "" exports no spans
	PrometheusRetentionTime time.Duration // prometheus_retention_time: 0 switches the format off
	DisableHostname         bool          // disable_hostname: gauges without the host in their name
	EnableHostnameLabel     bool          // enable_hostname_label: the host is a label of all metrics, and in no name
	MetricsPrefix           string        // metrics_prefix: "" means "consul"
	PrefixFilter            []string      // prefix_filter: "+name" allows, "-name" blocks
	FilterDefault           *bool         // filter_default: nil means true
	EnableHostMetrics       bool          // enable_host_metrics: host.memory, host.cpu, host.disk, host.uptime
	RetryFailedConnection   *bool         // retry_failed_connection: accepted; sinks always retry
	DisableDoctor           bool          // disable_doctor: no Stages, no Tenants
}

// Validate reports every wrong field at once, by the name that users type. Addresses
// are only checked for shape: whether a name resolves is found out in the background.
func (s Settings) Validate() error {
	var wrong []error
	for _, rule := range s.PrefixFilter {
		if len(rule) < 2 || (rule[0] != '+' && rule[0] != '-') {
			wrong = append(wrong, fmt.Errorf("prefix_filter: %q must begin with + or - and name a prefix", rule))
		}
	}
	if strings.ContainsAny(s.MetricsPrefix, " \t\r\n:|@#") {
		wrong = append(wrong, fmt.Errorf("metrics_prefix: %q holds a character that no metric name may have",
			s.MetricsPrefix))
	}
	if s.PrometheusRetentionTime < 0 {
		wrong = append(wrong, fmt.Errorf("prometheus_retention_time: %s is negative", s.PrometheusRetentionTime))
	}
	for _, tag := range s.DogstatsdTags {
		if tag == "" || strings.ContainsAny(tag, "|,\n") {
			wrong = append(wrong, fmt.Errorf("dogstatsd_tags: %q is empty or holds one of | , or a line end", tag))
		}
	}
	return errkind.E(errkind.Invalid, "telemetry", errors.Join(wrong...))
}

// Config makes a Registry. The zero value works.
type Config struct {
	Settings Settings
	Clock    clock.Clock  // nil means the machine's clock
	Logger   *slog.Logger // nil discards
	// Host is the name put into gauge names; "" means os.Hostname.
	Host string
	// DataDir is the folder whose file system enable_host_metrics reports; "" is none.
	DataDir string
	// Traces is where spans go: registries of one process share it. nil means one of its own.
	Traces *Traces
	// MaxSeriesPerName bounds the label sets of one name; 0 means 1,000.
	MaxSeriesPerName int
	// MaxSeries bounds all series; 0 means 20,000.
	MaxSeries int
	// FactCount is how many facts are kept; 0 means 1,024.
	FactCount int
}

func (c *Config) complete() {
	if c.Clock == nil {
		c.Clock = clock.Real{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Traces == nil {
		c.Traces = &Traces{}
	}
	if c.Host == "" {
		// A host without a name gets gauges without one; nothing else depends on it.
		c.Host, _ = os.Hostname()
	}
	if c.MaxSeriesPerName <= 0 {
		c.MaxSeriesPerName = 1000
	}
	if c.MaxSeries <= 0 {
		c.MaxSeries = 20000
	}
	if c.FactCount <= 0 {
		c.FactCount = 1024
	}
}
