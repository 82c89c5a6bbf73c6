package local

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"corbel.dev/corbel/catalog/definition"
)

// A thousand services of one call are told to the catalog in as few calls as their
// number allows, and one wrong definition keeps all of them out.
func TestManyServicesAreOneSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l, stop := running(t, Config{Servers: f})
		defer stop()
		synctest.Wait() // the first full sync
		before := f.count()
		var list []*definition.Service
		for i := range 1000 {
			list = append(list, mustService(t, fmt.Sprintf(`{"ID":"web-%d","Name":"web","Port":80,"Check":{"TTL":"30s"}}`, i)))
		}
		if err := l.RegisterServices(t.Context(), list, RegisterOptions{}); err != nil {
			t.Fatal(err)
		}
		if f.service("web-0") == nil || f.service("web-999") == nil || f.check("service:web-999") == nil {
			t.Fatal("not all of them are in the catalog")
		}
		if calls, want := f.count()-before, (1000+maxBatch-1)/maxBatch; calls != want {
			t.Errorf("%d calls, want %d", calls, want)
		}
		err := l.RegisterServices(t.Context(), []*definition.Service{mustService(t, `{"Name":"other"}`), {}},
			RegisterOptions{})
		if err == nil || !strings.HasPrefix(err.Error(), "service 1 of the list: ") {
			t.Errorf("a list with a wrong definition: %v", err)
		}
		if f.service("other") != nil || l.View().Services["other"] != nil {
			t.Error("a part of a refused list was registered")
		}
	})
}
