package usageplane

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"corbel.dev/corbel/node/config"
	usageagentplane "corbel.dev/corbel/node/planes/usageagent"
	usagecacheplane "corbel.dev/corbel/node/planes/usagecache"
)

// Keys are the plane's section of the configuration.
type Keys struct {
	Enabled bool `key:"enabled" doc:"count what tenants use, or on agents take events for servers; on in dev and under corbel server and agent"`
	// Roles are those beside the cache's.
	Roles    []string `key:"roles" doc:"what this server does: router (takes events), counter (has parts of the log), aggregator (answers questions); default all"`
	Timezone string   `key:"timezone" def:"UTC" doc:"calendar of tenants that have none of their own"`
	Queue    int      `key:"queue_bytes" def:"67108864" doc:"events that wait to be stored, in bytes; a tenant gets a quarter"`
	Own      bool     `key:"own_planes" def:"true" doc:"count what Corbel's own planes do, as built-in products"`
	// Handlers are names of the monitor plane.
	Handlers []string `key:"limits.handlers" doc:"handlers of the monitor plane for limits that are crossed"`
	Log      LogKeys
	State    StateKeys
	Copies   SnapshotKeys
	Statsd   StatsdKeys
	Agent    usageagentplane.Keys
	usagecacheplane.Keys
}

// UsageAgent implements what agents read of the section.
func (k *Keys) UsageAgent() *usageagentplane.Keys { return &k.Agent }

// UsageOn says whether usage is counted at all.
func (k *Keys) UsageOn() bool { return k.Enabled }

// UsageStatsd is the door for metrics.
func (k *Keys) UsageStatsd() usageagentplane.Statsd {
	s := usageagentplane.Statsd{Socket: k.Statsd.Socket, Tenant: k.Statsd.Tenant}
	if k.Statsd.Port > 0 {
		s.Address = net.JoinHostPort(k.Statsd.Address, strconv.Itoa(k.Statsd.Port))
	}
	return s
}

// LogKeys are those of the log of events.
type LogKeys struct {
	MaxBytes int           `key:"log.max_bytes" def:"8589934592" doc:"the log of events on this server's disk"`
	Keep     time.Duration `key:"log.keep" def:"168h" doc:"how long events stay for explain, void and recount, room permitting"`
	Copies   int           `key:"log.copies" def:"2" doc:"servers that have each event before it is acknowledged: 1 or 2, where there are as many"`
	Alone    time.Duration `key:"log.alone_after" def:"5s" doc:"how long a server waits for the copy before it takes events without one; 0 never does, and answers 503"`
	Failover time.Duration `key:"log.failover" def:"10s" doc:"how long a server is silent before another one with the copy takes over its part"`
	Return   time.Duration `key:"log.return_within" def:"1m" doc:"how long parts wait for a server that was stopped by plan before another one gets their copies; 0 does not wait"`
	Warmup   int           `key:"log.warmup_bytes" def:"-1" doc:"what snapshots may take of this host as they are loaded, saved or given to copies that are being made, in bytes a second, all together; a byte of the server's own folder counts an eighth; -1 is 30 % of the speed of its network card (64 MiB where the system does not tell that), less while packets are dropped; 0 has no bound"`
	Kafka    KafkaKeys
}

// KafkaKeys are those of a cluster that speaks the Kafka protocol, in which the log is instead.
type KafkaKeys struct {
	Brokers  []string `key:"log.kafka.brokers" doc:"host:port of brokers of a Kafka cluster that has the log of events, in place of this server's disk"`
	Topic    string   `key:"log.kafka.topic" def:"corbel-usage" doc:"begins the names of topics: each part of the log is one, TOPIC.SERVER, with one partition"`
	Replicas int      `key:"log.kafka.replicas" doc:"of topics that are made; default 3, or as many as there are brokers"`
	TLS      bool     `key:"log.kafka.tls" doc:"speak TLS with brokers, and check their certificates"`
	CAFile   string   `key:"log.kafka.ca_file" doc:"CA certificates to trust instead of the system's, PEM"`
	SASL     string   `key:"log.kafka.sasl" doc:"how to log in: plain, scram-sha-256 or scram-sha-512; default plain where there is a user"`
	User     string   `key:"log.kafka.user" doc:"user to log in as"`
	Password string   `key:"log.kafka.password" opt:"secret" doc:"its password"`
}

// SnapshotKeys are the places that have copies of the state, beside the server's folder.
type SnapshotKeys struct {
	Every      time.Duration `key:"snapshots.every" def:"5m" doc:"how often copies of the state go to the places below"`
	Cache      bool          `key:"snapshots.cache" doc:"copies to the Redis or Valkey of usage.cache.redis or, without it, to the cache hosts of this cluster"`
	PostgreSQL string        `key:"snapshots.postgresql" opt:"secret" doc:"copies to a table of PostgreSQL, and calendar windows that are over to another one: a URL, or as libpq writes it"`
	S3         S3Keys
}

