package sensucmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client/sensu"
	"github.com/spf13/cobra"
)

// check is a check's configuration as far as it is printed.
type check struct {
	Metadata                struct{ Name, Namespace string }
	Command, Cron           string
	Interval, Timeout       uint32
	TTL                     int64
	Publish                 bool
	RoundRobin              bool   `json:"round_robin"`
	ProxyEntityName         string `json:"proxy_entity_name"`
	Subscriptions, Handlers []string
	RuntimeAssets           []string `json:"runtime_assets"`
}

func (c *check) schedule() string {
	if c.Cron != "" {
		return c.Cron
	}
	return (time.Duration(c.Interval) * time.Second).String()
}

// Checks builds `checks`.
func Checks(e *command.Env, c *cobra.Command) {
	command.Group(c,
		list(e, "checks", "checks", []string{"Name", "Command", "Schedule", "Subscriptions", "Handlers", "Published"},
			func(c *check) []string {
				return []string{c.Metadata.Name, line(c.Command), c.schedule(), strings.Join(c.Subscriptions, ","),
					strings.Join(c.Handlers, ","), yes(c.Publish)}
			}),
		info(e, "checks", "NAME", "Show one check", 1, func(c *check, f *command.Fields) {
			f.Add("Name", c.Metadata.Name)
			f.Add("Namespace", c.Metadata.Namespace)
			f.Add("Command", c.Command)
			f.Add("Schedule", c.schedule())
			f.Add("Published", yes(c.Publish))
			f.Add("Subscriptions", strings.Join(c.Subscriptions, ", "))
			f.Add("Handlers", strings.Join(c.Handlers, ", "))
			f.Add("Runtime assets", strings.Join(c.RuntimeAssets, ", "))
			f.Add("Round robin", yes(c.RoundRobin))
			f.Add("Proxy entity", c.ProxyEntityName)
			f.Add("Timeout", (time.Duration(c.Timeout) * time.Second).String())
			f.Add("TTL", (time.Duration(c.TTL) * time.Second).String())
		}),
		execute(e),
		remove(e, "checks", "NAME", "Delete a check", 1, joined),
	)
}

// execute makes `execute`: a check now.
func execute(e *command.Env) *cobra.Command {
	var subscriptions []string
	var reason string
	return act(e, "execute NAME", "Run a check on its agents now", command.Between(1, 1, "NAME"),
		func(c *cobra.Command, _ *dial) {
			c.Flags().StringSliceVar(&subscriptions, "subscriptions", nil, "whose agents; default the check's own subscriptions")
			c.Flags().StringVar(&reason, "reason", "", "reason, for the log")
		}, func(ctx context.Context, d *dial, cl *sensu.Client, args []string) error {
			body, err := json.Marshal(map[string]any{"check": args[0], "subscriptions": subscriptions, "reason": reason})
			if err != nil {
				return err
			}
			if _, _, err := cl.Do(ctx, "POST", d.path("checks", args[0])+"/execute", nil, body); err != nil {
				return absent(err, "checks", args)
			}
			return d.env.Printf("Asked for %s\n", args[0])
		})
}

// entity is an entity as far as it is printed.
type entity struct {
	Metadata      struct{ Name, Namespace string }
	Class         string `json:"entity_class"`
	Subscriptions []string
	LastSeen      int64 `json:"last_seen"`
	Deregister    bool
	AgentVersion  string `json:"sensu_agent_version"`
	System        struct {
		Hostname, OS, Platform, Arch string
		PlatformVersion              string `json:"platform_version"`
	}
}

// Entities builds `entities`.
func Entities(e *command.Env, c *cobra.Command) {
	command.Group(c,
		list(e, "entities", "entities", []string{"Name", "Class", "OS", "Subscriptions", "Last seen"},
			func(x *entity) []string {
				return []string{x.Metadata.Name, x.Class, x.System.OS, strings.Join(x.Subscriptions, ","), ago(x.LastSeen)}
			}),
		info(e, "entities", "NAME", "Show one entity", 1, func(x *entity, f *command.Fields) {
			f.Add("Name", x.Metadata.Name)
			f.Add("Namespace", x.Metadata.Namespace)
			f.Add("Class", x.Class)
			f.Add("Subscriptions", strings.Join(x.Subscriptions, ", "))
			f.Add("Last seen", at(x.LastSeen))
			f.Add("Hostname", x.System.Hostname)
			f.Add("System", strings.TrimSpace(strings.Join([]string{x.System.OS, x.System.Platform, x.System.PlatformVersion,
				x.System.Arch}, " ")))
			f.Add("Agent", x.AgentVersion)
			f.Add("Deregister", yes(x.Deregister))
		}),
		remove(e, "entities", "NAME", "Delete an entity with its events", 1, joined),
	)
}

