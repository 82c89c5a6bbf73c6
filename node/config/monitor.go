package config

import "time"

// Monitor is the monitor plane of a server.
type Monitor struct {
	Enabled bool `key:"enabled" doc:"servers: watch hosts and services with Sensu's agents and API; on in dev"`
	MonitorSessions
	MonitorStore
	MonitorAPI
	MonitorHandlers
	MonitorAssets
	MonitorEventLog
	MonitorHistory
	MonitorSilences
	MonitorAdmin
	MonitorAgentAuth
	Catalog MonitorFleet `key:"catalog"`
	Agent   MonitorAgent `key:"agent"`
}

// MonitorSessions bounds the sessions of agents.
type MonitorSessions struct {
	AgentWrite time.Duration `key:"agent_write_timeout" def:"15s" doc:"how long an agent may go without reading before its session ends"`
	AgentWait  time.Duration `key:"agent_serve_wait_time" def:"0s" doc:"pause after the start before agents may connect"`
	MessageMax int           `key:"agent_message_max_size" def:"8388608" doc:"largest message of an agent, in bytes"`
	PendingMax int           `key:"event_pending_max_size" def:"16777216" doc:"bytes of events that may be queued for the disk before agents wait"`
}

// MonitorStore is where events are kept.
type MonitorStore struct {
	Store            string        `key:"store" def:"embedded" doc:"where events are stored: embedded or postgresql"`
	DSN              string        `key:"dsn" opt:"secret" doc:"how PostgreSQL is reached, as a URL or as libpq writes it"`
	StorePool        int           `key:"store_pool_size" def:"4" doc:"connections to PostgreSQL"`
	HistoryRetention time.Duration `key:"history_retention" def:"168h" doc:"retention of status changes in PostgreSQL, in whole days"`
}

// MonitorAPI is about requests to the API, and its access tokens.
type MonitorAPI struct {
	RequestMax    int           `key:"api_request_limit" def:"512000" doc:"largest body of a request to the API, in bytes"`
	WriteTime     time.Duration `key:"api_write_timeout" def:"15s" doc:"longest time for a request to the API"`
	JWTPrivateKey string        `key:"jwt_private_key_file" doc:"EC key in PEM that signs access tokens; without it the servers share a secret"`
	JWTPublicKey  string        `key:"jwt_public_key_file" doc:"its public half; alone it accepts tokens that others sign"`
}

// MonitorHandlers is about the work that events lead to.
type MonitorHandlers struct {
	DeregistrationHandler string `key:"deregistration_handler" doc:"handler of deregistration events, if the entity names none"`
	HandlerBuffer         int    `key:"pipelined_buffer_size" def:"1000" doc:"queue size per handler; beyond it, the newest event of each check is kept"`
	HandlerWorkers        int    `key:"pipelined_workers" def:"8" doc:"concurrent commands or connections per handler"`
}

// MonitorAssets is about what checks and handlers run.
type MonitorAssets struct {
	CacheDir    string  `key:"cache_dir" doc:"folder of unpacked assets; default one in data_dir"`
	AssetsRate  float64 `key:"assets_rate_limit" def:"1.39" doc:"downloads of assets per second"`
	AssetsBurst int     `key:"assets_burst_limit" def:"100" doc:"burst size of asset downloads"`
}

// MonitorEventLog is the file of all events.
type MonitorEventLog struct {
	EventLog       string `key:"event_log_file" doc:"file that receives every stored event, one JSON line each"`
	EventLogBuffer int    `key:"event_log_buffer_size" def:"100000" doc:"queue size for event_log_file; beyond it, events are dropped"`
}

// MonitorHistory is how much of the past of checks is kept.
type MonitorHistory struct {
	HistoryRuns int           `key:"history_max_runs" def:"100" doc:"times of one status that are kept of the past of each check on each entity, up to 1000"`
	HistoryAge  time.Duration `key:"history_max_age" def:"720h" doc:"retention"`
}

// MonitorSilences bounds new silences.
type MonitorSilences struct {
	SilenceTime time.Duration `key:"default_silenced_expiry_time" def:"0s" doc:"lifetime of a new silence without an end; 0 is unlimited"`
	SilenceMost time.Duration `key:"max_silenced_expiry_time_allowed" def:"0s" doc:"longest time that a new silence may hold; 0 is any"`
}

// MonitorAdmin is the user that a new plane begins with.
type MonitorAdmin struct {
	AdminName   string `key:"cluster_admin_username" doc:"initial user of a new plane; without it, corbel sensu-backend init creates one"`
	AdminSecret string `key:"cluster_admin_password" opt:"secret" doc:"that user's password"`
	AdminKey    string `key:"cluster_admin_api_key" opt:"secret" doc:"an API key of that user, a UUID"`
}

