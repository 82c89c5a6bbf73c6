package jobwire

// Task is one process (NO-3).
type Task struct {
	Name   string `hcl:",label"`
	Driver string
	User   string
	Kind   string
	Leader bool
	Config map[string]any
	Env    map[string]string
	Meta   map[string]string
	Rules
	Resources     *Resources
	Services      []*Service     `hcl:"service"`
	RestartPolicy *RestartPolicy `hcl:"restart"`
	TaskLife
	TaskFiles
	TaskRights
}

// TaskLife is how a task starts and ends.
type TaskLife struct {
	Lifecycle       *TaskLifecycle
	KillTimeout     *Duration `def:"5s"`
	KillSignal      string
	ShutdownDelay   Duration
	DispatchPayload *DispatchPayloadConfig
	ScalingPolicies []*ScalingPolicy `hcl:"scaling"`
	Actions         []*Action        `hcl:"action" json:",omitempty"`
	Schedule        *TaskSchedule    `json:",omitempty"`
}

// TaskFiles is what is in a task's folder.
type TaskFiles struct {
	LogConfig       *LogConfig      `hcl:"logs" def:"made"`
	Artifacts       []*TaskArtifact `hcl:"artifact"`
	Templates       []*Template     `hcl:"template"`
	VolumeMounts    []*VolumeMount  `hcl:"volume_mount"`
	CSIPluginConfig *CSIPlugin      `hcl:"csi_plugin" json:",omitempty"`
}

// TaskRights is who a task is for others.
type TaskRights struct {
	Vault      *Vault
	Consul     *Consul             `json:",omitempty"`
	Identity   *WorkloadIdentity   `hcl:"-"` // the one called "default" in a job file
	Identities []*WorkloadIdentity `hcl:"identity"`
	Secrets    []*Secret           `hcl:"secret" json:",omitempty"`
}

// Secret is fetched before the task starts.
type Secret struct {
	Name     string `hcl:",label"`
	Provider string
	Path     string
	Config   map[string]any
	Env      map[string]string
}

// TaskLifecycle is when a task runs beside the main ones.
type TaskLifecycle struct {
	Hook    string
	Sidecar bool
}

// DispatchPayloadConfig is where a dispatch's payload goes.
type DispatchPayloadConfig struct{ File string }

// Action is a command that operators may run in a task.
type Action struct {
	Name    string `hcl:",label"`
	Command string
	Args    []string
}

// TaskSchedule is when a task may run.
type TaskSchedule struct{ Cron *TaskCron }

// TaskCron is a span of time that comes back.
type TaskCron struct{ Start, End, Timezone string }

// LogConfig is how much of a task's output is kept.
type LogConfig struct {
	MaxFiles      *int `def:"10"`
	MaxFileSizeMB *int `hcl:"max_file_size" def:"10"`
	Disabled      *bool
	Enabled       *bool `def:"-" json:",omitempty"` // of older clients; Disabled counts
}

// Resources are what a task asks for.
type Resources struct {
	CPU         *int `hcl:"cpu"` // 100 where nothing is said of cores
	Cores       *int
	MemoryMB    *int               `hcl:"memory" def:"300"`
	MemoryMaxMB *int               `hcl:"memory_max" def:"-"`
	DiskMB      *int               `hcl:"disk" def:"-"`
	IOPS        *int               `hcl:"iops" def:"-"`
	SecretsMB   *int               `hcl:"secrets" def:"-" json:",omitempty"`
	Networks    []*NetworkResource `hcl:"network"`
	Devices     []*RequestedDevice `hcl:"device"`
	NUMA        *NUMA              `hcl:"numa" json:",omitempty"`
}

// NUMA is how near to each other cores and devices have to be.
type NUMA struct {
	Affinity string
	Devices  []string
}

// RequestedDevice are devices that a task wants.
type RequestedDevice struct {
	Name  string  `hcl:",label"`
	Count *uint64 `def:"1"`
	Rules
}

// TaskArtifact is downloaded before a task starts.
type TaskArtifact struct {
	GetterSource   *string           `hcl:"source"`
	GetterOptions  map[string]string `hcl:"options"`
	GetterHeaders  map[string]string `hcl:"headers"`
	GetterMode     *string           `hcl:"mode" def:"any"`
	GetterInsecure *bool             `hcl:"insecure"`
	RelativeDest   *string           `hcl:"destination" def:"-"`
	Chown          bool
}

// Template is a file made from a template (NO-16).
type Template struct {
	SourcePath   *string `hcl:"source"`
	DestPath     *string `hcl:"destination"`
	EmbeddedTmpl *string `hcl:"data"`
	TemplateReload
	Perms         *string `def:"0644"`
	Uid           *int    `def:"-"`
	Gid           *int    `def:"-"`
	LeftDelim     *string `hcl:"left_delimiter" def:"{{"`
	RightDelim    *string `hcl:"right_delimiter" def:"}}"`
	Envvars       *bool   `hcl:"env"`
	ErrMissingKey *bool   `hcl:"error_on_missing_key"`
	Once          *bool
}

// TemplateReload is what happens when a template renders anew.
type TemplateReload struct {
	ChangeMode   *string `def:"restart"`
	ChangeScript *ChangeScript
	ChangeSignal *string   `def:"-"` // SIGHUP where signals are the mode
	Splay        *Duration `def:"5s"`
	VaultGrace   *Duration
	Wait         *WaitConfig
}

// ChangeScript runs when a template changed.
type ChangeScript struct {
	Command     *string
	Args        []string
	Timeout     *Duration `def:"5s"`
	FailOnError *bool
	// RunOnFirstRender is for scripts that prepare what a task starts with.
	RunOnFirstRender *bool `json:",omitempty"`
}

// WaitConfig is how long a template waits for more changes.
type WaitConfig struct {
	Min *Duration `def:"-"`
	Max *Duration `def:"-"`
}

// VolumeMount is where a group's volume is in a task.
type VolumeMount struct {
	Volume          *string `def:"-"`
	Destination     *string `def:"-"`
	ReadOnly        *bool
	PropagationMode *string `def:"private"`
	SELinuxLabel    *string `hcl:"selinux_label"`
}

// CSIPlugin is a task that is a storage plugin.
type CSIPlugin struct {
	ID                  string
	Type                string
	MountDir            string
	StagePublishBaseDir string
	HealthTimeout       Duration
}

// Vault is NO-17.
type Vault struct {
	Policies             []string
	Role                 string
	Namespace            *string
	Cluster              string
	Env                  *bool `def:"true"`
	DisableFile          *bool
	ChangeMode           *string `def:"restart"`
	ChangeSignal         *string `def:"SIGHUP"`
	AllowTokenExpiration *bool
}

// WorkloadIdentity is a token that a task gets (NN-15).
type WorkloadIdentity struct {
	Name         string
	Audience     []string `hcl:"aud"`
	ChangeMode   string
	ChangeSignal string
	Env          bool
	File         bool
	Filepath     string
	ServiceName  string   `json:",omitempty"`
	ExtraClaims  []string `json:",omitempty"`
	TTL          Duration `json:",omitempty"`
}
