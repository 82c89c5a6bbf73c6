// Package query holds prepared queries: what defines one, how a name finds one and
// its templates are filled in, and which instances it picks (contract section 12).
//
// It is pure: a Definition and a State in, instances out. Order among instances,
// other datacenters and rights are the caller's.
package query

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/pattern"
)

// TemplatePrefix is the only type of template.
const TemplatePrefix = "name_prefix_match"

// Hidden stands for a token that the reader may not see.
const Hidden = "<hidden>"

// maxNameBytes bounds names: each prefix of one is looked up.
const maxNameBytes = 255

// Definition is a prepared query as it is stored and shown.
type Definition struct {
	ID       string
	Name     string
	Session  string
	Token    string
	Template Template
	Service  Service
	DNS      DNS
}

// Template makes a query answer for all names that begin with its own.
type Template struct {
	Type            string
	Regexp          string
	RemoveEmptyTags bool
}

// Service says which instances are meant.
type Service struct {
	Service        string
	SamenessGroup  string `json:",omitempty"`
	Failover       Failover
	OnlyPassing    bool
	IgnoreCheckIDs []string
	Near           string
	Tags           []string
	NodeMeta       map[string]string
	ServiceMeta    map[string]string
	Connect        bool
	Peer           string
}

// Failover says where to look when no instance is left here.
type Failover struct {
	NearestN    int
	Datacenters []string
	Targets     []Target
}

// Target is one place of a failover.
type Target struct {
	Peer       string `json:",omitempty"`
	Datacenter string `json:",omitempty"`
}

// DNS is how DNS answers are given.
type DNS struct{ TTL string }

// IsTemplate tells whether the query stands for many names.
func (d *Definition) IsTemplate() bool { return d.Template.Type != "" }

// Validate returns what is wrong, in the contract's words.
func (d *Definition) Validate() error {
	switch {
	case d.Token == Hidden:
		return fmt.Errorf("Bad Token '%s', it looks like a query definition with a redacted token was submitted",
			Hidden) //nolint:staticcheck // the contract's text
	case len(d.Name) > maxNameBytes:
		return fmt.Errorf("Name is longer than %d bytes", maxNameBytes) //nolint:staticcheck // begins with a field's name
	case d.Template.Type != "" && d.Template.Type != TemplatePrefix:
		return fmt.Errorf("bad Template.Type '%s'", d.Template.Type)
	case d.Template.Type == "" && (d.Template.Regexp != "" || d.Template.RemoveEmptyTags):
		return errors.New(
			"Template.Type is required with other fields of Template") //nolint:staticcheck // begins with a field's name
	case d.Service.Service == "":
		return errors.New("Must provide a Service name to query") //nolint:staticcheck // the contract's text
	case d.Service.Failover.NearestN < 0:
		return fmt.Errorf("Bad NearestN '%d', must be >= 0",
			d.Service.Failover.NearestN) //nolint:staticcheck // the contract's text
	case len(d.Service.Failover.Targets) > 0 && (d.Service.Failover.NearestN > 0 ||
		len(d.Service.Failover.Datacenters) > 0):
		return errors.New(
			"Targets cannot be populated with NearestN or Datacenters") //nolint:staticcheck // the contract's text
	case d.Service.SamenessGroup != "":
		return errors.New(
			"Service.SamenessGroup: sameness groups are an enterprise feature") //nolint:staticcheck // a field's name
	}
	for _, meta := range []map[string]string{d.Service.NodeMeta, d.Service.ServiceMeta} {
		for k, v := range meta {
			if k == "" || len(k) > 128 || len(v) > 512 {
				return fmt.Errorf("bad metadata %q: keys have 1 to 128 bytes, values at most 512", k)
			}
		}
	}
	if d.DNS.TTL != "" {
		ttl, err := time.ParseDuration(d.DNS.TTL)
		if err != nil {
			return fmt.Errorf("Bad DNS TTL '%s': %w", d.DNS.TTL, err) //nolint:staticcheck // the contract's text
		}
		if ttl < 0 {
			return fmt.Errorf("DNS TTL '%s', must be >=0", d.DNS.TTL) //nolint:staticcheck // the contract's text
		}
		if ttl > math.MaxInt32*time.Second { // RFC 2181
			return fmt.Errorf("DNS TTL '%s', must be at most %d s", d.DNS.TTL,
				math.MaxInt32) //nolint:staticcheck // as its neighbours
		}
	}
	if d.IsTemplate() {
		_, err := d.Render(d.Name)
		return err
	}
	return nil
}

// TTL is the query's own time to live for DNS; negative when it has none.
func (d *Definition) TTL() time.Duration {
	if ttl, err := time.ParseDuration(d.DNS.TTL); err == nil {
		return ttl
	}
	return -1
}

// RecordName is the second key of the query's record: statics and templates may
// have the same name, and one template may have none.
func (d *Definition) RecordName() string {
	switch {
	case d.IsTemplate():
		return "t" + strings.ToLower(d.Name)
	case d.Name != "":
		return "n" + strings.ToLower(d.Name)
	}
	return ""
}

// Encode returns what is stored.
func (d *Definition) Encode() ([]byte, error) { return json.Marshal(d) }

// Load reads a stored query.
func Load(r *catalog.Record) (*Definition, error) {
	d := &Definition{}
	return d, json.Unmarshal(r.Value, d)
}

