package node

import (
	"context"

	"corbel.dev/corbel/api/consulapi"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/mesh/ca"
)

// meshCA is the mesh's certificate authority as the API sees it.
type meshCA struct{ *ca.Authority }

// Roots implements consulapi.CA.
func (meshCA) Roots(st *catalog.State) ([]consulapi.CARoot, error) {
	roots, err := ca.Roots(st)
	var out []consulapi.CARoot
	for _, r := range roots {
		out = append(out, consulapi.CARoot{ID: r.ID, Name: r.Name, SerialNumber: r.SerialNumber, SigningKeyID: r.SigningKeyID,
			ExternalTrustDomain: r.ExternalTrustDomain, NotBefore: r.NotBefore, NotAfter: r.NotAfter, RootCert: r.RootCert,
			IntermediateCerts: r.IntermediateCerts, Active: r.Active, PrivateKeyType: r.PrivateKeyType, PrivateKeyBits: r.PrivateKeyBits,
			CreateIndex: r.CreateIndex, ModifyIndex: r.ModifyIndex})
	}
	return out, err
}

// Configuration implements consulapi.CA.
func (meshCA) Configuration(st *catalog.State) (consulapi.CAConfiguration, error) {
	c, create, modify, err := ca.Configuration(st)
	if err != nil {
		return consulapi.CAConfiguration{}, err
	}
	return consulapi.CAConfiguration{Provider: ca.Provider, Config: c.Raw, State: c.State,
		ForceWithoutCrossSigning: c.ForceWithoutCrossSigning, CreateIndex: create, ModifyIndex: modify}, nil
}

// SetConfiguration implements consulapi.CA.
func (m meshCA) SetConfiguration(ctx context.Context, raw []byte) error {
	return m.Authority.SetConfiguration(ctx, raw)
}
