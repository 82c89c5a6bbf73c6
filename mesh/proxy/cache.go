package proxy

import (
	"weak"

	"corbel.dev/corbel/mesh"
	"corbel.dev/corbel/mesh/envoy"
)

// Cache gives equal resources of several proxies one identity. It keeps no
// resource alive: what no proxy holds any more is forgotten.
type Cache struct {
	known map[content]weak.Pointer[mesh.Resource]
	sweep int // size at which forgotten resources are looked for
	// The roots that were built last, and of what.
	rootsOf *mesh.Roots
	roots   *mesh.Resource
}

// content is what a resource is: its version is the hash of what it says.
type content struct {
	kind          mesh.Type
	name, version string
}

// minSweep keeps small caches from being swept at each addition.
const minSweep = 256

// NewCache returns an empty cache.
func NewCache() *Cache {
	return &Cache{known: map[content]weak.Pointer[mesh.Resource]{}, sweep: minSweep}
}

// one returns the resource that stands for all that are equal to r.
func (c *Cache) one(r *mesh.Resource) *mesh.Resource {
	key := content{r.Type, r.Name, r.Version}
	if held := c.known[key].Value(); held != nil {
		return held
	}
	if len(c.known) >= c.sweep {
		for key, p := range c.known {
			if p.Value() == nil {
				delete(c.known, key)
			}
		}
		c.sweep = max(minSweep, 2*len(c.known))
	}
	c.known[key] = weak.Make(r)
	return r
}

// rootsSecret builds the roots once for all proxies.
func (c *Cache) rootsSecret(v *mesh.Roots) (*mesh.Resource, error) {
	if v == c.rootsOf {
		return c.roots, nil
	}
	r, err := envoy.Roots(v)
	if err != nil {
		return nil, err
	}
	c.rootsOf, c.roots = v, c.one(r)
	return c.roots, nil
}
