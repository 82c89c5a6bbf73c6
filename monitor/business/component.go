package business

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/selector"
)

// Types of objects that this package knows.
const (
	Components = "service-components"
	Templates  = "rule-templates"
)

// Bounds of a component.
const (
	maxServices = 64
	maxRules    = 32
	maxQueries  = 16
)

// component is a ServiceComponent, read.
type component struct {
	Services  []string       `json:"services"` // names of entities
	Interval  uint32         `json:"interval"` // seconds
	Cron      string         `json:"cron"`
	Query     []query        `json:"query"`
	Rules     []rule         `json:"rules"`
	Handlers  []string       `json:"handlers"`
	Pipelines []*monitor.Ref `json:"pipelines"`

	schedule       *monitor.Schedule
	labels, fields []selector.Selector
}

type query struct {
	Type  string `json:"type"` // fieldSelector or labelSelector
	Value string `json:"value"`
}

type rule struct {
	Template  string                     `json:"template"`
	Name      string                     `json:"name"` // of the check of the events that it makes
	Arguments map[string]json.RawMessage `json:"arguments"`
}

// strictly decodes a spec whose fields are all known.
func strictly(spec []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(spec))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("spec: %w", err)
	}
	return nil
}

// readComponent reads a component and says what is wrong with it. fields are those that queries may name.
func readComponent(p *monitor.Provider, fields Fields) (*component, error) {
	c := new(component)
	if err := strictly(p.Spec, c); err != nil {
		return nil, err
	}
	var err error
	if c.schedule, err = monitor.NewSchedule(p.Name, c.Interval, c.Cron); err != nil {
		return nil, fmt.Errorf("spec: interval, cron: %w", err)
	}
	switch {
	case len(c.Services) == 0 || len(c.Services) > maxServices:
		return nil, fmt.Errorf("spec: services must name from 1 to %d entities", maxServices)
	case len(c.Query) == 0 || len(c.Query) > maxQueries:
		return nil, fmt.Errorf("spec: query must have from 1 to %d selectors", maxQueries)
	case len(c.Rules) == 0 || len(c.Rules) > maxRules:
		return nil, fmt.Errorf("spec: rules must have from 1 to %d rules", maxRules)
	}
	for i, name := range c.Services {
		if err := monitor.ValidateName(name); err != nil {
			return nil, fmt.Errorf("spec: services[%d]: %w", i, err)
		}
	}
	for i, r := range c.Rules {
		if err := monitor.ValidateName(r.Name); err != nil {
			return nil, fmt.Errorf("spec: rules[%d]: name: %w", i, err)
		}
		if err := monitor.ValidateName(r.Template); err != nil {
			return nil, fmt.Errorf("spec: rules[%d]: template: %w", i, err)
		}
		if slices.ContainsFunc(c.Rules[:i], func(other rule) bool { return other.Name == r.Name }) {
			return nil, fmt.Errorf("spec: rules[%d]: name %q is that of another rule", i, r.Name)
		}
	}
	for i, q := range c.Query {
		if err := c.selects(q, fields); err != nil {
			return nil, fmt.Errorf("spec: query[%d]: %w", i, err)
		}
	}
	return c, nil
}

func (c *component) selects(q query, fields Fields) error {
	s, err := selector.Parse(q.Value)
	switch {
	case err != nil:
		return fmt.Errorf("value: %w", err)
	case s.Empty():
		return errors.New("value must be set")
	case q.Type == "labelSelector":
		c.labels = append(c.labels, s)
		return nil
	case q.Type != "fieldSelector":
		return fmt.Errorf("type %q is neither fieldSelector nor labelSelector", q.Type)
	}
	for _, name := range s.Names() {
		if fields[name] == nil {
			return fmt.Errorf("value: %q is no field of events", name)
		}
	}
	c.fields = append(c.fields, s)
	return nil
}

// own tells whether an event is one that the component makes.
func (c *component) own(entity, check string) bool {
	return slices.Contains(c.Services, entity) &&
		slices.ContainsFunc(c.Rules, func(r rule) bool { return r.Name == check })
}

// results names the events that the component makes, as ENTITY/CHECK.
func (c *component) results() (names []string) {
	for _, service := range c.Services {
		for _, r := range c.Rules {
			names = append(names, service+"/"+r.Name)
		}
	}
	return names
}
