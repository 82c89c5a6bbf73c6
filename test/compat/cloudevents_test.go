package compat

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/hashicorp/consul/api"
)

// sdkEvent is an event as an application makes it with the SDK.
func sdkEvent(t *testing.T, id, product, tenant string, data any) cloudevents.Event {
	t.Helper()
	e := cloudevents.NewEvent()
	e.SetID(id)
	e.SetSource("urn:gateway/eu-1")
	e.SetType(product)
	e.SetSubject(tenant)
	e.SetTime(time.Now())
	e.SetExtension("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01") // what is not ours passes
	must(t, e.SetData(cloudevents.ApplicationJSON, data))
	return e
}

// TestCloudEvents: the SDK of CloudEvents sends usage: one event in either mode, with its retries, and a batch. What is
// sent twice counts once, and what is wrong is not counted.
func TestCloudEvents(t *testing.T) {
	base := "http://" + server.http + "/v1/usage"
	for name, definition := range map[string]string{"ce_calls": `{"kind":"sum","value":"calls","tags":["team"]}`,
		"ce_users": `{"kind":"unique","identity":["user"]}`} {
		eventually(t, "product "+name, func() error {
			req, err := http.NewRequest(http.MethodPut, base+"/products/"+name, strings.NewReader(definition))
			must(t, err)
			return sent(req, nil)
		})
	}
	tenant := fmt.Sprint("Müller & Söhne, 5% #", time.Now().UnixNano())
	client, err := cloudevents.NewClientHTTP(cloudevents.WithTarget(base+"/events"),
		cloudevents.WithHeader("Authorization", bearer()))
	must(t, err)
	// The SDK sends again what is answered with 503, as a server does that has just started.
	again := cloudevents.ContextWithRetriesExponentialBackoff(t.Context(), 50*time.Millisecond, 10)
	for name, encoded := range map[string]func(e cloudevents.Event) error{
		"binary": func(e cloudevents.Event) error {
			return client.Send(cloudevents.WithEncodingBinary(again), e)
		},
		"structured": func(e cloudevents.Event) error {
			return client.Send(cloudevents.WithEncodingStructured(again), e)
		},
	} {
		one := sdkEvent(t, name+"-1", "ce_calls", tenant, map[string]any{"calls": 1000, "team": name})
		for range 2 { // the answer was lost, say
			if result := encoded(one); !cloudevents.IsACK(result) {
				t.Fatalf("%s: %v", name, result)
			}
		}
		other := sdkEvent(t, name+"-2", "ce_users", tenant, map[string]any{"user": "ann"})
		if result := encoded(other); !cloudevents.IsACK(result) {
			t.Fatalf("%s: %v", name, result)
		}
		plain := one.Clone()
		plain.SetID(name + "-3")
		must(t, plain.SetData(cloudevents.TextPlain, "1000 calls"))
		if result := encoded(plain); !cloudevents.IsACK(result) { // rejected, and no reason to send it again
			t.Errorf("%s: data that is no JSON: %v", name, result)
		}
	}

	var batch []cloudevents.Event
	for i := range 250 {
		batch = append(batch, sdkEvent(t, fmt.Sprint("batch-", i), "ce_calls", tenant,
			map[string]any{"calls": i, "team": "batch"}))
	}
	batch = append(batch, batch[7], sdkEvent(t, "batch-x", "ce_nothing", tenant, map[string]any{"calls": 1}))
	var answer struct {
		Accepted, Duplicates int
		Rejected             []struct {
			Index int
			Error string
		}
	}
	for _, want := range [][2]int{{250, 1}, {0, 251}} {
		req, err := cehttp.NewHTTPRequestFromEvents(t.Context(), base+"/events", batch)
		must(t, err)
		answer.Rejected = nil
		must(t, sent(req, &answer))
		if got := [2]int{answer.Accepted, answer.Duplicates}; got != want || len(answer.Rejected) != 1 ||
			answer.Rejected[0].Index != 251 || !strings.Contains(answer.Rejected[0].Error, "ce_nothing") {
			t.Errorf("a batch: %+v, want %v and event 251 rejected", answer, want)
		}
	}

	for product, want := range map[string]string{"ce_calls": fmt.Sprint(2*1000 + 250*249/2), "ce_users": "1"} {
		var got struct{ Value json.Number }
		query := url.Values{"tenant": {tenant}, "product": {product}, "window": {"1h"}}
		eventually(t, product+" of "+tenant, func() error {
			req, err := http.NewRequest(http.MethodGet, base+"/estimates?"+query.Encode(), nil)
			must(t, err)
			if err := sent(req, &got); err != nil {
				return err
			}
			if got.Value.String() != want {
				return fmt.Errorf("%s is %s, not %s", product, got.Value, want)
			}
			return nil
		})
	}
}

// bearer is the token of a request: of one who may do everything, where the server wants one.
func bearer() string { return "Bearer " + cmp.Or(os.Getenv(api.HTTPTokenEnvName), "root") }

// sent sends a request, and decodes its answer.
func sent(req *http.Request, to any) error {
	req.Header.Set("Authorization", bearer())
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode > 299 {
		return fmt.Errorf("%s %s: %s", req.Method, req.URL, resp.Status)
	}
	if to == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(to)
}
