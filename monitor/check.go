package monitor

import "corbel.dev/corbel/kit/tagproto"

// CheckConfig is what agents are to run, how often, and what becomes of the results.
type CheckConfig struct {
	Command            string         `json:"command,omitempty" pb:"1"`
	Handlers           []string       `json:"handlers" pb:"3"`
	HighFlapThreshold  uint32         `json:"high_flap_threshold" pb:"4"`
	Interval           uint32         `json:"interval" pb:"5"` // seconds
	LowFlapThreshold   uint32         `json:"low_flap_threshold" pb:"6"`
	Publish            bool           `json:"publish" pb:"9"`
	RuntimeAssets      []string       `json:"runtime_assets" pb:"10"`
	Subscriptions      []string       `json:"subscriptions" pb:"11"`
	ExtendedAttributes []byte         `json:"-" pb:"12"`
	ProxyEntityName    string         `json:"proxy_entity_name" pb:"13"`
	CheckHooks         []HookList     `json:"check_hooks" pb:"14"`
	Stdin              bool           `json:"stdin" pb:"15"`
	Subdue             *Windows       `json:"subdue" pb:"16"` // stored, never applied
	Cron               string         `json:"cron,omitempty" pb:"17"`
	TTL                int64          `json:"ttl" pb:"18"`     // seconds
	Timeout            uint32         `json:"timeout" pb:"19"` // seconds
	ProxyRequests      *ProxyRequests `json:"proxy_requests,omitempty" pb:"20"`
	RoundRobin         bool           `json:"round_robin" pb:"21"`
	MetricFormat       string         `json:"output_metric_format" pb:"22"`
	MetricHandlers     []string       `json:"output_metric_handlers" pb:"23"`
	EnvVars            []string       `json:"env_vars" pb:"24"`
	Meta               `json:"metadata,omitempty" pb:"26"`
	MaxOutputSize      int64              `json:"max_output_size,omitempty" pb:"27"` // bytes
	DiscardOutput      bool               `json:"discard_output,omitempty" pb:"28"`
	Secrets            []*Secret          `json:"secrets" pb:"29"`
	MetricTags         []*MetricTag       `json:"output_metric_tags,omitempty" pb:"30"`
	Scheduler          string             `json:"-" pb:"31"`
	Pipelines          []*Ref             `json:"pipelines" pb:"32"`
	MetricThresholds   []*MetricThreshold `json:"output_metric_thresholds,omitempty" pb:"33"`
	Subdues            []*Subdue          `json:"subdues,omitempty" pb:"34"`
	Extra              tagproto.Extra     `json:"-"`
}

// Check is a check as an event tells of it: its configuration when it ran, the result, and what its former results
// make of it.
type Check struct {
	Command            string         `json:"command,omitempty" pb:"1"`
	Handlers           []string       `json:"handlers" pb:"3"`
	HighFlapThreshold  uint32         `json:"high_flap_threshold" pb:"4"`
	Interval           uint32         `json:"interval" pb:"5"`
	LowFlapThreshold   uint32         `json:"low_flap_threshold" pb:"6"`
	Publish            bool           `json:"publish" pb:"9"`
	RuntimeAssets      []string       `json:"runtime_assets" pb:"10"`
	Subscriptions      []string       `json:"subscriptions" pb:"11"`
	ProxyEntityName    string         `json:"proxy_entity_name" pb:"13"`
	CheckHooks         []HookList     `json:"check_hooks" pb:"14"`
	Stdin              bool           `json:"stdin" pb:"15"`
	Subdue             *Windows       `json:"subdue" pb:"16"`
	Cron               string         `json:"cron,omitempty" pb:"17"`
	TTL                int64          `json:"ttl" pb:"18"`
	Timeout            uint32         `json:"timeout" pb:"19"`
	ProxyRequests      *ProxyRequests `json:"proxy_requests,omitempty" pb:"20"`
	RoundRobin         bool           `json:"round_robin" pb:"21"`
	Duration           float64        `json:"duration,omitempty" pb:"22"` // seconds
	Executed           int64          `json:"executed" pb:"23"`
	History            []Run          `json:"history" pb:"24"`
	Issued             int64          `json:"issued" pb:"25"`
	Output             string         `json:"output" pb:"26"`
	State              string         `json:"state,omitempty" pb:"27"`
	Status             uint32         `json:"status" pb:"28"`
	TotalStateChange   uint32         `json:"total_state_change" pb:"29"` // per cent
	LastOK             int64          `json:"last_ok" pb:"30"`
	Occurrences        int64          `json:"occurrences" pb:"31"`
	Watermark          int64          `json:"occurrences_watermark" pb:"32"`
	Silenced           []string       `json:"silenced,omitempty" pb:"33"`
	Hooks              []*Hook        `json:"hooks,omitempty" pb:"34"`
	MetricFormat       string         `json:"output_metric_format" pb:"35"`
	MetricHandlers     []string       `json:"output_metric_handlers" pb:"36"`
	EnvVars            []string       `json:"env_vars" pb:"37"`
	Meta               `json:"metadata,omitempty" pb:"38"`
	MaxOutputSize      int64              `json:"max_output_size,omitempty" pb:"39"`
	DiscardOutput      bool               `json:"discard_output,omitempty" pb:"40"`
	Secrets            []*Secret          `json:"secrets" pb:"41"`
	IsSilenced         bool               `json:"is_silenced" pb:"42"`
	MetricTags         []*MetricTag       `json:"output_metric_tags,omitempty" pb:"43"`
	Scheduler          string             `json:"scheduler" pb:"44"`
	ProcessedBy        string             `json:"processed_by,omitempty" pb:"45"`
	Pipelines          []*Ref             `json:"pipelines" pb:"46"`
	MetricThresholds   []*MetricThreshold `json:"output_metric_thresholds,omitempty" pb:"47"`
	Subdues            []*Subdue          `json:"subdues,omitempty" pb:"48"`
	ExtendedAttributes []byte             `json:"-" pb:"99"`
	Extra              tagproto.Extra     `json:"-"`
}