// silenced is a silence as far as it is printed.
type silenced struct {
	Metadata                             struct{ Name, Namespace string }
	Subscription, Check, Creator, Reason string
	Expire, Begin                        int64
	ExpireAt                             int64 `json:"expire_at"`
	ExpireOnResolve                      bool  `json:"expire_on_resolve"`
}

func (s *silenced) end(at func(int64) string) string {
	switch {
	case s.ExpireAt != 0 && s.ExpireOnResolve:
		return at(s.ExpireAt) + ", or resolved"
	case s.ExpireAt != 0:
		return at(s.ExpireAt)
	case s.ExpireOnResolve:
		return "resolved"
	}
	return "never"
}

// Silence builds `silence`.
func Silence(e *command.Env, c *cobra.Command) {
	command.Group(c,
		list(e, "silenced", "silences", []string{"Name", "Begins", "Ends", "Creator", "Reason"}, func(s *silenced) []string {
			return []string{s.Metadata.Name, ago(s.Begin), s.end(ago), s.Creator, line(s.Reason)}
		}),
		info(e, "silenced", "NAME", "Show one silence", 1, func(s *silenced, f *command.Fields) {
			f.Add("Name", s.Metadata.Name)
			f.Add("Namespace", s.Metadata.Namespace)
			f.Add("Subscription", s.Subscription)
			f.Add("Check", s.Check)
			f.Add("Begins", at(s.Begin))
			f.Add("Ends", s.end(at))
			f.Add("Creator", s.Creator)
			f.Add("Reason", s.Reason)
		}),
		silenceCreate(e),
		remove(e, "silenced", "NAME", "End a silence", 1, joined),
	)
}

// silenceCreate makes `create`: a silence of a subscription, an entity, a check, or a check of one of these.
func silenceCreate(e *command.Env) *cobra.Command {
	var s struct {
		subscription, entity, check, reason string
		expire                              time.Duration
		begin                               string
		onResolve                           bool
	}
	return act(e, "create", "Silence a subscription, an entity or a check", command.Between(0, 0, "flags only"),
		func(c *cobra.Command, _ *dial) {
			f := c.Flags()
			f.StringVar(&s.subscription, "subscription", "", "subscription to silence")
			f.StringVar(&s.entity, "entity", "", "entity to silence")
			f.StringVar(&s.check, "check", "", "check to silence")
			f.StringVar(&s.reason, "reason", "", "why")
			f.DurationVar(&s.expire, "expire", 0, "how long, such as 2h; default until it is deleted")
			f.StringVar(&s.begin, "begin", "", "when, as 2026-01-02T15:04:05Z; default now")
			f.BoolVar(&s.onResolve, "expire-on-resolve", false, "end it when the incident ends")
		}, func(ctx context.Context, d *dial, cl *sensu.Client, _ []string) error {
			if s.entity != "" && s.subscription != "" {
				return command.Usagef("--entity and --subscription exclude each other")
			}
			if s.entity != "" {
				s.subscription = "entity:" + s.entity
			}
			if s.subscription == "" && s.check == "" {
				return command.Usagef("silence create needs --subscription, --entity or --check")
			}
			if s.expire < 0 || s.expire%time.Second != 0 {
				return command.Usagef("--expire %s must be whole seconds", s.expire)
			}
			body := map[string]any{"subscription": s.subscription, "check": s.check, "reason": s.reason,
				"expire": int64(s.expire / time.Second), "expire_on_resolve": s.onResolve,
				"metadata": map[string]string{"namespace": d.namespace}}
			if s.begin != "" {
				begin, err := time.Parse(time.RFC3339, s.begin)
				if err != nil {
					return command.Usagef("--begin %s is not a time such as 2026-01-02T15:04:05Z", s.begin)
				}
				body["begin"] = begin.Unix()
			}
			b, err := json.Marshal(body)
			if err != nil {
				return err
			}
			name := sensu.SilenceName(s.subscription, s.check)
			if _, _, err := cl.Do(ctx, "POST", d.path("silenced", ""), nil, b); err != nil {
				var refused *sensu.Error
				if errors.As(err, &refused) && refused.Code == codeExists {
					return fmt.Errorf("%s is silenced already: corbel silence info %s", name, strconv.Quote(name))
				}
				return err
			}
			return d.env.Printf("Silenced %s\n", name)
		})
}

// codeExists is the contract's code of what is there already.
const codeExists = 3
