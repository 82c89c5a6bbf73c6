package nomadrows

import "encoding/json"

// Namespace is a namespace as clients send and get it.
type Namespace struct {
	Name, Description, Quota string
	Capabilities             *NamespaceCapabilities
	Meta                     map[string]string
	CreateIndex, ModifyIndex uint64
}

// NamespaceCapabilities narrow down what jobs of a namespace may use.
type NamespaceCapabilities struct{ EnabledTaskDrivers, DisabledTaskDrivers []string }

// NodePool is a node pool.
type NodePool struct {
	Name, Description        string
	Meta                     map[string]string
	SchedulerConfiguration   *PoolScheduler
	CreateIndex, ModifyIndex uint64
}

// PoolScheduler is what a pool has of its own.
type PoolScheduler struct {
	SchedulerAlgorithm            string
	MemoryOversubscriptionEnabled *bool
}

// Service is an instance of a service of the provider nomad.
type Service struct {
	ID, ServiceName, Namespace, NodeID, Datacenter, JobID, AllocID string
	Tags                                                           []string
	Address                                                        string
	Port                                                           int
	CreateIndex, ModifyIndex                                       uint64
}

// VariableMeta is a variable as lists show it. Times are nanoseconds.
type VariableMeta struct {
	Namespace, Path          string
	CreateIndex, ModifyIndex uint64
	CreateTime, ModifyTime   int64
}

// Variable is a variable with what it holds.
type Variable struct {
	VariableMeta
	Items map[string]string
}

// Submission is what a job was written as.
type Submission struct {
	Source, Format string // Format is hcl1, hcl2 or json
	VariableFlags  map[string]string
	Variables      string
}

// ScalingEvent is that a group was scaled, or why it was not. Time is in nanoseconds.
type ScalingEvent struct {
	Group         string `json:"-"`
	Count         *int64 // nil changed nothing
	PreviousCount int64
	Error         bool
	Message       string
	Meta          map[string]any
	EvalID        *string
	Time          uint64
	CreateIndex   uint64
}

// SchedulerSetting is what operators set for all.
type SchedulerSetting struct {
	SchedulerAlgorithm            string
	PreemptionConfig              Preemption
	MemoryOversubscriptionEnabled bool
	RejectJobRegistration         bool
	PauseEvalBroker               bool
	NodeLimitForFeasibilityChecks int `json:",omitempty"`
	CreateIndex, ModifyIndex      uint64
}

// Preemption says which jobs may preempt others.
type Preemption struct {
	SystemSchedulerEnabled, SysBatchSchedulerEnabled, BatchSchedulerEnabled, ServiceSchedulerEnabled bool
}

// Events are what one commit changed.
type Events struct {
	Index  uint64
	Events []*Event
}

// Event is a change of one object. Payload has the object by the name of its kind: {"Job": ...}.
type Event struct {
	Topic, Type, Key, Namespace string
	FilterKeys                  []string
	Index                       uint64
	Payload                     json.RawMessage
}
