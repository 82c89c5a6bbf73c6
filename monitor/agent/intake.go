package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
)

// prepare fills in what an event of a program on this host leaves out, and says what is wrong with it. An event of
// another entity becomes one of a proxy entity: its check names it, and the agent stands for itself.
func (a *Agent) prepare(e *monitor.Event) error {
	if e.Check == nil && e.Metrics == nil {
		return errors.New("event must contain a check or metrics")
	}
	now := a.cfg.Now().Unix()
	orDefault(&e.Timestamp, now)
	if len(e.ID) == 0 {
		e.ID = newID()
	}
	e.Namespace = a.cfg.Namespace
	if c := e.Check; c != nil {
		orDefault(&c.Interval, 1)
		orDefault(&c.Namespace, a.cfg.Namespace)
		orDefault(&c.Executed, now)
		c.ProcessedBy = a.cfg.Name
		if e.Entity != nil && e.Entity.Name != "" && e.Entity.Name != a.cfg.Name {
			c.ProxyEntityName = e.Entity.Name
		}
		if err := c.Validate(); err != nil {
			return fmt.Errorf("check is invalid: %w", err)
		}
		e.Sequence = a.runner.sequence(c.Name)
	}
	e.Entity = a.entity.get()
	return e.Validate()
}

// hand gives a prepared event to an outbox.
func (a *Agent) hand(ctx context.Context, o *outbox, e *monitor.Event) error {
	return o.put(ctx, tagproto.Append(nil, e))
}

// legacyResult is a check result as clients of Sensu 1.x write it to the sockets.
type legacyResult struct {
	Name        string   `json:"name"`
	Output      string   `json:"output"`
	Status      uint32   `json:"status"`
	Source      string   `json:"source"` // the entity, where it is not this host
	Client      string   `json:"client"` // the same
	Command     string   `json:"command"`
	Subscribers []string `json:"subscribers"`
	Interval    uint32   `json:"interval"`
	TTL         int64    `json:"ttl"`
	Timeout     uint32   `json:"timeout"`
	Issued      int64    `json:"issued"`
	Executed    int64    `json:"executed"`
	Duration    float64  `json:"duration"`
	Handler     string   `json:"handler"`
	Handlers    []string `json:"handlers"`
}

// legacyEvent makes an event of a result of Sensu 1.x.
func legacyEvent(text []byte) (*monitor.Event, error) {
	var r legacyResult
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, err
	}
	switch {
	case r.Name == "":
		return nil, errors.New("a check name must be provided")
	case r.Output == "":
		return nil, errors.New("a check output must be provided")
	}
	e := &monitor.Event{Check: &monitor.Check{
		Meta: monitor.Meta{Name: r.Name}, Status: r.Status, Command: r.Command, Subscriptions: r.Subscribers,
		Interval: r.Interval, TTL: r.TTL, Timeout: r.Timeout,
		Issued: r.Issued, Executed: r.Executed, Duration: r.Duration, Output: r.Output, Handlers: r.Handlers,
	}}
	if r.Handler != "" {
		e.Check.Handlers = append(e.Check.Handlers, r.Handler)
	}
	if orDefault(&r.Source, r.Client); r.Source != "" {
		e.Entity = &monitor.Entity{Meta: monitor.Meta{Name: r.Source}}
	}
	return e, nil
}

// isPing reports whether a message to a socket only asks whether somebody is there.
func isPing(text []byte) bool { return string(bytes.TrimSpace(text)) == "ping" }
