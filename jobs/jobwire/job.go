package jobwire

// Job is a job as clients send and get it (NO-1).
type Job struct {
	JobIdentity
	JobTarget
	Rules
	Spreads    []*Spread    `hcl:"spread"`
	TaskGroups []*TaskGroup `hcl:"group"`
	JobPolicies
	JobCredentials
	JobChild
	JobState
	Meta map[string]string
	UI   *UI `def:"-"`
}

// JobIdentity is what a job is called and how important it is.
type JobIdentity struct {
	Region    *string `def:"global"`
	Namespace *string `def:"default"`
	ID        *string
	Name      *string
	Type      *string `def:"service"`
	Priority  *int    `def:"50"`
}

// JobTarget says to which nodes a job may go.
type JobTarget struct {
	AllAtOnce   *bool
	Datacenters []string
	NodePool    *string // Canonicalize leaves it empty, Admit fills it
}

// JobPolicies is how a job runs. Update, Reschedule and Migrate are defaults of its groups.
type JobPolicies struct {
	Update           *UpdateStrategy
	Reschedule       *ReschedulePolicy
	Migrate          *MigrateStrategy
	Periodic         *PeriodicConfig
	ParameterizedJob *ParameterizedJobConfig `hcl:"parameterized"`
	Multiregion      *Multiregion
}

// JobCredentials are the rights that a job brings.
type JobCredentials struct {
	ConsulToken     *string
	ConsulNamespace *string `hcl:"-"`
	VaultToken      *string
	VaultNamespace  *string `hcl:"-"`
	NomadTokenID    *string `hcl:"-"`
}

// JobChild is what a dispatched or periodic child has of its parent.
type JobChild struct {
	ParentID                 *string `hcl:"-"`
	Dispatched               bool    `hcl:"-"`
	DispatchIdempotencyToken *string `hcl:"-" def:"-"`
	Payload                  []byte  `hcl:"-"`
}

// JobState is what the servers write.
type JobState struct {
	Stop              *bool       `hcl:"-"`
	Status            *string     `hcl:"-"`
	StatusDescription *string     `hcl:"-"`
	Stable            *bool       `hcl:"-"`
	Version           *uint64     `hcl:"-"`
	VersionTag        *VersionTag `hcl:"-" json:",omitempty"`
	SubmitTime        *int64      `hcl:"-" def:"-"`
	CreateIndex       *uint64     `hcl:"-"`
	ModifyIndex       *uint64     `hcl:"-"`
	JobModifyIndex    *uint64     `hcl:"-"`
}

// VersionTag is the name of a version.
type VersionTag struct {
	Name, Description string
	TaggedTime        int64
}

// UI is what pages show of a job.
type UI struct {
	Description string
	Links       []*UILink `hcl:"link"`
}

// UILink is a link.
type UILink struct{ Label, URL string }

// Rules narrow nodes down and order them.
type Rules struct {
	Constraints []*Constraint `hcl:"constraint"`
	Affinities  []*Affinity   `hcl:"affinity"`
}

// Constraint is a condition (NO-4).
type Constraint struct {
	LTarget string `hcl:"attribute"`
	RTarget string `hcl:"value"`
	Operand string `hcl:"operator"`
}

// Affinity is a wish (NO-6).
type Affinity struct {
	LTarget string `hcl:"attribute"`
	RTarget string `hcl:"value"`
	Operand string `hcl:"operator"`
	Weight  *int8  `def:"50"`
}

// Spread distributes allocations (NO-7).
type Spread struct {
	Attribute    string
	Weight       *int8           `def:"50"`
	SpreadTarget []*SpreadTarget `hcl:"target"`
}

// SpreadTarget is the share of a value.
type SpreadTarget struct {
	Value   string `hcl:",label"`
	Percent uint8
}

// UpdateStrategy is NO-8.
type UpdateStrategy struct {
	Stagger          *Duration `def:"30s"`
	MaxParallel      *int      `def:"1"`
	HealthCheck      *string   `def:"checks"`
	MinHealthyTime   *Duration `def:"10s"`
	HealthyDeadline  *Duration `def:"5m"`
	ProgressDeadline *Duration `def:"10m"`
	Canary           *int
	AutoRevert       *bool
	AutoPromote      *bool
}

// ReschedulePolicy is NO-10.
type ReschedulePolicy struct {
	Attempts      *int
	Interval      *Duration
	Delay         *Duration
	DelayFunction *string
	MaxDelay      *Duration
	Unlimited     *bool
}

// RestartPolicy is NO-9.
type RestartPolicy struct {
	Interval        *Duration
	Attempts        *int
	Delay           *Duration
	Mode            *string
	RenderTemplates *bool
}

// MigrateStrategy is NO-11.
type MigrateStrategy struct {
	MaxParallel     *int      `def:"1"`
	HealthCheck     *string   `def:"checks"`
	MinHealthyTime  *Duration `def:"10s"`
	HealthyDeadline *Duration `def:"5m"`
}

// PeriodicConfig is NO-12.
type PeriodicConfig struct {
	Enabled         *bool    `def:"true"`
	Spec            *string  `hcl:"cron"`
	Specs           []string `hcl:"crons"`
	SpecType        *string  `hcl:"-" def:"cron"`
	ProhibitOverlap *bool
	TimeZone        *string `def:"UTC"`
}

// ParameterizedJobConfig is NO-13.
type ParameterizedJobConfig struct {
	Payload      string
	MetaRequired []string
	MetaOptional []string
}

// Multiregion is kept as it is sent: a region runs its own part.
type Multiregion struct {
	Strategy *MultiregionStrategy
	Regions  []*MultiregionRegion `hcl:"region"`
}

// MultiregionStrategy is how the regions follow each other.
type MultiregionStrategy struct {
	MaxParallel *int
	OnFailure   *string
}

// MultiregionRegion is a region's part.
type MultiregionRegion struct {
	Name        string `hcl:",label"`
	Count       *int   `def:"1"`
	Datacenters []string
	NodePool    string
	Meta        map[string]string
}
