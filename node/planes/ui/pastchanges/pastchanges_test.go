package pastchanges

import (
	"reflect"
	"testing"

	"corbel.dev/corbel/catalog/statestore"
)

// TestChanges: the first look learns, later ones tell what came and went, and only so much is remembered.
func TestChanges(t *testing.T) {
	var c Changes
	c.look(statestore.Empty(), 1000)
	if got := c.Between(0, 5000); got != nil {
		t.Errorf("the first look tells of %v", got)
	}
	c.services, c.nodes, c.index = map[string]int{"web": 3}, map[string]bool{"n1": true}, 99
	c.look(statestore.Empty(), 2000)
	want := []Row{{2000, "node", "n1", "deregistered", "/nodes"},
		{2000, "service", "web", "0 instances, before 3", "/services/web"}}
	var got []Row
	for _, one := range c.Between(1000, 2000) {
		got = append(got, one.Row())
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := c.Between(2000, 3000); got != nil {
		t.Errorf("after it: %v", got)
	}
	for range most + 10 {
		c.services, c.index = map[string]int{"web": 1}, 99
		c.look(statestore.Empty(), 4000)
	}
	if n := len(c.list); n != most {
		t.Errorf("%d are remembered", n)
	}
}
