// Package gossipcmd holds the commands around the gossip pool: events, keys and distances.
package gossipcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
	"github.com/spf13/cobra"
)

// adopt gives a built command's arguments, flags and action to c, which has name and text already.
func adopt(c, built *cobra.Command) {
	c.Use, c.Args, c.RunE = built.Use, built.Args, built.RunE
	c.Flags().AddFlagSet(built.Flags())
}

// Event builds `broadcast`, and `event`, the name that Consul has for it.
func Event(e *command.Env, c *cobra.Command) {
	var name, node, service, tag string
	built := command.Act(e, c.Name()+" [PAYLOAD]", "", command.Between(0, 1, "at most one payload"),
		func(ctx context.Context, d *command.Dial, cl *client.Client, args []string) error {
			switch {
			case name == "":
				return command.Usagef("give the event a name with --name")
			case tag != "" && service == "":
				return command.Usagef("--tag needs --service too")
			}
			q := url.Values{}
			for key, value := range map[string]string{"node": node, "service": service, "tag": tag, "dc": d.Q.Datacenter} {
				if value != "" {
					q.Set(key, value)
				}
			}
			var out struct{ ID string }
			if err := cl.Put(ctx, "/v1/event/fire/"+client.Escape(name), q, []byte(strings.Join(args, "")), &out); err != nil {
				return err
			}
			return e.Printf("Event ID: %s\n", out.ID)
		})
	f := built.Flags()
	f.StringVar(&name, "name", "", "name of the event")
	f.StringVar(&node, "node", "", "pattern that nodes' names must match")
	f.StringVar(&service, "service", "", "pattern: only nodes with such a service")
	f.StringVar(&tag, "tag", "", "pattern: only nodes whose service has such a tag")
	adopt(c, built)
}

// ring is what one pool says of its keys.
type ring struct {
	WAN               bool
	Datacenter        string
	Segment           string
	Messages          map[string]string
	Keys, PrimaryKeys map[string]int
	NumNodes          int
}

// keyringFlags are the flags of `keyring`; one of the actions is given.
type keyringFlags struct {
	install, use, remove string
	list, primary, local bool
	relay                int
}

// Keyring builds `keyring`.
func Keyring(e *command.Env, c *cobra.Command) {
	var k keyringFlags
	built := command.Read(e, "keyring", "", command.Between(0, 0, "flags only"),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			return k.run(ctx, e, r, cl)
		})
	f := built.Flags()
	f.StringVar(&k.install, "install", "", "give all members another key")
	f.StringVar(&k.use, "use", "", "encrypt with this key from now on; all members must have it")
	f.StringVar(&k.remove, "remove", "", "remove a key that no member encrypts with")
	f.BoolVar(&k.list, "list", false, "list the keys and how many members have each")
	f.BoolVar(&k.primary, "list-primary", false, "list the keys that members encrypt with")
	f.BoolVar(&k.local, "local-only", false, "with a list: ask only this agent")
	f.IntVar(&k.relay, "relay-factor", 0, "how many other members relay an answer, 0 to 5")
	adopt(c, built)
}

func (k *keyringFlags) run(ctx context.Context, e *command.Env, r *command.Reading, cl *client.Client) error {
	q := url.Values{}
	if k.relay > 0 {
		q.Set("relay-factor", strconv.Itoa(k.relay))
	}
	given := 0
	for _, on := range []bool{k.install != "", k.use != "", k.remove != "", k.list, k.primary} {
		if on {
			given++
		}
	}
	if given != 1 {
		return command.Usagef("keyring needs one of --list, --list-primary, --install, --use and --remove")
	}
	if !k.list && !k.primary {
		for _, act := range []struct {
			key, method, say string
		}{{k.install, http.MethodPost, "Installing new gossip encryption key"},
			{k.use, http.MethodPut, "Changing primary gossip encryption key"},
			{k.remove, http.MethodDelete, "Removing gossip encryption key"}} {
			if act.key == "" {
				continue
			}
			if err := e.Printf("==> %s...\n", act.say); err != nil {
				return err
			}
			return cl.Send(ctx, act.method, "/v1/operator/keyring", q, map[string]string{"Key": act.key}, nil)
		}
	}
	if k.local {
		q.Set("local-only", "true")
	}
	var text json.RawMessage
	if err := cl.Send(ctx, http.MethodGet, "/v1/operator/keyring", q, nil, &text); err != nil {
		return err
	}
	if r.JSON {
		return command.WriteJSON(e.Out, text, false)
	}
	var rings []ring
	if err := command.Decode(text, &rings); err != nil {
		return err
	}
	return k.write(e, rings)
}

