package jobwire

import (
	"cmp"
	"path"
	"reflect"
	"strings"
)

// to is a pointer to v.
func to[T any](v T) *T { return &v }

// Get is *p, or the zero value.
func Get[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// Canonicalize fills in defaults (§1), as clients do before they send a job and servers when they get it.
func (j *Job) Canonicalize() {
	if j.Type == nil {
		j.Type = to("service")
	}
	if j.Name == nil {
		j.Name = to(Get(j.ID))
	}
	if j.Update == nil && *j.Type == "service" {
		j.Update = &UpdateStrategy{}
	}
	fill(reflect.ValueOf(j.Update))
	if p := j.Periodic; p != nil {
		if Get(p.TimeZone) == "" {
			p.TimeZone = nil
		}
		p.Specs = append([]string{}, p.Specs...)
	}
	if Get(j.DispatchIdempotencyToken) == "" {
		j.DispatchIdempotencyToken = nil
	}
	for _, g := range j.TaskGroups {
		g.canonicalize(j)
	}
	if m := j.Multiregion; m != nil && m.Strategy == nil {
		m.Strategy = &MultiregionStrategy{}
	}
	r, m := j.Reschedule, j.Migrate // what groups start from stays as it was given
	j.Reschedule, j.Migrate = nil, nil
	fill(reflect.ValueOf(j))
	j.Reschedule, j.Migrate = r, m
}

// Admit fills in what a server decides when a job is registered, after Canonicalize.
func (j *Job) Admit() {
	if len(j.Datacenters) == 0 {
		j.Datacenters = []string{"*"}
	}
	if Get(j.NodePool) == "" {
		j.NodePool = to("default")
	}
}

func (g *TaskGroup) canonicalize(j *Job) {
	if g.Count == nil {
		g.Count = to(1)
		if g.Scaling != nil && g.Scaling.Min != nil {
			g.Count = to(int(*g.Scaling.Min))
		}
	}
	if s := g.Scaling; s != nil {
		if s.Type == "" {
			s.Type = "horizontal"
		}
		if s.Min == nil {
			s.Min = to(int64(*g.Count))
		}
	}
	// What a job says of updates counts for all its groups; a group without either has no deployments.
	if g.Update != nil || j.Update != nil && !zero(reflect.ValueOf(j.Update).Elem()) {
		g.Update = under(g.Update, j.Update)
	}
	g.ReschedulePolicy = under(g.ReschedulePolicy, j.Reschedule)
	if g.ReschedulePolicy != nil || *j.Type != "system" && *j.Type != "sysbatch" {
		g.ReschedulePolicy = under(g.ReschedulePolicy, defaultReschedule(*j.Type))
	}
	g.Migrate = under(g.Migrate, j.Migrate)
	if g.Migrate == nil && *j.Type == "service" {
		g.Migrate = &MigrateStrategy{}
	}
	g.RestartPolicy = under(g.RestartPolicy, defaultRestart(*j.Type))
	for _, t := range g.Tasks {
		t.canonicalize(g, j)
	}
	for _, s := range g.Services {
		s.canonicalize(Get(j.Name) + "-" + Get(g.Name))
	}
}

// zero reports whether all pointers of a struct lead to zeros.
func zero(s reflect.Value) bool {
	for i := range s.NumField() {
		if f := s.Field(i); !f.IsNil() && !f.Elem().IsZero() {
			return false
		}
	}
	return true
}

func defaultReschedule(jobType string) *ReschedulePolicy {
	switch jobType {
	case "service":
		return &ReschedulePolicy{Delay: to(seconds(30)), DelayFunction: to("exponential"), MaxDelay: to(seconds(3600)),
			Unlimited: to(true)}
	case "batch":
		return &ReschedulePolicy{Attempts: to(1), Interval: to(seconds(86400)), Delay: to(seconds(5)),
			DelayFunction: to("constant")}
	}
	return &ReschedulePolicy{}
}

func defaultRestart(jobType string) *RestartPolicy {
	r := &RestartPolicy{Attempts: to(3), Interval: to(seconds(86400)), Delay: to(seconds(15)), Mode: to("fail")}
	if jobType == "service" || jobType == "system" {
		r.Attempts, r.Interval = to(2), to(seconds(1800))
	}
	return r
}

func seconds(n int64) Duration { return Duration(n * 1e9) }

func (t *Task) canonicalize(g *TaskGroup, j *Job) {
	if t.Resources == nil {
		t.Resources = &Resources{}
	}
	t.Resources.canonicalize()
	t.RestartPolicy = under(t.RestartPolicy, g.RestartPolicy)
	if l := t.Lifecycle; l != nil && *l == (TaskLifecycle{}) {
		t.Lifecycle = nil
	}
	if t.Vault != nil {
		t.Vault.Cluster = cmp.Or(t.Vault.Cluster, "default")
	}
	for _, a := range t.Artifacts {
		a.canonicalize()
	}
	for _, template := range t.Templates {
		template.canonicalize()
	}
	if c := t.CSIPluginConfig; c != nil {
		c.MountDir = cmp.Or(c.MountDir, "/csi")
		c.StagePublishBaseDir = cmp.Or(c.StagePublishBaseDir, "/local/csi")
		c.HealthTimeout = cmp.Or(c.HealthTimeout, seconds(30))
	}
	for _, s := range t.Services {
		s.canonicalize(Get(j.Name) + "-" + Get(g.Name) + "-" + t.Name)
	}
}

func (r *Resources) canonicalize() {
	if r.CPU == nil && r.Cores == nil {
		r.CPU = to(100)
	}
	if Get(r.MemoryMaxMB) == 0 {
		r.MemoryMaxMB = nil
	}
}

func (a *TaskArtifact) canonicalize() {
	if len(a.GetterOptions) == 0 {
		a.GetterOptions = nil
	}
	if len(a.GetterHeaders) == 0 {
		a.GetterHeaders = nil
	}
	if a.RelativeDest == nil {
		a.RelativeDest = to("local/")
		if Get(a.GetterMode) == "file" {
			a.RelativeDest = to(path.Join("local", path.Base(Get(a.GetterSource))))
		}
	}
}

func (t *Template) canonicalize() {
	switch {
	case t.ChangeSignal != nil:
		t.ChangeSignal = to(strings.ToUpper(*t.ChangeSignal))
	case Get(t.ChangeMode) == "signal":
		t.ChangeSignal = to("SIGHUP")
	default:
		t.ChangeSignal = to("")
	}
	if s := t.ChangeScript; s != nil && s.Args == nil {
		s.Args = []string{}
	}
}

func (s *Service) canonicalize(name string) {
	s.Name, s.Provider, s.Cluster = cmp.Or(s.Name, name), cmp.Or(s.Provider, "consul"), cmp.Or(s.Cluster, "default")
	s.AddressMode, s.OnUpdate = cmp.Or(s.AddressMode, "auto"), cmp.Or(s.OnUpdate, "require_healthy")
	for _, m := range []*map[string]string{&s.Meta, &s.CanaryMeta, &s.TaggedAddresses} {
		if len(*m) == 0 {
			*m = nil
		}
	}
	for _, c := range s.Checks {
		c.CheckRestart = mergeRestart(c.CheckRestart, s.CheckRestart)
		c.SuccessBeforePassing = max(c.SuccessBeforePassing, 0)
		c.FailuresBeforeCritical = max(c.FailuresBeforeCritical, 0)
		c.OnUpdate = cmp.Or(c.OnUpdate, s.OnUpdate)
	}
	if s.Connect != nil && s.Connect.SidecarTask != nil {
		s.Connect.SidecarTask.canonicalize()
	}
}

func (t *SidecarTask) canonicalize() {
	if t.Resources == nil {
		t.Resources = &Resources{}
	}
	t.Resources.canonicalize()
}

// mergeRestart is what a check says, and where it says nothing what its service says.
func mergeRestart(check, service *CheckRestart) *CheckRestart {
	merged := under(check, service)
	if check != nil && service != nil {
		if merged.Limit <= 0 {
			merged.Limit = service.Limit
		}
		merged.IgnoreWarnings = merged.IgnoreWarnings || service.IgnoreWarnings
	}
	return merged
}
