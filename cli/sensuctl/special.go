package sensuctl

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client/sensu"
	"github.com/spf13/cobra"
)

// special are the commands that one type alone has.
func (s *Ctl) special(t *kind) []*cobra.Command {
	switch t.Type {
	case "CheckConfig":
		return append(changes{s}.setters(t), s.execute(), s.make(t, checkFields), changes{s}.update(t, checkFields))
	case "HookConfig", "Mutator":
		return []*cobra.Command{s.make(t, hookFields), changes{s}.update(t, hookFields)}
	case "Handler":
		return []*cobra.Command{s.make(t, handlerFields), changes{s}.update(t, handlerFields)}
	case "EventFilter":
		return []*cobra.Command{s.make(t, filterFields), changes{s}.update(t, filterFields)}
	case "Asset":
		return []*cobra.Command{s.make(t, assetFields), changes{s}.update(t, assetFields)}
	case "Entity":
		return []*cobra.Command{s.make(t, entityFields), changes{s}.update(t, entityFields)}
	case "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding":
		return []*cobra.Command{changes{s}.binds(t)}
	case "Namespace":
		return []*cobra.Command{s.makeNamespace(t)}
	case "Event":
		return []*cobra.Command{s.resolve(t)}
	case "Silenced":
		return []*cobra.Command{s.silence(t), changes{s}.update(t, silenceFields)}
	case "User":
		return accounts{s}.users(t)
	case "APIKey":
		return []*cobra.Command{accounts{s}.grant(t)}
	}
	return nil
}

// field is one that a `create` of a type takes as a flag.
type field struct {
	name, in, use string // in: the field of the resource
	kind          byte   // s(tring), n(umber), l(ist), b(ool)
}

var checkFields = []field{{"command", "command", "the command the check runs", 's'},
	{"cron", "cron", "the schedule as a cron expression", 's'},
	{"handlers", "handlers", "comma-separated handlers", 'l'}, {"interval", "interval", "seconds between runs", 'n'},
	{"output-metric-format", "output_metric_format", "format of metrics in the output", 's'},
	{"output-metric-handlers", "output_metric_handlers", "comma-separated handlers of metrics", 'l'},
	{"proxy-entity-name", "proxy_entity_name", "the proxy entity of the result", 's'},
	{"publish", "publish", "publish check requests", 'b'}, {"round-robin", "round_robin", "one agent a run", 'b'},
	{"runtime-assets", "runtime_assets", "comma-separated assets", 'l'},
	{"stdin", "stdin", "the event at the command's stdin", 'b'},
	{"subscriptions", "subscriptions", "comma-separated subscriptions", 'l'},
	{"timeout", "timeout", "seconds until a run is ended", 'n'},
	{"ttl", "ttl", "seconds until a result is overdue", 'n'}}

var hookFields = []field{{"command", "command", "the command", 's'},
	{"timeout", "timeout", "seconds until it is ended", 'n'},
	{"runtime-assets", "runtime_assets", "comma-separated assets", 'l'}}

var handlerFields = []field{{"type", "type", "pipe, tcp, udp or set", 's'},
	{"command", "command", "the command of a pipe", 's'},
	{"filters", "filters", "comma-separated filters", 'l'},
	{"handlers", "handlers", "comma-separated handlers of a set", 'l'},
	{"mutator", "mutator", "the mutator", 's'}, {"timeout", "timeout", "seconds until it is ended", 'n'},
	{"runtime-assets", "runtime_assets", "comma-separated assets", 'l'}}

var filterFields = []field{{"action", "action", "allow or deny", 's'},
	{"expressions", "expressions", "comma-separated expressions", 'l'}}

var assetFields = []field{{"url", "url", "the asset's URL", 's'}, {"sha512", "sha512", "its checksum", 's'}}

var entityFields = []field{{"entity-class", "entity_class", "proxy, or another class", 's'},
	{"subscriptions", "subscriptions", "comma-separated subscriptions", 'l'}}

var silenceFields = []field{{"reason", "reason", "why", 's'},
	{"expire", "expire", "seconds until it ends; -1 is never", 'n'},
	{"expire-on-resolve", "expire_on_resolve", "end it when the incident ends", 'b'}}

// make makes `create NAME` of a type, from flags.
func (s *Ctl) make(t *kind, fields []field) *cobra.Command {
	var c *cobra.Command
	c = s.act("create NAME", "Create one of the "+t.Plural, command.Between(1, 1, "NAME"),
		func(ctx context.Context, cl *sensu.Client, p *profile, args []string) error {
			spec := map[string]any{"metadata": map[string]string{"name": args[0], "namespace": p.Namespace}}
			if t.Type == "CheckConfig" {
				spec["publish"] = true
			}
			f := c.Flags()
			for _, x := range fields {
				if f.Changed(x.name) {
					spec[x.in] = x.value(f)
				}
			}
			return s.send(ctx, cl, "POST", t.path(p, ""), spec, "Created")
		})
	flagsOf(c.Flags(), fields)
	return c
}

