package jobstore

import (
	"encoding/json"

	"corbel.dev/corbel/jobs"
)

// Setting is what operators set for all (NA-25), as the document of the table Scheduler has it.
type Setting struct {
	SchedulerAlgorithm            string
	PreemptionConfig              Preemption
	MemoryOversubscriptionEnabled bool
	RejectJobRegistration         bool
	PauseEvalBroker               bool
	NodeLimitForFeasibilityChecks int    `json:",omitempty"`
	CreateIndex                   uint64 `json:"-"`
	ModifyIndex                   uint64 `json:"-"`
}

// Preemption says which jobs may preempt others.
type Preemption struct {
	SystemSchedulerEnabled, SysBatchSchedulerEnabled, BatchSchedulerEnabled, ServiceSchedulerEnabled bool
}

// Setting is the scheduler's setting as it is now.
func (v *View) Setting() Setting {
	s := Setting{SchedulerAlgorithm: jobs.Binpack, PreemptionConfig: Preemption{SystemSchedulerEnabled: true}}
	if d := v.Document(Scheduler, "", ""); d != nil {
		_ = json.Unmarshal([]byte(d.Body), &s) // what cannot be read is a newer release's: the usual one counts
		s.CreateIndex, s.ModifyIndex = d.CreateIndex, d.ModifyIndex
	}
	return s
}

// Config is the setting as the scheduler knows it.
func (s Setting) Config(pools map[string]string) jobs.Config {
	return jobs.Config{Algorithm: s.SchedulerAlgorithm, PoolAlgorithm: pools,
		Oversubscription: s.MemoryOversubscriptionEnabled, Preempt: map[string]bool{
			jobs.System: s.PreemptionConfig.SystemSchedulerEnabled, jobs.SysBatch: s.PreemptionConfig.SysBatchSchedulerEnabled,
			jobs.Batch: s.PreemptionConfig.BatchSchedulerEnabled, jobs.Service: s.PreemptionConfig.ServiceSchedulerEnabled}}
}
