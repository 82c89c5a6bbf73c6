package meshplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"corbel.dev/corbel/api/consulapi/meshrows"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh/ca"
	"corbel.dev/corbel/node/config"
	"corbel.dev/corbel/node/nodeid"
)

// APIAuthority is the mesh's certificate authority as the API sees it.
type APIAuthority struct{ *ca.Authority }

// Roots implements meshrows.CA.
func (APIAuthority) Roots(st *statestore.State) ([]meshrows.CARoot, error) {
	roots, err := ca.Roots(st)
	var out []meshrows.CARoot
	for _, r := range roots {
		out = append(out, meshrows.CARoot{ID: r.ID, Name: r.Name, SerialNumber: r.SerialNumber, SigningKeyID: r.SigningKeyID,
			ExternalTrustDomain: r.ExternalTrustDomain, NotBefore: r.NotBefore, NotAfter: r.NotAfter, RootCert: r.RootCert,
			IntermediateCerts: r.IntermediateCerts, Active: r.Active, PrivateKeyType: r.PrivateKeyType,
			PrivateKeyBits: r.PrivateKeyBits,
			CreateIndex:    r.CreateIndex, ModifyIndex: r.ModifyIndex})
	}
	return out, err
}

// Configuration implements meshrows.CA.
func (APIAuthority) Configuration(st *statestore.State) (meshrows.CAConfiguration, error) {
	c, create, modify, err := ca.Configuration(st)
	if err != nil {
		return meshrows.CAConfiguration{}, err
	}
	return meshrows.CAConfiguration{Provider: ca.Provider, Config: c.Raw, State: c.State,
		ForceWithoutCrossSigning: c.ForceWithoutCrossSigning, CreateIndex: create, ModifyIndex: modify}, nil
}

// SetConfiguration implements meshrows.CA.
func (a APIAuthority) SetConfiguration(ctx context.Context, raw []byte) error {
	return a.Authority.SetConfiguration(ctx, raw)
}

// authorityKeys are the keys of connect.ca_config and what the authority calls them. CamelCase is taken too.
var authorityKeys = map[string]string{
	"leaf_cert_ttl": "LeafCertTTL", "intermediate_cert_ttl": "IntermediateCertTTL", "root_cert_ttl": "RootCertTTL",
	"private_key": "PrivateKey", "root_cert": "RootCert", "private_key_type": "PrivateKeyType",
	"private_key_bits":   "PrivateKeyBits",
	"csr_max_per_second": "CSRMaxPerSecond", "csr_max_concurrent": "CSRMaxConcurrent", "cluster_id": clusterIDKey,
	"rotation_period": rotationKey,
}

const (
	clusterIDKey = "ClusterID"
	// rotationKey is what old configurations set and nothing ever read.
	rotationKey = "RotationPeriod"
)

// FirstAuthority is what a new cluster's authority begins with, and the cluster's identity, "" for a new one. The
// error names every wrong key.
func FirstAuthority(c *config.Connect) (first *ca.Config, identity string, err error) {
	if c.CAProvider != ca.Provider {
		return nil, "", fmt.Errorf("connect.ca_provider: %q is not supported, the built-in authority %q is the only one: "+
			"remove the key, and to go on with a root "+
			"of your own put its certificate and key into connect.ca_config as root_cert and private_key", c.CAProvider,
			ca.Provider)
	}
	var wrong []error
	values := map[string]any{}
	for _, block := range c.CAConfig {
		for key, v := range block {
			name, ok := authorityKeys[strings.ToLower(key)]
			for _, camel := range authorityKeys {
				if strings.EqualFold(camel, key) {
					name, ok = camel, true
				}
			}
			if !ok {
				wrong = append(wrong, fmt.Errorf("invalid config key connect.ca_config.%s: the keys are %s", key,
					strings.Join(slices.Sorted(maps.Keys(authorityKeys)), ", ")))
				continue
			}
			values[name] = v
		}
	}
	if v, ok := values[clusterIDKey]; ok {
		if identity, _ = v.(string); !nodeid.Valid(identity) {
			wrong = append(wrong, fmt.Errorf("connect.ca_config.cluster_id: %v is no UUID", v))
		}
		identity = strings.ToLower(identity)
	}
	delete(values, clusterIDKey)
	delete(values, rotationKey)
	raw, err := json.Marshal(map[string]any{"Provider": ca.Provider, "Config": values})
	if err == nil {
		first, err = ca.ParseConfig(raw)
	}
	if err != nil {
		wrong = append(wrong, fmt.Errorf("connect.ca_config: %s", errkind.Text(err)))
	}
	return first, identity, errors.Join(wrong...)
}