// send writes an object and says so.
func (s *Ctl) send(ctx context.Context, cl *sensu.Client, method, path string, body any, done string) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	if _, _, err := cl.Do(ctx, method, path, nil, raw); err != nil {
		return err
	}
	return s.env.Printf("%s\n", done)
}

func (s *Ctl) makeNamespace(t *kind) *cobra.Command {
	return s.act("create NAME", "Create a namespace", command.Between(1, 1, "NAME"),
		func(ctx context.Context, cl *sensu.Client, p *profile, args []string) error {
			return s.send(ctx, cl, "PUT", t.path(p, args[0]), map[string]string{"name": args[0]}, "Created")
		})
}

func (s *Ctl) execute() *cobra.Command {
	var subscriptions []string
	var reason string
	c := s.act("execute NAME", "Run a check now", command.Between(1, 1, "NAME"),
		func(ctx context.Context, cl *sensu.Client, p *profile, args []string) error {
			return s.send(ctx, cl, "POST", typeNamed("check").path(p, args[0])+"/execute",
				map[string]any{"check": args[0], "subscriptions": subscriptions, "reason": reason}, "Issued")
		})
	c.Flags().StringSliceVar(&subscriptions, "subscriptions", nil, "whose agents; default the check's own")
	c.Flags().StringVarP(&reason, "reason", "r", "", "reason, for the log")
	return c
}

func (s *Ctl) resolve(t *kind) *cobra.Command {
	return s.act("resolve ENTITY CHECK", "Resolve an event", command.Between(2, 2, "ENTITY CHECK"),
		func(ctx context.Context, cl *sensu.Client, p *profile, args []string) error {
			path := t.path(p, strings.Join(args, "/"))
			raw, _, err := cl.Do(ctx, "GET", path, nil, nil)
			if err != nil {
				return err
			}
			m, err := object(raw)
			if err != nil {
				return err
			}
			check, ok := m["check"].(map[string]any)
			if !ok {
				return fmt.Errorf("the event of %s has no check", args[0])
			}
			now := time.Now().Unix()
			check["status"], check["output"] = 0, "Resolved manually with sensuctl"
			check["executed"], m["timestamp"] = now, now
			delete(m, "id")
			return s.send(ctx, cl, "PUT", path, m, "Resolved")
		})
}

func (s *Ctl) silence(t *kind) *cobra.Command {
	var check, subscription, reason, begin string
	var expire int64
	var onResolve bool
	c := s.act("create", "Silence a subscription, a check, or both", command.Between(0, 0, "flags only"),
		func(ctx context.Context, cl *sensu.Client, p *profile, _ []string) error {
			if check == "" && subscription == "" {
				return command.Usagef("--subscription or --check is needed")
			}
			name := sensu.SilenceName(subscription, check)
			body := map[string]any{"subscription": subscription, "check": check, "reason": reason, "expire": expire,
				"expire_on_resolve": onResolve, "metadata": map[string]string{"name": name, "namespace": p.Namespace}}
			if begin != "" && begin != "now" {
				at, err := time.Parse(time.RFC3339, begin)
				if err != nil {
					return command.Usagef("--begin %s is not a time such as 2026-01-02T15:04:05Z", begin)
				}
				body["begin"] = at.Unix()
			}
			return s.send(ctx, cl, "PUT", t.path(p, name), body, "Created")
		})
	f := c.Flags()
	f.StringVarP(&check, "check", "c", "", "check to silence")
	f.StringVarP(&subscription, "subscription", "s", "", "subscription to silence; entity:NAME is one entity")
	f.StringVarP(&reason, "reason", "r", "", "why")
	f.StringVarP(&begin, "begin", "b", "", "when it begins")
	f.Int64VarP(&expire, "expire", "e", -1, "seconds until it ends; -1 is never")
	f.BoolVarP(&onResolve, "expire-on-resolve", "x", false, "end it when the incident ends")
	return c
}

// accounts are the commands about users and their keys.
type accounts struct{ *Ctl }

