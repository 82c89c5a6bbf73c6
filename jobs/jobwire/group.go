package jobwire

// TaskGroup is what runs together on a node (NO-2).
type TaskGroup struct {
	Name  *string `hcl:",label"`
	Count *int    `def:"-"` // 1, or what scaling says
	Rules
	Spreads []*Spread `hcl:"spread"`
	Tasks   []*Task   `hcl:"task"`
	GroupPolicies
	GroupLoss
	EphemeralDisk *EphemeralDisk            `def:"made"`
	Networks      []*NetworkResource        `hcl:"network"`
	Volumes       map[string]*VolumeRequest `hcl:"volume"`
	Services      []*Service                `hcl:"service"`
	Scaling       *ScalingPolicy
	Consul        *Consul
	Meta          map[string]string
}

// GroupPolicies is how a group runs.
type GroupPolicies struct {
	RestartPolicy    *RestartPolicy    `hcl:"restart"`
	ReschedulePolicy *ReschedulePolicy `hcl:"reschedule"`
	Update           *UpdateStrategy
	Migrate          *MigrateStrategy
	ShutdownDelay    *Duration `def:"-"`
	MaxRunDuration   *Duration `def:"-" json:",omitempty"`
}

// GroupLoss is what happens when a group's node is not heard of.
type GroupLoss struct {
	StopAfterClientDisconnect *Duration   `def:"-"`
	MaxClientDisconnect       *Duration   `def:"-"`
	PreventRescheduleOnLost   *bool       `def:"-" json:",omitempty"`
	Disconnect                *Disconnect `def:"-" json:",omitempty"`
}

// Disconnect is how a group outlives a lost connection.
type Disconnect struct {
	LostAfter         *Duration `def:"-"`
	StopOnClientAfter *Duration `def:"-"`
	Replace           *bool     `def:"true"`
	Reconcile         *string   `def:"best_score"`
}

// EphemeralDisk is a group's scratch space.
type EphemeralDisk struct {
	Sticky  *bool
	Migrate *bool
	SizeMB  *int `hcl:"size" def:"300"`
}

// NetworkResource is NO-19.
type NetworkResource struct {
	Mode          string
	Device        string
	CIDR          string
	IP            string
	Hostname      string
	MBits         *int `hcl:"mbits" def:"-"`
	DNS           *DNSConfig
	CNI           *CNIConfig `json:",omitempty"`
	ReservedPorts []Port     `hcl:"-"` // a port with a static number
	DynamicPorts  []Port     `hcl:"port"`
}

// DNSConfig is how names are resolved within a network.
type DNSConfig struct{ Servers, Searches, Options []string }

// CNIConfig are arguments of a CNI plugin.
type CNIConfig struct{ Args map[string]string }

// Port is a port that a group asks for.
type Port struct {
	Label           string `hcl:",label"`
	Value           int    `hcl:"static"`
	To              int
	HostNetwork     string
	IgnoreCollision bool `json:",omitempty"`
}

// VolumeRequest is a volume that a group wants.
type VolumeRequest struct {
	Name           string `hcl:",label"`
	Type           string
	Source         string
	ReadOnly       bool
	Sticky         bool `json:",omitempty"`
	AccessMode     string
	AttachmentMode string
	MountOptions   *MountOptions
	PerAlloc       bool
}

// MountOptions are for volumes of CSI plugins.
type MountOptions struct {
	FSType     string `hcl:"fs_type"`
	MountFlags []string
}

// ScalingPolicy is between which counts a group may be scaled.
type ScalingPolicy struct {
	Type        string // of a task's: also the block's label
	Min         *int64 `def:"-"`
	Max         *int64 `def:"-"`
	Policy      map[string]any
	Enabled     *bool             `def:"true"`
	ID          string            `hcl:"-"`
	Namespace   string            `hcl:"-"`
	Target      map[string]string `hcl:"-"`
	CreateIndex uint64            `hcl:"-"`
	ModifyIndex uint64            `hcl:"-"`
}

// Consul says which Consul a group or task belongs to.
type Consul struct {
	Namespace string
	Cluster   string `json:",omitempty"`
	Partition string `json:",omitempty"`
}
