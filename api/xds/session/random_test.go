package session

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"corbel.dev/corbel/mesh"
)

var seed = flag.Uint64("session.seed", 0, "run the random sequence of this seed alone")

// client keeps what it is told, as an Envoy does. It answers when the test says so.
type client struct {
	s       *Session
	world   bool
	names   [typeCount]map[string]bool   // asked for by name
	has     [typeCount]map[string]string // name to version, as acknowledged
	refused [typeCount]map[string]string // the version last refused
	open    [typeCount]*Response         // not answered yet
	last    [typeCount]uint32
	asked   [typeCount]bool
}

func newClient(world bool, old *client) *client {
	c := &client{s: New(world), world: world}
	c.s.Changed(mesh.AllTypes)
	for t := range typeCount {
		c.names[t], c.has[t], c.refused[t] = map[string]bool{}, map[string]string{}, map[string]string{}
		if old != nil {
			c.names[t] = old.names[t]
			if !world { // a state-of-the-world client is sent everything again
				c.has[t] = old.has[t]
			}
		}
	}
	return c
}

func wild(t int) bool { return hasWildcard(mesh.Type(t)) }

func sorted[V any](m map[string]V) (out []string) {
	for name := range m {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// ask subscribes to a type for the first time on this stream.
func (c *client) ask(t int) {
	if c.asked[t] {
		return
	}
	c.asked[t] = true
	r := Request{Type: mesh.Type(t), Known: true}
	if !wild(t) {
		r.Subscribe = sorted(c.names[t])
	}
	if !c.world {
		for _, name := range sorted(c.has[t]) {
			r.Initial = append(r.Initial, Held{name, c.has[t][name]})
		}
	}
	c.request(&r)
}

func (c *client) request(r *Request) {
	var a Answer
	if _, err := c.s.Request(r, &a); err != nil {
		panic(err)
	}
}

// want changes what is asked for by name.
func (c *client) want(t int, name string, on bool) {
	if !c.asked[t] || wild(t) || c.names[t][name] == on {
		return
	}
	r := Request{Type: mesh.Type(t), Known: true}
	if on {
		c.names[t][name] = true
		r.Subscribe = []string{name}
	} else {
		delete(c.names[t], name)
		delete(c.has[t], name)
		delete(c.refused[t], name) // who asks again gets it again
		if open := c.open[t]; open != nil {
			open.Resources = slices.DeleteFunc(open.Resources, func(r *mesh.Resource) bool { return r.Name == name })
		}
		r.Unsubscribe = []string{name}
	}
	if c.world {
		r.Subscribe, r.Unsubscribe, r.Nonce = sorted(c.names[t]), nil, 0
	}
	c.request(&r)
}

// receive takes everything that the session has to say now.
func (c *client) receive(from Sets) error {
	for {
		var r Response
		if !c.s.Next(from, time.Unix(1, 0), &r) {
			return nil
		}
		if c.open[r.Type] != nil {
			return fmt.Errorf("a second response of %v while one is unanswered", r.Type)
		}
		if (r.Type == mesh.TypeListener || r.Type == mesh.TypeRoute) && (c.open[mesh.TypeCluster] != nil ||
			c.open[mesh.TypeEndpoints] != nil) {
			return fmt.Errorf("%v while clusters or endpoints are unanswered", r.Type)
		}
		for _, res := range r.Resources {
			if !c.world && c.refused[r.Type][res.Name] == res.Version && r.Type != mesh.TypeEndpoints &&
				r.Type != mesh.TypeRoute {
				return fmt.Errorf("%s@%s was refused and is sent again", res.Name, res.Version)
			}
		}
		c.open[r.Type] = &r
		c.last[r.Type] = r.Nonce
	}
}

// answer acknowledges or refuses the open response of a type.
func (c *client) answer(t int, refuse bool) {
	r := c.open[t]
	if r == nil {
		return
	}
	c.open[t] = nil
	if c.world && wild(t) { // removals are taken even if the rest is refused
		for _, name := range sorted(c.has[t]) {
			if !slices.ContainsFunc(r.Resources, func(r *mesh.Resource) bool { return r.Name == name }) {
				delete(c.has[t], name)
			}
		}
	}
	for _, res := range r.Resources {
		wanted := wild(t) || c.names[t][res.Name]
		if refuse && wanted {
			c.refused[t][res.Name] = res.Version
		}
		if refuse {
			continue
		}
		delete(c.refused[t], res.Name)
		if wanted {
			c.has[t][res.Name] = res.Version
		}
	}
	for _, name := range r.Removed {
		delete(c.has[t], name)
		delete(c.refused[t], name)
	}
	q := Request{Type: mesh.Type(t), Known: true, Nonce: r.Nonce, Failed: refuse, Error: "no"}
	if c.world && !wild(t) {
		q.Subscribe = sorted(c.names[t])
	}
	c.request(&q)
}

// settle answers everything until nothing is said, and compares with the source.
func (c *client) settle(from sets) error {
	for range 100 {
		if err := c.receive(from); err != nil {
			return err
		}
		quiet := true
		for t := range typeCount {
			if c.open[t] != nil {
				quiet = false
				c.answer(t, false)
			}
		}
		if quiet {
			return c.compare(from)
		}
	}
	return fmt.Errorf("the session is not quiet after 100 rounds")
}

func (c *client) compare(from sets) error {
	for t := range typeCount {
		if !c.asked[t] {
			continue
		}
		want := map[string]string{}
		for _, r := range from[mesh.Type(t)].All() {
			if wild(t) || c.names[t][r.Name] {
				want[r.Name] = r.Version
			}
		}
		if c.world && !wild(t) { // nobody says that these are gone
			for name := range c.has[t] {
				if want[name] == "" {
					delete(c.has[t], name)
				}
			}
		}
		if fmt.Sprint(c.has[t]) != fmt.Sprint(want) {
			return fmt.Errorf("%v: the client has %v, the source %v", mesh.Type(t), c.has[t], want)
		}
	}
	return nil
}

// Random changes of the source, subscriptions, answers, refusals and reconnects:
// in the end both variants' clients have what the source has, and the rules of
// the protocol held on the way.
func TestRandomSequencesEndWithTheSourcesResources(t *testing.T) {
	for n := range uint64(400) {
		if *seed != 0 && n != *seed {
			continue
		}
		for _, world := range []bool{false, true} {
			if err := wander(rand.New(rand.NewPCG(n, 7)), world); err != nil {
				t.Fatalf("%v\nagain: go test ./api/xds/session -run %s -session.seed %d (world %t)", err, t.Name(), n, world)
			}
		}
	}
}

func wander(r *rand.Rand, world bool) error {
	from, c, version := sets{}, newClient(world, nil), 0
	for range 120 {
		t := r.IntN(typeCount)
		name := string(rune('a' + r.IntN(5)))
		switch r.IntN(12) {
		case 0, 1, 2:
			version++
			mentioned := string(rune('a' + r.IntN(5)))
			from.put(made(mesh.Type(t), name, fmt.Sprint("v", version), mentioned))
			c.s.Changed(mesh.Types(1 << t))
		case 3:
			from[mesh.Type(t)] = from[mesh.Type(t)].Without(name)
			c.s.Changed(mesh.Types(1 << t))
		case 4:
			c.ask(t)
		case 5, 6:
			c.want(t, name, r.IntN(3) > 0)
		case 7, 8:
			c.answer(t, false)
		case 9:
			c.answer(t, true)
		case 10:
			if c.asked[t] {
				stray := Request{Type: mesh.Type(t), Known: true, Nonce: unknownNonce}
				if c.world && !wild(t) {
					stray.Subscribe = sorted(c.names[t])
				}
				c.request(&stray)
			}
		case 11:
			if r.IntN(3) == 0 {
				c = newClient(world, c) // what was sent and not answered is lost
			}
		}
		if err := c.receive(from); err != nil {
			return err
		}
	}
	for t := range typeCount {
		c.ask(t)
		// What was refused is taken when it changes.
		for _, res := range from[mesh.Type(t)].All() {
			version++
			from.put(made(mesh.Type(t), res.Name, fmt.Sprint("v", version)))
		}
	}
	c.s.Changed(mesh.AllTypes)
	return c.settle(from)
}