func (s accounts) users(t *kind) []*cobra.Command {
	var password, groups, fresh string
	create := s.act("create NAME", "Create a user", command.Between(1, 1, "NAME"),
		func(ctx context.Context, cl *sensu.Client, p *profile, args []string) error {
			if password == "" {
				return command.Usagef("--password is needed")
			}
			body := map[string]any{"username": args[0], "password": password, "groups": split(groups)}
			return s.send(ctx, cl, "PUT", t.path(p, args[0]), body, "Created")
		})
	create.Flags().StringVar(&password, "password", "", "password")
	create.Flags().StringVarP(&groups, "groups", "g", "", "comma-separated groups")
	change := s.act("change-password NAME", "Change a user's password", command.Between(1, 1, "NAME"),
		func(ctx context.Context, cl *sensu.Client, p *profile, args []string) error {
			if fresh == "" || password == "" {
				return command.Usagef("--current-password and --new-password are needed; an administrator has " +
					"reset-password")
			}
			return s.send(ctx, cl, "PUT", t.path(p, args[0])+"/change_password",
				map[string]string{"username": args[0], "password": password, "password_new": fresh}, "Updated")
		})
	change.Flags().StringVar(&fresh, "new-password", "", "new password")
	change.Flags().StringVar(&password, "current-password", "", "current password")
	reset := s.act("reset-password NAME", "Give a user another password", command.Between(1, 1, "NAME"),
		func(ctx context.Context, cl *sensu.Client, p *profile, args []string) error {
			if fresh == "" {
				return command.Usagef("--new-password is needed")
			}
			return s.send(ctx, cl, "PUT", t.path(p, args[0])+"/reset_password",
				map[string]string{"username": args[0], "password": fresh}, "Updated")
		})
	reset.Flags().StringVar(&fresh, "new-password", "", "new password")
	off := s.act("disable NAME", "Disable a user", command.Between(1, 1, "NAME"),
		func(ctx context.Context, cl *sensu.Client, p *profile, args []string) error {
			if _, _, err := cl.Do(ctx, "DELETE", t.path(p, args[0]), nil, nil); err != nil {
				return err
			}
			return s.env.Printf("Disabled\n")
		})
	off.Flags().Bool("skip-confirm", false, "do not ask")
	return []*cobra.Command{create, change, reset, off,
		s.member("reinstate NAME", "Enable a disabled user", 1, "PUT", "/reinstate", "Reinstated"),
		s.setGroups(t), s.member("remove-groups NAME", "Take a user out of all groups", 1, "DELETE", "/groups", "Removed"),
		s.member("add-group NAME GROUP", "Add a user to a group", 2, "PUT", "/groups/", "Added"),
		s.member("remove-group NAME GROUP", "Take a user out of a group", 2, "DELETE", "/groups/", "Removed")}
}

func (s accounts) setGroups(t *kind) *cobra.Command {
	return s.act("set-groups NAME GROUP[,GROUP...]", "Set the groups of a user", command.Between(2, 2, "NAME GROUPS"),
		func(ctx context.Context, cl *sensu.Client, p *profile, args []string) error {
			return s.patch(ctx, cl, t.path(p, args[0]), map[string]any{"groups": split(args[1])}, "Updated")
		})
}

// member makes a command about a user, and the groups.
func (s accounts) member(use, short string, words int, method, below, done string) *cobra.Command {
	return s.act(use, short, command.Between(words, words, use),
		func(ctx context.Context, cl *sensu.Client, p *profile, args []string) error {
			path := typeNamed("user").path(p, args[0]) + below
			if words == 2 {
				path += args[1]
			}
			if _, _, err := cl.Do(ctx, method, path, nil, nil); err != nil {
				return err
			}
			return s.env.Printf("%s\n", done)
		})
}

func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

func (s accounts) grant(t *kind) *cobra.Command {
	return s.act("grant USER", "Make an API key of a user", command.Between(1, 1, "USER"),
		func(ctx context.Context, cl *sensu.Client, p *profile, args []string) error {
			body, err := json.Marshal(map[string]string{"username": args[0]})
			if err != nil {
				return err
			}
			raw, h, err := cl.Do(ctx, "POST", t.path(p, ""), nil, body)
			if err != nil {
				return err
			}
			if at := h.Get("Location"); at != "" {
				return s.env.Printf("Created: %s\n", at)
			}
			return s.env.Printf("Created: %s\n", bytes.TrimSpace(raw))
		})
}

func (s *Ctl) cluster(_ *command.Env, c *cobra.Command) {
	show := func(use, short, path string) *cobra.Command {
		x := s.act(use, short, command.Between(0, 0, "no arguments"),
			func(ctx context.Context, cl *sensu.Client, _ *profile, _ []string) error {
				raw, _, err := cl.Do(ctx, "GET", path, nil, nil)
				if err != nil {
					return err
				}
				return command.WriteJSON(s.env.Out, json.RawMessage(raw), false)
			})
		s.formatFlag(x)
		return x
	}
	command.Group(c, show("health", "Show the health of the cluster", "/health"),
		show("id", "Show the cluster's ID", "/api/core/v2/cluster/id"),
		show("member-list", "List the members of the cluster", "/api/core/v2/cluster/members"))
}
