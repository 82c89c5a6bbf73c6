package agentproxy

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Counts counts what an agent does. The zero value is ready; it is safe for concurrent use.
type Counts struct {
	mu sync.Mutex // guards n
	n  map[string]uint64
}

// Add counts one, such as auth.success.
func (c *Counts) Add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]uint64{}
	}
	c.n[name]++
}

// serve answers with all counts, in Prometheus' format if it is asked for.
func (c *Counts) serve(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	n := maps.Clone(c.n)
	c.mu.Unlock()
	names := slices.Sorted(maps.Keys(n))
	if r.FormValue("format") == "prometheus" {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		for _, name := range names {
			full := "vault_agent_" + strings.ReplaceAll(name, ".", "_")
			fmt.Fprintf(w, "# TYPE %s counter\n%s %d\n", full, full, n[name])
		}
		return
	}
	type counter struct {
		Name  string
		Count uint64
		Sum   uint64
	}
	out := struct {
		Timestamp               string
		Gauges, Points, Samples []struct{}
		Counters                []counter
	}{Timestamp: time.Now().UTC().Format("2006-01-02 15:04:05 -0700 MST"), Gauges: []struct{}{}, Points: []struct{}{},
		Samples: []struct{}{}, Counters: []counter{}}
	for _, name := range names {
		out.Counters = append(out.Counters, counter{"vault.agent." + name, n[name], n[name]})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // to a client that may have gone
}
