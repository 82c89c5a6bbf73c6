package jobsplane

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/jobs/noderpc"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks"
)

// identities signs workload identities (NN-15) when a node asks for one, and not in plans: signing slows no placement
// (NN-16). signKeys has the keys.
type identities struct {
	p    *Plane
	keys signKeys
}

const (
	identityAlgorithm = jwks.Algorithm("RS256") // what relying parties know
	defaultIdentity   = "default"
	defaultAudience   = "nomadproject.io"
	defaultLife       = time.Hour // of a token whose job states no ttl
)

func newIdentities(p *Plane, s seals) identities {
	i := identities{p, signKeys{p, s, &sync.Once{}}}
	p.d.Handle(wire.Members, noderpc.MethodIdentity, i.sign)
	return i
}

// identityClaims are what a token says.
type identityClaims struct {
	Namespace string   `json:"nomad_namespace"`
	Job       string   `json:"nomad_job_id"`
	Alloc     string   `json:"nomad_allocation_id"`
	Task      string   `json:"nomad_task,omitempty"`
	Service   string   `json:"nomad_service,omitempty"`
	Issuer    string   `json:"iss,omitempty"`
	Subject   string   `json:"sub"`
	Audience  []string `json:"aud"`
	IssuedAt  int64    `json:"iat"`
	NotBefore int64    `json:"nbf"`
	Expires   int64    `json:"exp"`
	ID        string   `json:"jti"`
}

// sign answers noderpc.MethodIdentity.
func (i identities) sign(ctx context.Context, req []byte) ([]byte, error) {
	m, err := noderpc.Read[noderpc.SignAsk](req)
	if err != nil {
		return nil, err
	}
	v, err := i.p.nodes.known(m.Key)
	if err != nil {
		return nil, err
	}
	a := v.State.Allocation(m.Alloc)
	if a == nil || a.NodeID != m.Node || a.Terminal() {
		return nil, errkind.New(errkind.NotFound, "the node has no such allocation that runs")
	}
	asked, err := wanted(a, m)
	if err != nil {
		return nil, err
	}
	k, private, err := i.keys.current(ctx)
	if err != nil {
		return nil, err
	}
	now := i.p.d.Clock.Now()
	life := time.Duration(asked.TTL)
	if life <= 0 {
		life = defaultLife
	}
	life = min(life, longestToken)
	parts := []string{i.p.keys.Region, a.Job.Namespace, a.Job.ID, a.Group, m.Task, asked.Name}
	if m.Service != "" {
		parts[4], parts[5] = m.Service, asked.Name
	}
	claims := identityClaims{Namespace: a.Job.Namespace, Job: a.Job.ID, Alloc: a.ID.String(), Task: m.Task,
		Service: m.Service,
		Issuer:  i.Issuer(), Subject: strings.Join(parts, ":"), Audience: asked.Audience, IssuedAt: now.Unix(),
		NotBefore: now.Unix(), Expires: now.Add(life).Unix(), ID: newID().String()}
	if a.Job.Origin.ParentID != "" {
		claims.Job = a.Job.Origin.ParentID // rights are those of the job that somebody wrote
	}
	token, err := jwks.SignWith(identityAlgorithm, private, k.ID, claims)
	if err != nil {
		return nil, err
	}
	return noderpc.Bytes(&noderpc.Signed{Token: token, Expires: jobs.Time(now.Add(life).UnixNano())}), nil
}

// wanted is the identity that a task or a service of the job states; the one called default is always there.
func wanted(a *jobs.Allocation, m *noderpc.SignAsk) (*jobwire.WorkloadIdentity, error) {
	name := m.Identity
	if name == "" {
		name = defaultIdentity
	}
	w := jobwire.FromJob(a.Job)
	var list []*jobwire.WorkloadIdentity
	found := false
	for _, g := range w.TaskGroups {
		if jobwire.Get(g.Name) != a.Group {
			continue
		}
		services := g.Services
		for _, t := range g.Tasks {
			services = append(services, t.Services...)
			if t.Name == m.Task && m.Service == "" {
				found = true
				list = append(list, t.Identities...)
				if t.Identity != nil {
					list = append(list, t.Identity)
				}
				list = append(list, implied(g, t)...)
			}
		}
		for _, s := range services {
			if m.Service != "" && s.Name == m.Service && s.Identity != nil {
				found = true
				list = append(list, s.Identity)
			}
		}
	}
	if !found {
		return nil, errkind.New(errkind.NotFound, "the allocation's job has no such task or service with an identity")
	}
	for _, one := range list {
		if one.Name == name || one.Name == "" && name == defaultIdentity || m.Service != "" {
			out := *one
			if len(out.Audience) == 0 {
				out.Audience = []string{defaultAudience}
			}
			out.Name = name
			return &out, nil
		}
	}
	if name != defaultIdentity {
		return nil, errkind.New(errkind.NotFound, "the task states no identity of that name")
	}
	return &jobwire.WorkloadIdentity{Name: defaultIdentity, Audience: []string{defaultAudience}}, nil
}

// implied are the identities by which the blocks of a task log in elsewhere, where the task states none of the name.
func implied(g *jobwire.TaskGroup, t *jobwire.Task) (list []*jobwire.WorkloadIdentity) {
	if v := t.Vault; v != nil {
		list = append(list, &jobwire.WorkloadIdentity{Name: "vault_" + cmp.Or(v.Cluster, defaultIdentity),
			Audience: []string{"vault.io"}})
	}
	if c := cmp.Or(t.Consul, g.Consul); c != nil {
		list = append(list, &jobwire.WorkloadIdentity{Name: "consul_" + cmp.Or(c.Cluster, defaultIdentity),
			Audience: []string{"consul.io"}})
	}
	return list
}

// Issuer implements nomadrows.Keys.
func (i identities) Issuer() string { return i.p.keys.Issuer }

// reads tells whether a token is the identity of a task that runs, and that may read the variable of a name.
func (i identities) reads(token, name string) bool {
	if strings.Count(token, ".") != 2 {
		return false
	}
	t, err := jwks.Parse(token, []jwks.Algorithm{identityAlgorithm})
	if err != nil {
		return false
	}
	ring, _ := i.keys.ring()
	at := slices.IndexFunc(ring.Keys, func(k *signKey) bool { return k.ID == t.KeyID() })
	if at < 0 {
		return false
	}
	claims, err := t.SignedByOne(jwks.Verifier{ID: ring.Keys[at].ID, Alg: identityAlgorithm, Public: ring.Keys[at].Public})
	if err != nil || (jwks.Leeway{}).Check(&claims.Standard, i.p.d.Clock.Now()) != nil ||
		!slices.Contains(claims.Audience, defaultAudience) {
		return false
	}
	text, _ := claims.All["nomad_allocation_id"].(string)
	task, _ := claims.All["nomad_task"].(string)
	id, ok := nomadrows.ParseID(text)
	if !ok {
		return false
	}
	a := i.p.store.View().State.Allocation(id)
	if a == nil || a.Terminal() {
		return false
	}
	path, ok := strings.CutPrefix(name, a.Job.Namespace+"/")
	return ok && workloadReads(a.Job, a.Group, task, path)
}
