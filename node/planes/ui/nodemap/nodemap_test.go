package nodemap

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"corbel.dev/corbel/jobs/rooms"
)

func TestOf(t *testing.T) {
	nodes := []Node{{"a", map[string]string{"rack": "r1"}, "dc1", Health(0)},
		{"b", map[string]string{"rack": "r2"}, "dc2", Health(2)},
		{"c", map[string]string{"rack": "r1", "os": "linux"}, "dc1", Health(1)}, {"d", nil, "", Health(0)}}
	keys := []string{"os", "rack"}
	group := func(name, states string, names ...string) Group {
		return Group{Name: name, States: states, Names: names}
	}
	for by, want := range map[string]*Map{
		"":      {Groups: []Group{group("", "cwpp", "b", "c", "a", "d")}, Keys: keys},
		"rack":  {Groups: []Group{group("", "p", "d"), group("r1", "wp", "c", "a"), group("r2", "c", "b")}, Keys: keys},
		ByPlace: {Groups: []Group{group("", "p", "d"), group("dc1", "wp", "c", "a"), group("dc2", "c", "b")}, Keys: keys},
		"none":  {Groups: []Group{group("", "cwpp", "b", "c", "a", "d")}, Keys: keys},
	} {
		if got := Of(by, slices.Values(nodes)); !reflect.DeepEqual(got, want) {
			t.Errorf("by %q: %+v, want %+v", by, got, want)
		}
	}
	if got := Of("rack", slices.Values([]Node{})); len(got.Groups) != 0 || got.Keys == nil {
		t.Errorf("of no node: %+v", got)
	}
}

// TestRooms: squares are as full as jobs make the nodes, the fullest first, what is down before them; a group's room is
// that of its nodes.
func TestRooms(t *testing.T) {
	room := func(class string, cpu, cpuUsed, memoryUsed int64, draining, down int) rooms.NodeRoom {
		return rooms.NodeRoom{Room: rooms.Room{Datacenter: "dc1", Class: class, CPU: cpu, CPUUsed: cpuUsed, MemoryMB: 100,
			MemoryUsedMB: memoryUsed, Draining: draining, Down: down}}
	}
	known := map[string]rooms.NodeRoom{"cold": room("app", 1000, 0, 99, 0, 0), "half": room("app", 1000, 500, 50, 0, 0),
		"full": room("app", 1000, 1000, 4, 0, 0), "drains": room("app", 1000, 949, 0, 1, 0),
		"down": room("app", 0, 0, 0, 0, 1), "over": room("", 1000, 1200, 0, 0, 0)}
	names := []string{"cold", "half", "full", "drains", "down", "over", "other"}
	for of, want := range map[string][]Group{
		"cpu": {{"", "-", []string{"other"}, 0, 0}, {"dc1", "t", []string{"over"}, 1200, 1000},
			{"dc1, app", "xtSka", []string{"down", "full", "drains", "half", "cold"}, 2449, 4000}},
		"memory": {{"", "-", []string{"other"}, 0, 0}, {"dc1", "a", []string{"over"}, 0, 100},
			{"dc1, app", "xtkaA", []string{"down", "cold", "half", "full", "drains"}, 153, 500}},
	} {
		square := Rooms(known, of)
		got := Of(ByPlace, func(yield func(Node) bool) {
			for _, name := range names {
				n := Node{Name: name}
				if n.Place, n.Square = square(name); !yield(n) {
					return
				}
			}
		})
		if !reflect.DeepEqual(got.Groups, want) {
			t.Errorf("%s: %+v, want %+v", of, got.Groups, want)
		}
	}
}

// TestLone: nodes that no list has are drawn as the others, in the order of their names, with room of their own.
func TestLone(t *testing.T) {
	known := map[string]rooms.NodeRoom{}
	for name, used := range map[string]int64{"listed": 900, "b": 500, "a": 500, "unwanted": 100} {
		known[name] = rooms.NodeRoom{Room: rooms.Room{Datacenter: "dc2", CPU: 1000, CPUUsed: used}}
	}
	got := Lone(known, Rooms(known, "cpu"), func(name string) bool { return name == "a" || name == "b" })
	half := Square{Letter: 'k', Rank: 11, Used: 500, All: 1000}
	if want := []Node{{"a", nil, "dc2", half}, {"b", nil, "dc2", half}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestBounds: whatever a fleet writes into its metadata, groups, keys and names stay few, and no node is left out.
func TestBounds(t *testing.T) {
	var nodes []Node
	for i := range 10_000 {
		nodes = append(nodes, Node{fmt.Sprint("n", i), map[string]string{"own": fmt.Sprint(i % 1000),
			fmt.Sprint("k", i): ""}, "", Health(i % 3)})
	}
	got := Of("own", slices.Values(nodes))
	all := 0
	for _, g := range got.Groups {
		all += len(g.States)
		if len(g.Names) > maxNames || !slices.IsSortedFunc([]byte(g.States), func(a, b byte) int {
			return slices.Index([]byte("cwp"), a) - slices.Index([]byte("cwp"), b)
		}) {
			t.Errorf("%s: %d names, states %.40s", g.Name, len(g.Names), g.States)
		}
	}
	if all != len(nodes) || len(got.Groups) > maxGroups+1 || len(got.Keys) > maxKeys {
		t.Errorf("%d nodes in %d groups, %d keys", all, len(got.Groups), len(got.Keys))
	}
}