// Run is an entry of a check's history.
type Run struct {
	Status   uint32         `json:"status" pb:"1"`
	Executed int64          `json:"executed" pb:"2"`
	Flapping bool           `json:"-" pb:"3"`
	Extra    tagproto.Extra `json:"-"`
}

// ProxyRequests makes one request of a check for each entity that the expressions hold for.
type ProxyRequests struct {
	EntityAttributes []string       `json:"entity_attributes" pb:"1"`
	Splay            bool           `json:"splay" pb:"2"`
	SplayCoverage    uint32         `json:"splay_coverage" pb:"3"` // per cent of the interval
	Extra            tagproto.Extra `json:"-"`
}

// HookList are the hooks that run after a result of one kind.
type HookList struct {
	Hooks []string       `json:"hooks" pb:"1"`
	Type  string         `json:"type,omitempty" pb:"2"`
	Extra tagproto.Extra `json:"-"`
}

// HookConfig is a command that agents run after a check.
type HookConfig struct {
	Meta          `json:"metadata,omitempty" pb:"1"`
	Command       string         `json:"command,omitempty" pb:"2"`
	Timeout       uint32         `json:"timeout" pb:"3"`
	Stdin         bool           `json:"stdin" pb:"4"`
	RuntimeAssets []string       `json:"runtime_assets" pb:"5"`
	Extra         tagproto.Extra `json:"-"`
}

// Hook is a hook's result.
type Hook struct {
	HookConfig `pb:"1"`
	Duration   float64        `json:"duration,omitempty" pb:"2"`
	Executed   int64          `json:"executed" pb:"3"`
	Issued     int64          `json:"issued" pb:"4"`
	Output     string         `json:"output,omitempty" pb:"5"`
	Status     int32          `json:"status" pb:"6"`
	Extra      tagproto.Extra `json:"-"`
}

// CheckRequest asks an agent to run a check.
type CheckRequest struct {
	Config     *CheckConfig   `json:"config,omitempty" pb:"1"`
	Assets     []Asset        `json:"assets" pb:"2"`
	Hooks      []HookConfig   `json:"hooks" pb:"3"`
	Issued     int64          `json:"issued" pb:"4"`
	HookAssets []HookAsset    `json:"-" pb:"5"`
	Secrets    []string       `json:"secrets,omitempty" pb:"6"` // NAME=value
	Extra      tagproto.Extra `json:"-"`
}

// HookAsset are the assets of a hook: an entry of a map, which protobuf writes like a list of pairs.
type HookAsset struct {
	Hook   string         `pb:"1"`
	Assets AssetList      `pb:"2"`
	Extra  tagproto.Extra `json:"-"`
}

// AssetList holds assets.
type AssetList struct {
	Assets []Asset        `json:"assets" pb:"1"`
	Extra  tagproto.Extra `json:"-"`
}

// MetricTag is a tag of a metric point.
type MetricTag struct {
	Name  string         `json:"name,omitempty" pb:"1"`
	Value string         `json:"value,omitempty" pb:"2"`
	Extra tagproto.Extra `json:"-"`
}

// MetricThreshold makes the status of a check of its metrics.
type MetricThreshold struct {
	Name       string             `json:"name" pb:"1"`
	Tags       []*ThresholdTag    `json:"tags" pb:"2"`
	Thresholds []*ThresholdLimits `json:"thresholds" pb:"3"`
	NullStatus uint32             `json:"null_status" pb:"4"`
	Extra      tagproto.Extra     `json:"-"`
}

// ThresholdTag is a tag that a point must have.
type ThresholdTag struct {
	Name  string         `json:"name" pb:"1"`
	Value string         `json:"value" pb:"2"`
	Extra tagproto.Extra `json:"-"`
}

// ThresholdLimits is the range in which a point is fine, and the status outside of it.
type ThresholdLimits struct {
	Min    string         `json:"min" pb:"1"`
	Max    string         `json:"max" pb:"2"`
	Status uint32         `json:"status" pb:"3"`
	Extra  tagproto.Extra `json:"-"`
}
