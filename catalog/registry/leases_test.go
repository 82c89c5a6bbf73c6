package registry

import (
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/catalog"
)

func leased(name, ttl string) *catalog.Register {
	return &catalog.Register{Node: catalog.Node{Name: name, Address: "10.0.0.1", Meta: map[string]string{LeaseMeta: ttl}},
		Service: &catalog.Service{ID: "s", Name: "web"}}
}

// A node with a lease lives as long as it is registered anew, and goes with its services
// when it is not; one without a lease stays, and a new leader gives the full time.
func TestNodeLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, log := newRegistry(t, Config{}, true)
		stop := start(r)
		defer stop()
		synctest.Wait()
		wait := func(d time.Duration) {
			<-time.NewTimer(d).C
			synctest.Wait()
		}
		for _, reg := range []*catalog.Register{leased("Kept", "10s"), leased("lost", "10s"), leased("stays", ""),
			leased("wrong", "soon")} {
			if res, err := r.Apply(t.Context(), reg); err != nil || res.Err != nil {
				t.Fatal(err, res.Err)
			}
		}
		for range 5 {
			wait(4 * time.Second)
			// The same again is no change of the catalog, but it renews.
			if _, err := r.Apply(t.Context(), &catalog.RegisterBatch{Registrations: []*catalog.Register{leased("kept",
				"10s")}}); err != nil {
				t.Fatal(err)
			}
		}
		st := r.State()
		if st.Node("lost") != nil || st.Service("lost", "s") != nil {
			t.Error("a node outlived its lease")
		}
		for _, name := range []string{"kept", "stays", "wrong"} {
			if st.Node(name) == nil {
				t.Errorf("%s is gone", name)
			}
		}
		wait(6 * time.Second)
		log.elect(false)
		synctest.Wait()
		log.elect(true)
		wait(6 * time.Second)
		if r.State().Node("kept") == nil {
			t.Error("a new leader did not give the lease its full time")
		}
		wait(6 * time.Second)
		if r.State().Node("kept") != nil {
			t.Error("the lease did not end under the new leader")
		}
	})
}

// Whoever registers a node while it is being deregistered finds it registered.
func TestLeaseEndsWhileRegistering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, log := newRegistry(t, Config{}, true)
		stop := start(r)
		defer stop()
		synctest.Wait()
		if _, err := r.Apply(t.Context(), leased("n", "2s")); err != nil {
			t.Fatal(err)
		}
		again := make(chan error, 1)
		log.refuseBy(func(c catalog.Command) error {
			if _, end := c.(*catalog.Deregister); end {
				log.refuse = nil
				go func() {
					_, err := r.Apply(t.Context(), leased("n", "1h"))
					again <- err
				}()
			}
			return nil
		})
		if err := <-again; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := r.State().Node("n"); n == nil || n.Meta[LeaseMeta] != "1h" {
			t.Errorf("the node is %+v", n)
		}
	})
}