// MonitorAgentAuth is how agents log in with certificates.
type MonitorAgentAuth struct {
	AgentAuthCA   string   `key:"agent_auth_trusted_ca_file" doc:"CAs whose client certificates authenticate agents by common name, PEM; without it passwords do alone"`
	AgentAuthCert string   `key:"agent_auth_cert_file" doc:"certificate of the agents' port, PEM; default tls.monitor.cert_file"`
	AgentAuthKey  string   `key:"agent_auth_key_file" doc:"its private key, PEM"`
	AgentAuthCRL  []string `key:"agent_auth_crl_urls" doc:"certificate revocation lists: files or URLs"`
}

// MonitorFleet is how the monitor plane and the catalog tell each other of hosts and services.
type MonitorFleet struct {
	Enabled   bool     `key:"enabled" def:"true" doc:"checks with the annotation corbel.dev/catalog-service or corbel.dev/catalog decide on health in the catalog, and failures there are events"`
	Namespace string   `key:"namespace" def:"default" doc:"namespace whose entities are the catalog's nodes of the same name"`
	Failures  []string `key:"failures" doc:"IDs of checks of nodes in the catalog whose failures are events; default serfHealth, and none when the list is empty"`
	Handlers  []string `key:"handlers" doc:"handlers of these events"`
	Pipelines []string `key:"pipelines" doc:"pipelines of these events"`
}

// MonitorAgent is the monitor plane's agent of this host. Its entity has the node's name.
type MonitorAgent struct {
	Enabled   bool     `key:"enabled" doc:"run monitoring checks on this host, as an entity of the node's name; on in dev"`
	Backends  []string `key:"backend_urls" doc:"ws:// and wss:// URLs of backends; default the cluster's servers that have the plane"`
	Namespace string   `key:"namespace" def:"default" doc:"namespace of the entity"`
	AgentLogin
	AgentEntity
	AgentKeepalive
	AgentListeners
	AllowList     string `key:"allow_list" doc:"file of the commands that may run, YAML or JSON; default all"`
	DisableAssets bool   `key:"disable_assets" doc:"do not fetch runtime assets"`
}

// AgentLogin is who the agent logs in as.
type AgentLogin struct {
	User     string `key:"user" def:"agent" doc:"user that the agent logs in as"`
	Password string `key:"password" opt:"secret" doc:"its password; default the one that a new plane has"`
	CertFile string `key:"cert_file" doc:"certificate that the agent logs in with in place of a password, PEM"`
	KeyFile  string `key:"key_file" doc:"its private key, PEM"`
}

// AgentEntity is the entity that the agent stands for.
type AgentEntity struct {
	Subscriptions  []string          `key:"subscriptions" doc:"what checks this host runs; in dev linux, system and dev when none is given"`
	Labels         map[string]string `key:"labels" doc:"labels of the entity"`
	Annotations    map[string]string `key:"annotations" doc:"annotations of the entity"`
	Redact         []string          `key:"redact" doc:"names of labels and annotations whose values are hidden; replaces the usual list"`
	Managed        bool              `key:"agent_managed_entity" doc:"this configuration decides on the entity, not the API"`
	Deregister     bool              `key:"deregister" doc:"remove the entity when this host goes missing"`
	Deregistration string            `key:"deregistration_handler" doc:"handler of that deregistration event"`
}

// AgentKeepalive is how the agent says that it lives.
type AgentKeepalive struct {
	Interval int      `key:"keepalive_interval" def:"20" doc:"seconds between keepalives"`
	Warning  int      `key:"keepalive_warning_timeout" def:"120" doc:"seconds of silence until this host is reported missing"`
	Critical int      `key:"keepalive_critical_timeout" def:"0" doc:"seconds of silence until this host is critical; 0 is never"`
	Handlers []string `key:"keepalive_handlers" doc:"handlers of keepalives"`
}

// AgentListeners is where programs on this host reach the agent.
type AgentListeners struct {
	API            string   `key:"api" doc:"host:port of the HTTP API for events of programs on this host; off when empty (Sensu's agent has 127.0.0.1:3031)"`
	Sockets        string   `key:"sockets" doc:"host:port of the TCP and UDP sockets; off when empty (127.0.0.1:3030)"`
	Statsd         string   `key:"statsd" doc:"host:port of the statsd listener; off when empty (127.0.0.1:8125)"`
	StatsdHandlers []string `key:"statsd_event_handlers" doc:"handlers of statsd metrics"`
}
