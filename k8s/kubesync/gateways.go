package kubesync

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/client"
	"corbel.dev/corbel/k8s/catalogsync"
	"corbel.dev/corbel/k8s/gatewayapi"
	"corbel.dev/corbel/k8s/kubeapi"
)

// hashKey is the metadata of an entry that says what was written: the catalog fills entries in, so what it has cannot
// be compared with what is wanted.
const hashKey = "external-k8s-hash"

// entryKinds are the kinds that are written, in the order in which they are deleted.
var entryKinds = []string{"http-route", "api-gateway", "inline-certificate"}

const gatewayPath = "/apis/gateway.networking.k8s.io/v1/"

// gateways are the mirrors of the Gateway API.
type gateways struct {
	classes  *kubeapi.Mirror[gatewayapi.Class]
	gateways *kubeapi.Mirror[gatewayapi.Gateway]
	routes   *kubeapi.Mirror[gatewayapi.Route]
}

func newGateways(mirror func(path string) kubeapi.MirrorConfig) *gateways {
	return &gateways{classes: kubeapi.NewMirror[gatewayapi.Class](mirror(gatewayPath + "gatewayclasses")),
		gateways: kubeapi.NewMirror[gatewayapi.Gateway](mirror(gatewayPath + "gateways")),
		routes:   kubeapi.NewMirror[gatewayapi.Route](mirror(gatewayPath + "httproutes"))}
}

func (g *gateways) synced() bool {
	return g.classes.Lists.Load() > 0 && g.gateways.Lists.Load() > 0 && g.routes.Lists.Load() > 0
}

// toGateways writes the config entries of the cluster's gateways and routes, and their status.
func (s *Sync) toGateways(ctx context.Context) error {
	in := &gatewayapi.Input{Certificates: map[string]gatewayapi.Certificate{}}
	in.Classes, _ = s.gates.classes.Items()
	in.Gateways, _ = s.gates.gateways.Items()
	in.Routes, _ = s.gates.routes.Items()
	in.Services, _ = s.services.Items()
	for _, key := range gatewayapi.Secrets(in) {
		cert, err := s.secret(ctx, key)
		if err != nil {
			return err
		}
		in.Certificates[key] = cert
	}
	out := gatewayapi.Translate(in)
	refused, err := s.writeEntries(ctx, out.Entries)
	if err != nil {
		return err
	}
	s.tell("gateways", refused)
	for _, r := range refused {
		out.Refuse(r.Service, r.Why)
	}
	return s.writeStatus(ctx, in, out)
}

// secret reads one secret by its name: the account needs no right to list them.
func (s *Sync) secret(ctx context.Context, key string) (cert gatewayapi.Certificate, err error) {
	namespace, name, _ := strings.Cut(key, "/")
	var o struct{ Data map[string]string }
	err = s.cfg.Kube.Get(ctx, "/api/v1/namespaces/"+url.PathEscape(namespace)+"/secrets/"+url.PathEscape(name), &o)
	if kubeapi.Is(err, http.StatusNotFound) || kubeapi.Is(err, http.StatusForbidden) {
		return cert, nil // its listener says so
	}
	text := func(key string) string {
		b, wrong := base64.StdEncoding.DecodeString(o.Data[key])
		if wrong != nil {
			return ""
		}
		return string(b)
	}
	return gatewayapi.Certificate{Cert: text("tls.crt"), Key: text("tls.key")}, err
}

// writeEntries makes the catalog have these entries, and of its own no others. What it refuses is told.
func (s *Sync) writeEntries(ctx context.Context, want []gatewayapi.Entry) (refused []catalogsync.Problem, err error) {
	have, err := s.ownEntries(ctx)
	if err != nil {
		return nil, err
	}
	for _, e := range want {
		text, err := json.Marshal(e.Body)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(text)
		hash := hex.EncodeToString(sum[:])
		key := e.Kind + "/" + e.Name
		was, there := have[key]
		delete(have, key)
		switch {
		case there && was == hash:
			continue
		case there && was == "":
			refused = append(refused, catalogsync.Problem{Service: key, Why: "the catalog has an entry of somebody else"})
			continue
		}
		body := maps.Clone(e.Body)
		meta, _ := body["Meta"].(map[string]string)
		meta = maps.Clone(meta)
		meta[hashKey] = hash
		body["Meta"] = meta
		err = s.cfg.Catalog.Put(ctx, "/v1/config", nil, body, nil)
		if isRefusal(err) {
			refused = append(refused, catalogsync.Problem{Service: key, Why: "the catalog refuses it: " + err.Error()})
			continue
		}
		if err != nil {
			return nil, err
		}
		s.Counts.Registered.Add(1)
	}
	for _, kind := range entryKinds {
		for _, key := range slices.Sorted(maps.Keys(have)) {
			if of, name, _ := strings.Cut(key, "/"); of == kind && have[key] != "" {
				if err := s.cfg.Catalog.Send(ctx, http.MethodDelete, "/v1/config/"+kind+"/"+client.Escape(name), nil, nil,
					nil); err != nil {
					return nil, err
				}
				s.Counts.Deregistered.Add(1)
			}
		}
	}
	return refused, nil
}