// S3Keys are those of a bucket.
type S3Keys struct {
	Bucket    string `key:"snapshots.s3.bucket" doc:"copies to this bucket of the S3 protocol"`
	Endpoint  string `key:"snapshots.s3.endpoint" doc:"host:port or URL of the service; default Amazon's"`
	Region    string `key:"snapshots.s3.region" doc:"its region"`
	Path      string `key:"snapshots.s3.path" def:"corbel-usage" doc:"prefix of the objects' names"`
	AccessKey string `key:"snapshots.s3.access_key" doc:"signs requests; without it the environment, the credentials file or the instance's role"`
	SecretKey string `key:"snapshots.s3.secret_key" opt:"secret" doc:"belongs to access_key"`
	PathStyle bool   `key:"snapshots.s3.path_style" doc:"the bucket is in the path, as most services but Amazon's want it"`
	KMSKey    string `key:"snapshots.s3.kms_key" doc:"key of the service that encrypts objects"`
}

// StateKeys are those of what has been counted.
type StateKeys struct {
	IDs      int           `key:"state.ids" def:"10000000" doc:"ids of events that are remembered against duplicates; about 52 bytes each"`
	Hours    time.Duration `key:"state.keep_hours" def:"72h" doc:"how long hours are told apart, before they become days"`
	Days     time.Duration `key:"state.keep_days" def:"9600h" doc:"how long days are told apart"`
	Snapshot time.Duration `key:"state.snapshot" def:"1m" doc:"how often the state is saved: a start reads the log since then"`
}

// StatsdKeys are those of the door for metrics.
type StatsdKeys struct {
	Port    int    `key:"dogstatsd.port" def:"-1" doc:"UDP port for usage as dogstatsd or statsd metrics; -1 is off (8125 is its usual one)"`
	Address string `key:"dogstatsd.address" def:"127.0.0.1" doc:"where that port listens: whoever reaches it is believed"`
	Socket  string `key:"dogstatsd.socket" doc:"Unix datagram socket for the same; off when empty"`
	Tenant  string `key:"dogstatsd.tenant" doc:"the tenant of all that comes there; empty takes the tag tenant of each metric"`
}

// SetDefaults implements what config.Options.Sections asks for.
func (k *Keys) SetDefaults(style config.Style, _ bool) { k.Enabled = style == config.Corbel }

// keysOf are those of a configuration; one that was loaded without the section has the plane off.
func keysOf(cfg *config.Config) *Keys {
	if k, ok := cfg.Section(Name).(*Keys); ok {
		return k
	}
	return &Keys{}
}

func check(cfg *config.Config) error {
	k := keysOf(cfg)
	if !k.Enabled {
		return nil
	}
	var wrong []error
	if _, err := time.LoadLocation(k.Timezone); err != nil {
		wrong = append(wrong, fmt.Errorf("usage.timezone: %q is no time zone: use a name like Europe/Berlin", k.Timezone))
	}
	for _, bound := range []struct {
		key         string
		value, most int
	}{{"queue_bytes", k.Queue, 1 << 20}, {"log.max_bytes", k.Log.MaxBytes, 256 << 20}, {"state.ids", k.State.IDs, 1000}} {
		if bound.value < bound.most {
			wrong = append(wrong, fmt.Errorf("usage.%s: must be at least %d", bound.key, bound.most))
		}
	}
	if k.Log.Copies < 1 || k.Log.Copies > 2 {
		wrong = append(wrong, fmt.Errorf("usage.log.copies: %d is not 1 or 2", k.Log.Copies))
	}
	if k.Log.Alone < 0 || k.Log.Return < 0 || k.Log.Failover < 3*time.Second {
		wrong = append(wrong, errors.New("usage.log.alone_after, return_within, failover: must be at least 0s, 0s and 3s"))
	}
	if k.Log.Warmup < -1 || k.Log.Warmup > 0 && k.Log.Warmup < 1<<20 {
		wrong = append(wrong, fmt.Errorf("usage.log.warmup_bytes: %d is not -1, 0, or at least 1048576", k.Log.Warmup))
	}
	if err := checkRoles(k.Roles); err != nil {
		wrong = append(wrong, err)
	}
	if k.State.Snapshot < time.Second {
		wrong = append(wrong, errors.New("usage.state.snapshot: must be at least 1s"))
	}
	return errors.Join(append(wrong, checkPlaces(k)...)...)
}
