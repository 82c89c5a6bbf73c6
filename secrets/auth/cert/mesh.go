package cert

import (
	"context"
	"crypto/x509"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks"
)

const (
	answerFor  = 10 * time.Second // how long an answer of the mesh counts
	errorFor   = time.Second      // how long it is not asked again after it did not answer
	maxAnswers = 256              // that are remembered; past it all are forgotten
)

var errNoMesh = errkind.New(errkind.Invalid,
	"field \"mesh_address\": is not set in auth/.../config: who signs the mesh's certificates is not known")

func (c *config) checkMesh() error {
	if c.MeshAddr == "" {
		return nil
	}
	err := jwks.CheckURL("mesh_address", c.MeshAddr)
	if err == nil {
		err = jwks.CheckCA("mesh_ca_pem", c.MeshCA)
	}
	return errkind.E(errkind.Invalid, "", err)
}

// Meshes asks meshes, over Consul's API, who signs for them and what is registered, and keeps the answers for
// some seconds: one question at a time for each. Safe for concurrent use; the zero value is ready.
type Meshes struct {
	mu    sync.Mutex
	known map[string]*answer
}

// answer is what was said last to one question.
type answer struct {
	mu    sync.Mutex // held while asking: who waits for it gets the answer
	until time.Time
	err   error

	domain         string
	roots, signers []*x509.Certificate
	services       map[string]bool // in lower case, as names are compared
}

// ask gives the answer to a question: a path of the API.
func (m *Meshes) ask(ctx context.Context, c *config, path string, now time.Time,
	read func(a *answer, get func(into any) error) error) (*answer, error) {
	if c.MeshAddr == "" {
		return nil, errNoMesh
	}
	name := strings.Join([]string{path, c.MeshAddr, c.MeshCA, c.MeshToken}, "\x00")
	m.mu.Lock()
	a := m.known[name]
	if a == nil {
		if m.known == nil || len(m.known) >= maxAnswers {
			m.known = map[string]*answer{}
		}
		a = &answer{}
		m.known[name] = a
	}
	m.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.After(a.until) || a.until.Sub(now) > answerFor {
		next := &answer{}
		a.err = read(next, func(into any) error {
			r, err := http.NewRequest(http.MethodGet, c.MeshAddr+path, nil)
			if err != nil {
				return errkind.E(errkind.Invalid, "", err)
			}
			if c.MeshToken != "" {
				r.Header.Set("X-Consul-Token", c.MeshToken)
			}
			return jwks.Ask(context.WithoutCancel(ctx), c.MeshCA, r, into) // within its own deadline: others wait for it too
		})
		a.until = now.Add(errorFor)
		if a.err == nil {
			a.until = now.Add(answerFor)
			a.domain, a.roots, a.signers, a.services = next.domain, next.roots, next.signers, next.services
		}
	}
	return &answer{domain: a.domain, roots: a.roots, signers: a.signers, services: a.services}, a.err
}

// authority asks who signs the mesh's certificates now.
func (m *Meshes) authority(ctx context.Context, c *config, now time.Time) (*answer, error) {
	return m.ask(ctx, c, "/v1/connect/ca/roots", now, func(a *answer, get func(any) error) error {
		var said struct {
			TrustDomain string
			Roots       []struct {
				RootCert          string
				IntermediateCerts []string
			}
		}
		if err := get(&said); err != nil {
			return err
		}
		a.domain = said.TrustDomain
		for _, r := range said.Roots {
			roots, err := parse([]byte(r.RootCert))
			if err != nil {
				return errkind.E(errkind.Unavailable, "the mesh's roots", err)
			}
			a.roots = append(a.roots, roots...)
			signers, err := parse([]byte(strings.Join(r.IntermediateCerts, "\n")))
			if err != nil {
				return errkind.E(errkind.Unavailable, "the mesh's intermediate certificates", err)
			}
			a.signers = append(a.signers, signers...)
		}
		if len(a.roots) == 0 || a.domain == "" {
			return errkind.New(errkind.Unavailable, "the mesh has no roots: is connect enabled there?")
		}
		return nil
	})
}

func (m *Meshes) trust(ctx context.Context, c *config, now time.Time) (roots, signers []*x509.Certificate, err error) {
	a, err := m.authority(ctx, c, now)
	if err != nil {
		return nil, nil, err
	}
	return a.roots, a.signers, nil
}

// live reports whether an instance of a workload (spiffe://DOMAIN/ns/NAMESPACE/dc/DATACENTER/svc/NAME) is registered.
func (m *Meshes) live(ctx context.Context, c *config, workload string, now time.Time) (bool, error) {
	u, err := url.Parse(workload)
	if err != nil {
		return false, nil
	}
	parts := strings.Split(u.EscapedPath(), "/")
	if len(parts) != 7 || parts[1] != "ns" || parts[3] != "dc" || parts[5] != "svc" {
		return false, nil // agents and gateways are no workloads
	}
	authority, err := m.authority(ctx, c, now)
	if err != nil || !strings.EqualFold(authority.domain, u.Host) {
		return false, err
	}
	dc, errDC := url.PathUnescape(parts[4])
	service, errName := url.PathUnescape(parts[6])
	if errDC != nil || errName != nil {
		return false, nil
	}
	a, err := m.ask(ctx, c, "/v1/catalog/services?dc="+url.QueryEscape(dc), now,
		func(a *answer, get func(any) error) error {
			var said map[string]any
			if err := get(&said); err != nil {
				return err
			}
			a.services = map[string]bool{}
			for name := range said {
				a.services[strings.ToLower(name)] = true
			}
			return nil
		})
	if err != nil {
		return false, err
	}
	return a.services[strings.ToLower(service)], nil
}
