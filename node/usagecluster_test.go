package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/node/plane"
	usageplane "corbel.dev/corbel/node/planes/usage"
)

// usageOf is the plane of a member.
func usageOf(m *testMember) *usageplane.Plane { return plane.Find[*usageplane.Plane](m.doors.Planes) }

// usageOfACluster: whichever of the servers is asked, it answers with what all of them have counted, listed as late,
// rejected and stored, and a question that waits hears of what others count. It returns the sources of what was sent:
// two of each part of the log.
func usageOfACluster(t *testing.T, members []*testMember) (sources []string) {
	first := members[0]
	first.awaitAsk("PUT", "/v1/usage/products/calls", `{"kind":"sum","late":"1h"}`, http.StatusOK, "calls")
	first.awaitAsk("PUT", "/v1/usage/products/users", `{"kind":"unique","identity":["user"]}`, http.StatusOK, "users")
	polltest.NoError(t, time.Minute, func() error {
		for _, m := range members {
			view := usageOf(m).Definitions.View()
			if _, ok := view.Products.Get("users"); !ok || len(view.Owners) != len(members) {
				return fmt.Errorf("%s knows of %d parts", m.Cfg.Node.Name, len(view.Owners))
			}
		}
		return nil
	}, "all servers to have a part")
	old := time.Now().Add(-3 * time.Hour).Format(time.RFC3339)
	homes := map[string]int{}
	for i := 0; len(sources) < 2*len(members); i++ {
		source := fmt.Sprint("gate", i)
		if home := usageOf(first).Router.Part("acme", source); homes[home] < 2 && homes[home] <= len(sources)/len(members) {
			homes[home]++
			sources = append(sources, source)
		}
	}
	for i, source := range sources {
		members[i*2%len(members)].takes(t, fmt.Sprintf(`[
			{"id":"1","source":%[1]q,"tenant":"acme","product":"calls","value":2},
			{"id":"2","source":%[1]q,"tenant":"acme","product":"users","identity":{"user":"u%[2]d"}},
			{"id":"old","source":%[1]q,"tenant":"acme","product":"calls","value":1,"time":%[3]q},
			{"id":"none","source":%[1]q,"tenant":"acme","product":"calls"}]`, source, i%5, old))
	}
	usageIsThere(t, members, sources, true)
	for i, m := range members {
		waits(t, m, members[(i+1)%len(members)], sources, 2*len(sources)+i)
	}
	polltest.NoError(t, time.Minute, func() error { // one of the servers may go
		view := usageOf(first).Definitions.View()
		for _, name := range view.Owners {
			if part := view.Part(name); part.Copy == "" {
				return fmt.Errorf("%+v", part)
			}
		}
		return nil
	}, "a copy of each part")
	return sources
}

// takes has a member take a batch; one that was not settled yet comes again, and counts once.
func (m *testMember) takes(t *testing.T, batch string) {
	t.Helper()
	polltest.NoError(t, time.Minute, func() error {
		if code, text := m.ask("POST", "/v1/usage/events", batch); code != http.StatusAccepted {
			return fmt.Errorf("%s: %d %s", m.Cfg.Node.Name, code, text)
		}
		return nil
	}, "a batch to be taken")
}

// usageIsThere asks each member for all that usageOfACluster has sent. What a server rejected goes with it.
func usageIsThere(t *testing.T, members []*testMember, sources []string, rejected bool) {
	for _, m := range members {
		polltest.NoError(t, time.Minute, func() error {
			return errors.Join(m.hasLate(sources), m.hasFates(sources, rejected), m.isAccurate())
		}, "%s to know all", m.Cfg.Node.Name)
	}
}

func (m *testMember) hasLate(want []string) error {
	var list struct {
		Late []struct {
			Source, ID string
		}
		Missing []string
	}
	code, text := m.ask("GET", "/v1/usage/corrections", "")
	if err := json.Unmarshal([]byte(text), &list); err != nil || len(list.Missing) > 0 {
		return fmt.Errorf("late: %d %s", code, text)
	}
	var sources []string
	for _, e := range list.Late {
		if sources = append(sources, e.Source); e.ID != "old" {
			return fmt.Errorf("late is %+v", e)
		}
	}
	slices.Sort(sources)
	if want = slices.Sorted(slices.Values(want)); !slices.Equal(sources, want) {
		return fmt.Errorf("late events are of %q, want %q", sources, want)
	}
	return nil
}

// hasFates explains an event of each source that was counted, and of each part one that was late, one that was
// rejected, and one that never came.
func (m *testMember) hasFates(sources []string, rejected bool) error {
	for i, source := range sources {
		for id, want := range map[string]string{"1": `"counted":true`, "old": "after its time", "never": "no event of tenant",
			"none": "it was rejected: value"} {
			if i >= len(sources)/2 && id != "1" || id == "none" && !rejected {
				continue
			}
			code, text := m.ask("GET", fmt.Sprintf("/v1/usage/explain?tenant=acme&source=%s&id=%s", source, id), "")
			if !strings.Contains(text, want) || (code == http.StatusNotFound) != (id == "never") {
				return fmt.Errorf("event %s of %s: %d %s", id, source, code, text)
			}
		}
	}
	return nil
}

func (m *testMember) isAccurate() error {
	var got struct {
		Series []struct {
			Exact  int
			Within bool
		}
		Missing []string
	}
	code, text := m.ask("GET", "/v1/usage/accuracy?product=users", "")
	if err := json.Unmarshal([]byte(text), &got); err != nil || len(got.Missing) > 0 || len(got.Series) != 1 ||
		got.Series[0].Exact != 5 || !got.Series[0].Within {
		return fmt.Errorf("accuracy: %d %s", code, text)
	}
	return nil
}

// waits has a member wait for a change of what another one leads and a third one may have sent.
func waits(t *testing.T, m, other *testMember, sources []string, before int) {
	const path = "/v1/usage/estimates?tenant=acme&product=calls&window=1h"
	source := sources[slices.IndexFunc(sources, func(name string) bool {
		return usageOf(other).Parts.Local(usageOf(other).Router.Part("acme", name)) != nil
	})]
	value := fmt.Sprintf(`"value":%d,`, before)
	_, text, header := m.answer("GET", path, "")
	if !strings.Contains(text, value) {
		t.Errorf("%s: %s, want %s", m.Cfg.Node.Name, text, value)
	}
	value = fmt.Sprintf(`"value":%d,`, before+1)
	heard := make(chan error, 1)
	go func() {
		index := header.Get("X-Consul-Index")
		for range 50 { // a change of something else, or of a copy here, wakes it too
			_, text, header := m.answer("GET", path+"&wait=25s&index="+index, "")
			if strings.Contains(text, value) {
				heard <- nil
				return
			}
			index = header.Get("X-Consul-Index")
		}
		heard <- errors.New(text)
	}()
	other.takes(t, fmt.Sprintf(`[{"id":"more-%s","source":%q,"tenant":"acme","product":"calls","value":1}]`,
		m.Cfg.Node.Name, source))
	if err := <-heard; err != nil {
		t.Errorf("%s has not heard of %s: %v", m.Cfg.Node.Name, value, err)
	}
}