// Find returns the query of that ID or name: the static one, else the template with
// the longest name that the asked one begins with, filled in. nil when there is none.
func Find(st *statestore.State, asked string) (*Definition, error) {
	if r := st.Record(catalog.RecordQuery, asked); r != nil {
		d, err := Load(r)
		if err == nil && d.IsTemplate() {
			return d.Render("")
		}
		return d, err
	}
	if asked == "" || len(asked) > maxNameBytes {
		return nil, nil
	}
	name := strings.ToLower(asked)
	if r := st.RecordByName(catalog.RecordQuery, "n"+name); r != nil {
		return Load(r)
	}
	for n := len(name); n >= 0; n-- {
		if r := st.RecordByName(catalog.RecordQuery, "t"+name[:n]); r != nil {
			d, err := Load(r)
			if err != nil {
				return nil, err
			}
			return d.Render(asked)
		}
	}
	return nil, nil
}

// Render fills a template in for the name that was asked for.
func (d *Definition) Render(name string) (*Definition, error) {
	r := renderer{full: name, prefix: d.Name, suffix: name[min(len(d.Name), len(name)):]}
	if d.Template.Regexp != "" {
		re, err := pattern.Compile(d.Template.Regexp)
		if err != nil {
			return nil, fmt.Errorf("bad Regexp: %w", err)
		}
		r.matches = re.FindStringSubmatch(name)
		r.groups = re.NumSubexp()
	}
	out := *d
	s := &out.Service
	s.Service = r.text(s.Service)
	s.Near = r.text(s.Near)
	s.Tags = r.list(s.Tags)
	s.IgnoreCheckIDs = r.list(s.IgnoreCheckIDs)
	s.Failover.Datacenters = r.list(s.Failover.Datacenters)
	s.NodeMeta, s.ServiceMeta = r.values(s.NodeMeta), r.values(s.ServiceMeta)
	if d.Template.RemoveEmptyTags {
		kept := s.Tags[:0]
		for _, t := range s.Tags {
			if t != "" && t != "!" {
				kept = append(kept, t)
			}
		}
		s.Tags = kept
	}
	return &out, r.err
}

// renderer fills in ${...}; the first error sticks.
type renderer struct {
	full, prefix, suffix string
	matches              []string
	groups               int
	err                  error
}

func (r *renderer) text(in string) string {
	var out strings.Builder
	for {
		i := strings.Index(in, "${")
		if i < 0 {
			out.WriteString(in)
			return out.String()
		}
		if i > 0 && in[i-1] == '$' { // $${ is a plain ${
			out.WriteString(in[:i-1] + "${")
			in = in[i+2:]
			continue
		}
		out.WriteString(in[:i])
		expr, rest, ok := strings.Cut(in[i+2:], "}")
		if !ok {
			r.fail(fmt.Errorf("bad format '%s': ${ is not closed", in))
			return out.String()
		}
		out.WriteString(r.value(strings.TrimSpace(expr)))
		in = rest
	}
}

func (r *renderer) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *renderer) value(expr string) string {
	switch expr {
	case "name.full":
		return r.full
	case "name.prefix":
		return r.prefix
	case "name.suffix":
		return r.suffix
	case "agent.segment":
		return ""
	}
	var n int
	if _, err := fmt.Sscanf(strings.ReplaceAll(expr, " ", ""), "match(%d)", &n); err != nil || n < 0 {
		r.fail(fmt.Errorf("bad format '${%s}': expected name.full, name.prefix, name.suffix, agent.segment or match(N)",
			expr))
		return ""
	}
	if n < len(r.matches) {
		return r.matches[n]
	}
	return "" // as documented: a group that is not there is empty
}

func (r *renderer) list(in []string) []string {
	if in == nil {
		return nil
	}
	out := make([]string, len(in))
	for i, v := range in {
		out[i] = r.text(v)
	}
	return out
}

func (r *renderer) values(in map[string]string) map[string]string {
	if in == nil {
		return nil
	}
	out := make(map[string]string, len(in))
	for k, v := range in {
		out[k] = r.text(v)
	}
	return out
}

// Instance is one that a query picked.
type Instance struct {
	Node    *catalog.Node
	Service *catalog.Service
	Checks  []*catalog.Check
	Status  catalog.Health // the worst of the checks that count
}

// Pick returns the instances that the query means, in the catalog's order.
func (s *Service) Pick(st *statestore.State) []Instance {
	seq := st.Instances
	if s.Connect {
		seq = st.ConnectInstances
	}
	var list []Instance
	for v := range seq(s.Service) {
		n := st.Node(v.Node)
		if n == nil || !hasAll(n.Meta, s.NodeMeta) || !hasAll(v.Meta, s.ServiceMeta) || !s.tagged(v.Tags) {
			continue
		}
		in := Instance{Node: n, Service: v}
		for c := range st.NodeChecks(v.Node) {
			in.add(s, c)
		}
		for c := range st.InstanceChecks(v.Node, v.ID) {
			in.add(s, c)
		}
		if in.Status == catalog.Critical || s.OnlyPassing && in.Status != catalog.Passing {
			continue
		}
		list = append(list, in)
	}
	return list
}

func (i *Instance) add(s *Service, c *catalog.Check) {
	i.Checks = append(i.Checks, c)
	for _, id := range s.IgnoreCheckIDs {
		if id == c.ID {
			return
		}
	}
	i.Status = max(i.Status, c.Status)
}

func hasAll(have, want map[string]string) bool {
	for k, v := range want {
		if have[k] != v {
			return false
		}
	}
	return true
}

// tagged tells whether tags has all that are wanted and none that begins with "!".
func (s *Service) tagged(tags []string) bool {
	for _, want := range s.Tags {
		want, not := strings.CutPrefix(want, "!")
		found := false
		for _, t := range tags {
			found = found || strings.EqualFold(t, want)
		}
		if found == not {
			return false
		}
	}
	return true
}
