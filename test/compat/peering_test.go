package compat

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
)

// TestPeering is two clusters that are peered by the client's calls: a token, its use, what one of them exports, and
// the end.
func TestPeering(t *testing.T) {
	t.Setenv(api.HTTPTokenEnvName, "") // its own clusters have no tokens
	east, west := run(t, "dev", "east"), run(t, "dev", "west", "-datacenter=dc2")
	must(t, east.await())
	must(t, west.await())
	a, b := east.client(t), west.client(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if p, _, err := a.Peerings().Read(ctx, "west", nil); err != nil || p != nil {
		t.Errorf("no such peer: %+v %v", p, err)
	}
	made, _, err := a.Peerings().GenerateToken(ctx, api.PeeringGenerateTokenRequest{PeerName: "west",
		Meta: map[string]string{"k": "v"}}, nil)
	must(t, err)
	text, err := base64.StdEncoding.DecodeString(made.PeeringToken)
	must(t, err)
	var token map[string]any
	must(t, json.Unmarshal(text, &token))
	for _, field := range []string{"ServerAddresses", "PeerID", "EstablishmentSecret"} {
		if token[field] == nil || token[field] == "" {
			t.Errorf("the token has no %s: %s", field, text)
		}
	}
	p, _, err := a.Peerings().Read(ctx, "west", nil)
	must(t, err)
	if p.State != api.PeeringStatePending || p.Meta["k"] != "v" || p.ID != token["PeerID"] {
		t.Errorf("with a token: %+v", p)
	}
	use := api.PeeringEstablishRequest{PeerName: "east", PeeringToken: made.PeeringToken}
	_, _, err = b.Peerings().Establish(ctx, use, nil)
	must(t, err)
	for name, c := range map[string]*api.Client{"west": a, "east": b} {
		eventually(t, "the peering "+name, func() error {
			list, _, err := c.Peerings().List(ctx, nil)
			if err != nil || len(list) != 1 || list[0].Name != name || list[0].State != api.PeeringStateActive {
				return fmt.Errorf("%d peers, %v", len(list), err)
			}
			return nil
		})
	}
	_, err = a.Catalog().Register(&api.CatalogRegistration{Node: "far", Address: "10.9.0.1",
		Service: &api.AgentService{Service: "web", Port: 80}}, nil)
	must(t, err)
	_, _, err = a.ConfigEntries().Set(&api.ExportedServicesConfigEntry{Name: "default",
		Services: []api.ExportedService{{Name: "web", Consumers: []api.ServiceConsumer{{Peer: "west"}}}}}, nil)
	must(t, err)
	eventually(t, "the imported service", func() error {
		list, meta, err := b.Health().Service("web", "", true, &api.QueryOptions{Peer: "east"})
		if err != nil || len(list) != 1 || list[0].Node.PeerName != "east" || list[0].Service.PeerName != "east" ||
			list[0].Checks[0].PeerName != "east" || meta.LastIndex < 2 {
			return fmt.Errorf("%d instances, %v", len(list), err)
		}
		return nil
	})
	if list, _, err := b.Catalog().Service("web", "", nil); err != nil || len(list) != 0 {
		t.Errorf("without the peer's name: %d instances, %v", len(list), err)
	}
	_, err = b.Peerings().Delete(ctx, "east", nil)
	must(t, err)
	eventually(t, "the end", func() error {
		p, _, err := b.Peerings().Read(ctx, "east", nil)
		other, _, err2 := a.Peerings().Read(ctx, "west", nil)
		if err != nil || err2 != nil || p != nil || other == nil || other.State != api.PeeringStateTerminated {
			return fmt.Errorf("%+v, %+v, %v, %v", p, other, err, err2)
		}
		return nil
	})
}
