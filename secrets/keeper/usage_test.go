package keeper

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/census"
	"corbel.dev/corbel/telemetry"
)

// gaugesOf shows the gauges of a name that have a value, without what all of them have.
func gaugesOf(reg *telemetry.Registry, name string) string {
	out := map[string]float64{}
	for _, s := range reg.Series() {
		v, ok := s.GaugeValue()
		if s.Name != name || !ok {
			continue
		}
		var labels []string
		for _, l := range s.Labels {
			if l.Name != "cluster" && (l.Name != "namespace" || l.Value != "root") {
				labels = append(labels, l.Name+"="+l.Value)
			}
		}
		out[strings.Join(labels, ",")] = v
	}
	var list []string
	for _, key := range slices.Sorted(maps.Keys(out)) {
		list = append(list, fmt.Sprint(key, " ", out[key]))
	}
	return strings.Join(list, "; ")
}

// usageHouse is a house whose gauges are counted, with some of everything.
func usageHouse(t *testing.T, rules census.Rules) (*house, *telemetry.Registry) {
	h := newHouse(t)
	reg := telemetry.New(telemetry.Config{Settings: telemetry.Settings{MetricsPrefix: "vault"}})
	k, err := newKeeper(Config{Storage: h.store, Now: func() time.Time { return h.now }, Metrics: reg, Usage: rules,
		ClusterName: "c1"})
	if err != nil {
		t.Fatal(err)
	}
	h.Keeper = k
	h.unseal()
	h.ok(secrets.Update, "sys/auth/userpass", `{"type":"userpass"}`)
	h.ok(secrets.Update, "auth/userpass/users/ann",
		text(t, map[string]any{"password_hash": quick(t), "token_policies": "app", "token_ttl": "20m"}))
	for range 2 {
		if _, err := h.as("", secrets.Update, "auth/userpass/login/ann", `{"password":"pw"}`); err != nil {
			t.Fatal(err)
		}
	}
	h.ok(secrets.Update, "auth/token/create", `{"policies":["app","ops"],"ttl":"25h"}`)
	for i := range 1200 { // more than a step of the walk
		h.ok(secrets.Update, fmt.Sprint("secret/many/", i), `{"x":"1"}`)
	}
	h.ok(secrets.Update, "kv2/data/a", `{"data":{"x":"1"}}`)
	h.ok(secrets.Update, "kv2/data/a", `{"data":{"x":"2"}}`)
	return h, reg
}

// The gauges tell what there is: of the records as they are, a while after a start, and again after each period.
func TestUsageGauges(t *testing.T) {
	h, reg := usageHouse(t, census.Rules{})
	u := h.owners.census
	turn := func(after time.Duration, want int) {
		t.Helper()
		h.now = h.now.Add(after)
		if n, err := u.Measure(t.Context()); n != want || err != nil {
			t.Fatalf("after %v: %d counts, %v; want %d", after, n, err, want)
		}
	}
	turn(0, 0)
	turn(time.Minute, 1)
	turn(9*time.Minute, 0)
	for name, want := range map[string]string{
		"token.count":                   " 4",
		"token.count.by_auth":           "auth_method=token 2; auth_method=userpass 2",
		"token.count.by_ttl":            "creation_ttl=+Inf 1; creation_ttl=20m 2; creation_ttl=2d 1",
		"token.count.by_policy":         "policy=app 3; policy=default 3; policy=ops 1; policy=root 1",
		"expire.num_leases":             " 3",
		"expire.num_irrevocable_leases": " 0",
		"expire.leases.by_expiration":   "expiring=2026-01-01T01:00:00Z 2; expiring=2026-01-02T02:00:00Z 1",
		"secret.kv.count":               "mount_point=kv2/ 1; mount_point=secret/ 1200",
		"identity.entity.count":         " 1",
		"identity.num_entities":         " 1",
		"identity.entity.alias.count":   "auth_method=userpass,mount_point=auth/userpass/ 1",
		"core.mount_table.num_entries": "type=auth,local=false 2; type=auth,local=true 0; type=logical,local=false 4; " +
			"type=logical,local=true 1",
	} {
		if got := gaugesOf(reg, name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	made := reg.Counter("token.creation", "cluster", "c1", "namespace", "root", "auth_method", "userpass", "mount_point",
		"auth/userpass/", "creation_ttl", "20m", "token_type", "service")
	if made.Value() != 2 {
		t.Errorf("%d tokens of logins were created", made.Value())
	}
	h.now = h.now.Add(10 * time.Minute) // the tokens of the logins are over, and are not taken away yet
	turn(5*time.Minute, 1)
	if got := gaugesOf(reg, "token.count.by_auth"); got != "auth_method=token 2" {
		t.Errorf("after the end of some: %s", got)
	}
	h.Seal()
	turn(0, 0)
	for _, name := range census.Gauges {
		if got := gaugesOf(reg, name); got != "" {
			t.Errorf("sealed, %s tells %s", name, got)
		}
	}
	h.unseal()
	turn(0, 0)
	turn(time.Minute, 1)
}

// The configuration's bounds: how many series, how far ahead, how often, and never.
func TestUsageRules(t *testing.T) {
	h, reg := usageHouse(t, census.Rules{Every: time.Second, Most: 2, Epsilon: 2 * time.Hour, Buckets: 3,
		Namespaces: true})
	u := h.owners.census
	for range 2 {
		if _, err := u.Measure(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.now = h.now.Add(time.Second)
	}
	if got := gaugesOf(reg, "token.count.by_policy"); got != "policy=app 3; policy=default 3" {
		t.Errorf("the greatest two are %s", got)
	}
	if got := gaugesOf(reg, "expire.leases.by_expiration"); got != "expiring=2026-01-01T02:00:00Z 2" {
		t.Errorf("within six hours end %s", got)
	}
	h, reg = usageHouse(t, census.Rules{Every: -1})
	u = h.owners.census
	for range 3 {
		if n, err := u.Measure(t.Context()); n != 0 || err != nil {
			t.Fatal(n, err)
		}
		h.now = h.now.Add(time.Hour)
	}
	if got := gaugesOf(reg, "token.count"); got != "" {
		t.Errorf("switched off, there are %s tokens", got)
	}
}