// write prints each pool's keys and how many of its members have them.
func (k *keyringFlags) write(e *command.Env, rings []ring) error {
	what := "installed"
	if k.primary {
		what = "installed primary"
	}
	e.Say("==> Gathering %s encryption keys...\n", what)
	for _, one := range rings {
		pool := one.Datacenter + " (LAN)"
		if one.WAN {
			pool = "WAN"
		}
		if one.Segment != "" {
			pool += " [" + one.Segment + "]"
		}
		keys := one.Keys
		if k.primary {
			keys = one.PrimaryKeys
		}
		e.Say("\n%s:\n", pool)
		for _, node := range command.SortedKeys(one.Messages) {
			e.Say("  ===> %s: %s\n", node, one.Messages[node])
		}
		for _, key := range command.SortedKeys(keys) {
			e.Say("  %s [%d/%d]\n", key, keys[key], one.NumNodes)
		}
	}
	return nil
}

// coordinate is a place in the space of round-trip times.
type coordinate struct {
	Vec                       []float64
	Error, Adjustment, Height float64
}

// seconds estimates the round trip between two places: the distance, with the heights
// that both ends add, and their adjustments unless these make it negative.
func (a *coordinate) seconds(b *coordinate) (float64, error) {
	if len(a.Vec) != len(b.Vec) {
		return 0, errors.New("the two coordinates have different dimensions")
	}
	sum := 0.0
	for i := range a.Vec {
		sum += (a.Vec[i] - b.Vec[i]) * (a.Vec[i] - b.Vec[i])
	}
	raw := math.Sqrt(sum) + a.Height + b.Height
	if adjusted := raw + a.Adjustment + b.Adjustment; adjusted > 0 {
		return adjusted, nil
	}
	return raw, nil
}

// RTT builds `rtt`.
func RTT(e *command.Env, c *cobra.Command) {
	var wan bool
	built := command.Read(e, "rtt NODE [NODE]", "", command.Between(1, 2, "one or two nodes"),
		func(ctx context.Context, r *command.Reading, cl *client.Client, args []string) error {
			if len(args) == 1 {
				self, err := cl.Self(ctx)
				if err != nil {
					return err
				}
				mine := fmt.Sprint(self.Config["NodeName"])
				if wan {
					mine += "." + fmt.Sprint(self.Config["Datacenter"])
				}
				args = append(args, mine)
			}
			places, err := coordinates(ctx, r, cl, wan)
			if err != nil {
				return err
			}
			a, b := places[args[0]], places[args[1]]
			for i, p := range []*coordinate{a, b} {
				if p == nil {
					return fmt.Errorf("Could not find a coordinate for node %q; agents send theirs some seconds after they joined, "+
						"and `members` lists the names", args[i])
				}
			}
			seconds, err := a.seconds(b)
			if err != nil {
				return err
			}
			if r.JSON {
				return command.WriteJSON(e.Out, struct {
					From, To string
					Millis   float64
				}{args[0], args[1], seconds * 1000}, false)
			}
			pool := "LAN"
			if wan {
				pool = "WAN"
			}
			return e.Printf("Estimated %s <-> %s rtt: %.3f ms (using %s coordinates)\n", args[0], args[1], seconds*1000, pool)
		})
	built.Flags().BoolVar(&wan, "wan", false, "between servers of datacenters, given as NODE.DATACENTER")
	adopt(c, built)
}

// coordinates are the places by node, or by node and datacenter.
func coordinates(ctx context.Context, r *command.Reading, cl *client.Client, wan bool) (map[string]*coordinate, error) {
	type entry struct {
		Node  string
		Coord *coordinate
	}
	out := map[string]*coordinate{}
	if !wan {
		var list []entry
		if _, err := cl.Get(ctx, "/v1/coordinate/nodes", r.Q, &list); err != nil {
			return nil, err
		}
		for _, en := range list {
			out[en.Node] = en.Coord
		}
		return out, nil
	}
	var areas []struct {
		Datacenter  string
		Coordinates []entry
	}
	if _, err := cl.Get(ctx, "/v1/coordinate/datacenters", r.Q, &areas); err != nil {
		return nil, err
	}
	for _, area := range areas {
		for _, en := range area.Coordinates {
			out[strings.TrimSuffix(en.Node, "."+area.Datacenter)+"."+area.Datacenter] = en.Coord
		}
	}
	return out, nil
}
