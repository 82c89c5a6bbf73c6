package consulapi

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"corbel.dev/corbel/api/consulapi/meshrows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
)

// keptCA is a CA whose roots and configuration are what somebody put into the records.
type keptCA struct{ *store }

// Roots implements CA.
func (keptCA) Roots(st *statestore.State) (roots []meshrows.CARoot, err error) {
	for r := range st.Records(catalog.RecordCA, "root/") {
		root := meshrows.CARoot{CreateIndex: r.CreateIndex, ModifyIndex: r.ModifyIndex}
		if err := json.Unmarshal(r.Value, &root); err != nil {
			return nil, err
		}
		roots = append(roots, root)
	}
	return roots, nil
}

// Configuration implements CA.
func (keptCA) Configuration(st *statestore.State) (c meshrows.CAConfiguration, err error) {
	r := st.Record(catalog.RecordCA, "config")
	if r == nil {
		return meshrows.CAConfiguration{Provider: "consul"}, nil
	}
	err = json.Unmarshal(r.Value, &c)
	c.CreateIndex, c.ModifyIndex = r.CreateIndex, r.ModifyIndex
	return c, err
}

// SetConfiguration implements CA.
func (k keptCA) SetConfiguration(ctx context.Context, raw []byte) error {
	var c meshrows.CAConfiguration
	if err := json.Unmarshal(raw, &c); err != nil || c.Provider != "consul" {
		return errkind.New(errkind.Invalid, "Provider: not this one")
	}
	return k.put(ctx, "config", string(raw))
}

func (k keptCA) put(ctx context.Context, key, value string) error {
	_,
		err := k.Apply(ctx,
		&catalog.Records{Ops: []catalog.RecordOp{{Verb: catalog.RecordSet, Record: catalog.Record{Kind: catalog.RecordCA,
			Key: key, Value: []byte(value)}}}})
	return err
}

func TestCAConfiguration(t *testing.T) {
	r := newRig(t, nil)
	r.want("PUT", "/v1/connect/ca/configuration", `{"Provider":"consul","Config":{"LeafCertTTL":"2h"}}`, 200, "")
	a := r.want("GET", "/v1/connect/ca/configuration", "", 200, "*")
	if !strings.HasPrefix(a.body,
		`{"Provider":"consul","Config":{"LeafCertTTL":"2h"},"State":{},"ForceWithoutCrossSigning":false,"CreateIndex":`) {
		t.Errorf("configuration %s", a.body)
	}
	r.want("PUT", "/v1/connect/ca/configuration", `{"Provider":"vault"}`, 400, "*")
	r.want("PUT", "/v1/connect/ca/configuration", `{"Provider":`, 400, "*")
}

func TestCARoots(t *testing.T) {
	r := newRig(t, nil)
	r.want("GET", "/v1/connect/ca/roots", "", 200, `{"ActiveRootID":"","TrustDomain":"unknown.consul","Roots":[]}`)
	ca := keptCA{r.store}
	if err := ca.put(t.Context(), "root/a", `{"ID":"a","RootCert":"ONE\n","Active":true}`); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/v1/connect/ca/roots", "/v1/agent/connect/ca/roots"} {
		a := r.want("GET", path, "", 200, "*")
		if !strings.HasPrefix(a.body, `{"ActiveRootID":"a",`) || strings.Contains(a.body, "PrivateKey\"") {
			t.Errorf("%s: %s", path, a.body)
		}
		done := make(chan response, 1)
		go func() { done <- r.do("GET", path+"?wait=5m&index="+a.header.Get("X-Consul-Index"), "") }()
		if err := ca.put(t.Context(), "root/b", `{"ID":"b","RootCert":"TWO","Name":"`+path+`"}`); err != nil {
			t.Fatal(err)
		}
		if b := <-done; !strings.Contains(b.body, `"ID":"b"`) {
			t.Errorf("%s: woken with %s", path, b.body)
		}
	}
	a := r.want("GET", "/v1/connect/ca/roots?pem=true", "", 200, "ONE\nTWO\n")
	if got := a.header.Get("Content-Type"); got != "application/pem-certificate-chain" {
		t.Errorf("type %s", got)
	}
}
