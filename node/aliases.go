package node

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/local"
	"corbel.dev/corbel/kit/errkind"
)

// mayReadLocal tells whether a token may read a service, or with "" this node.
func (p *localAgent) mayReadLocal(ctx context.Context, token, service string) error {
	if !p.Cfg.ACL.Enabled {
		return nil
	}
	grant, err := p.access.tokens.Grant(ctx, token)
	switch {
	case err != nil:
		return err
	case service == "":
		return grant.Check(acl.Node, p.Cfg.Node.Name, acl.Read)
	}
	return grant.Check(acl.Service, service, acl.Read)
}

// readNode is what a token may read of a node in the catalog, nil when that is nothing.
func (p *localAgent) readNode(ctx context.Context, token, node string) (*local.Seen, error) {
	var known *struct {
		Services map[string]json.RawMessage
	}
	if err := p.readSelf(ctx, "/v1/catalog/node/"+url.PathEscape(node)+"?stale", token, &known); err != nil ||
		known == nil {
		return nil, err
	}
	seen := &local.Seen{Services: map[string]bool{}}
	for id := range known.Services {
		seen.Services[id] = true
	}
	var checks []struct{ CheckID, Name, Status, Output, ServiceID string }
	if err := p.readSelf(ctx, "/v1/health/node/"+url.PathEscape(node)+"?stale", token, &checks); err != nil {
		return nil, err
	}
	for _, c := range checks {
		status, known := catalog.ParseHealth(c.Status)
		if !known {
			status = catalog.Critical
		}
		seen.Checks = append(seen.Checks, &catalog.Check{Node: node, ID: c.CheckID, Name: c.Name, Status: status,
			Output: c.Output, ServiceID: c.ServiceID})
	}
	return seen, nil
}

func (p *localAgent) readSelf(ctx context.Context, path, token string, v any) error {
	status, _, body, err := p.askSelf(ctx, "127.0.0.1:0", http.MethodGet, path, token, nil)
	switch {
	case err != nil:
		return err
	case status == http.StatusForbidden:
		return errkind.New(errkind.Denied, strings.TrimSpace(string(body)))
	case status != http.StatusOK:
		return errkind.Errorf(errkind.Unavailable, "%d %s", status, strings.TrimSpace(string(body)))
	}
	return json.Unmarshal(body, v)
}