// isRefusal tells an answer that will be the same the next time from one that may not.
func isRefusal(err error) bool {
	var e *client.Error
	return errors.As(err, &e) && (e.Code == http.StatusBadRequest || e.Code == http.StatusForbidden ||
		e.Code == http.StatusInternalServerError && !strings.Contains(e.Body, "leader"))
}

// ownEntries are the hashes of entries by kind/name; that of somebody else's is "".
func (s *Sync) ownEntries(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	for _, kind := range entryKinds {
		var list []struct {
			Name string
			Meta map[string]string
		}
		if _, err := s.cfg.Catalog.Get(ctx, "/v1/config/"+kind, client.Query{}, &list); err != nil {
			return nil, err
		}
		for _, e := range list {
			out[kind+"/"+e.Name] = e.Meta[hashKey]
		}
	}
	return out, nil
}

// writeStatus writes the status of what differs from it.
func (s *Sync) writeStatus(ctx context.Context, in *gatewayapi.Input, out *gatewayapi.Output) error {
	now := time.Now().UTC().Format(time.RFC3339)
	patch := func(path string, old, want any) error {
		if same(old, want) {
			return nil
		}
		body := map[string]any{"status": gatewayapi.Stamp(want, old, now)}
		err := s.cfg.Kube.Send(ctx, http.MethodPatch, gatewayPath+path+"/status", "application/merge-patch+json", body, nil)
		if kubeapi.Is(err, http.StatusNotFound) || kubeapi.Is(err, http.StatusConflict) {
			return nil // the watch tells what became of it
		}
		if err == nil {
			s.Counts.ClusterWrites.Add(1)
		}
		return err
	}
	for i := range in.Classes {
		c := &in.Classes[i]
		if want, ok := out.Classes[c.Metadata.Key()]; ok {
			if err := patch("gatewayclasses/"+url.PathEscape(c.Metadata.Name), c.Status, want); err != nil {
				return fmt.Errorf("write the status of class %s: %w", c.Metadata.Name, err)
			}
		}
	}
	for i := range in.Gateways {
		g := &in.Gateways[i]
		if want, ok := out.Gateways[g.Metadata.Key()]; ok {
			if err := patch("namespaces/"+url.PathEscape(g.Metadata.Namespace)+"/gateways/"+url.PathEscape(g.Metadata.Name),
				g.Status, want); err != nil {
				return fmt.Errorf("write the status of gateway %s: %w", g.Metadata.Key(), err)
			}
		}
	}
	for i := range in.Routes {
		r := &in.Routes[i]
		want, ok := out.Routes[r.Metadata.Key()]
		old := gatewayapi.Own(r.Status)
		if !ok && len(old.Parents) == 0 {
			continue
		}
		if same(old, want) {
			continue
		}
		if err := patch("namespaces/"+url.PathEscape(r.Metadata.Namespace)+"/httproutes/"+url.PathEscape(r.Metadata.Name),
			r.Status, gatewayapi.Beside(r.Status, want)); err != nil {
			return fmt.Errorf("write the status of route %s: %w", r.Metadata.Key(), err)
		}
	}
	return nil
}

// same compares two statuses but for the times in them.
func same(a, b any) bool {
	x, errX := json.Marshal(gatewayapi.Stamp(a, nil, ""))
	y, errY := json.Marshal(gatewayapi.Stamp(b, nil, ""))
	return errX == nil && errY == nil && string(x) == string(y)
}
