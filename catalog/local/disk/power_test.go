package disk

import (
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"testing"

	"corbel.dev/corbel/catalog/definition"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/kit/vfs/powertest"
)

// powerStore registers web, registers db, removes web, and so on: each step leaves what no other one leaves.
type powerStore struct {
	*Store
	found map[string]string // name to the step that registered it
}

func openPowerStore(fsys vfs.FS) (powertest.Store, error) {
	s, err := Open(fsys, "/agent", slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	p := powerStore{s, map[string]string{}}
	services, _ := s.Load()
	for _, d := range services {
		p.found[d.Name] = d.Meta["step"]
	}
	return p, nil
}

// Step implements powertest.Store.
func (p powerStore) Step(n int) error {
	if n%3 == 0 {
		return p.RemoveService("web")
	}
	return p.SaveService(&definition.Service{
		Name: []string{1: "web", 2: "db"}[n%3],
		Meta: map[string]string{"step": strconv.Itoa(n)},
	})
}

const powerSteps = 12

// Have implements powertest.Store.
func (p powerStore) Have() (int, error) {
	want := map[string]string{}
	for n := range powerSteps + 5 { // the second life goes on a little
		switch {
		case n == 0:
		case n%3 == 0:
			delete(want, "web")
		case n%3 == 1:
			want["web"] = strconv.Itoa(n)
		default:
			want["db"] = strconv.Itoa(n)
		}
		if maps.Equal(want, p.found) {
			return n, nil
		}
	}
	return 0, fmt.Errorf("no step leaves %v", p.found)
}

// Close implements powertest.Store.
func (p powerStore) Close() error { return nil }

// TestPower: a registration that was acknowledged is on the disk and one that was removed is not, whatever fsync failed
// and whenever the process was killed before the power loss.
func TestPower(t *testing.T) {
	powertest.Run(t, powertest.Kind{Open: openPowerStore, Steps: powerSteps})
}
