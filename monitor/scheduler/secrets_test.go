package scheduler

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/hub"
)

// Values of secrets reach agents that are known by a certificate, and no others; while they are not known these get
// no request, and nobody waits.
func TestSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var value atomic.Pointer[string]
		b := startWith(t, func(c *Config) {
			c.Secrets = func(_ context.Context, namespace string, list []*monitor.Secret) (out []string, err error) {
				v := value.Load()
				if v == nil {
					return nil, errkind.Errorf(errkind.Unavailable, "the provider is away")
				}
				for _, s := range list {
					out = append(out, s.Name+"="+namespace+"/"+s.Secret+"/"+*v)
				}
				return out, nil
			}
		})
		plain := b.agent("plain", "linux")
		certified := &agent{t: t}
		b.hub.Join(&hub.Session{Namespace: "default", Agent: "certified", Link: certified, Certified: true},
			[]string{"linux"})
		c := cpu()
		c.Secrets = []*monitor.Secret{{Name: "KEY", Secret: "pager"}}
		b.put("checks", c)
		other := cpu()
		other.Name, other.Meta.Name = "disk", "disk"
		b.put("checks", other)
		of := func(list []*monitor.CheckRequest, check string) (out []string) {
			for _, r := range list {
				if r.Config.Name == check {
					out = append(out, strings.Join(r.Secrets, " "))
				}
			}
			return out
		}
		time.Sleep(time.Minute)
		got := certified.take()
		if n := len(of(plain.take(), "cpu")); n != 6 || len(of(got, "cpu")) != 0 || len(of(got, "disk")) != 6 {
			t.Errorf("without a provider: %d requests, certified %d and %d", n, len(of(got, "cpu")), len(of(got, "disk")))
		}
		for _, v := range []string{"first", "second"} {
			value.Store(&v)
			time.Sleep(revealEvery + time.Second)
			plain.take()
			certified.take()
			time.Sleep(10 * time.Second)
			if got := of(certified.take(), "cpu"); len(got) != 1 || got[0] != "KEY=default/pager/"+v {
				t.Errorf("certified: %q", got)
			}
			if got := of(plain.take(), "cpu"); len(got) != 1 || got[0] != "" {
				t.Errorf("by password: %q", got)
			}
		}
		if _, err := b.Execute(t.Context(), "default", "cpu", nil, "me", "why"); err != nil {
			t.Error(err)
		}
		if got := of(certified.take(), "cpu"); len(got) != 1 || got[0] != "KEY=default/pager/second" {
			t.Errorf("on request: %q", got)
		}
	})
}
