package keeper

import (
	"context"
	"encoding/json"
	"net/url"
	"slices"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables"
)

// corsKey is where the settings for browsers are.
const corsKey = "core/cors"

// corsHeaders are allowed beside those of the settings.
var corsHeaders = []string{"Content-Type", "X-Requested-With", "X-Vault-AWS-IAM-Server-ID", "X-Vault-MFA", "X-Vault-No-Request-Forwarding", "X-Vault-Wrap-Format",
	"X-Vault-Wrap-TTL", "X-Vault-Policy-Override", "Authorization", "X-Vault-Token"}

// CORS returns the settings; off while sealed.
func (k *Keeper) CORS() tables.CORS {
	if st := k.gate.Load(); st != nil {
		return st.CORS
	}
	return tables.CORS{}
}

func (k *Keeper) loadCORS(ctx context.Context, st *tables.Tables) error {
	raw, ok, err := k.records.Get(ctx, corsKey)
	if err != nil || !ok {
		return err
	}
	if json.Unmarshal(raw, &st.CORS) != nil {
		return errkind.Errorf(errkind.Corrupt, "%s is not what was stored", corsKey)
	}
	return nil
}

func (s *system) readCORS(c *sysCall) (any, error) {
	if !c.Tables.CORS.Enabled {
		return map[string]any{"enabled": false}, nil
	}
	return c.Tables.CORS, nil
}

func (s *system) writeCORS(c *sysCall) (any, error) {
	next := tables.CORS{Enabled: c.f.Bool("enable", true), Origins: c.f.Strings("allowed_origins"), Headers: slices.Concat(corsHeaders, c.f.Strings("allowed_headers"))}
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	if len(next.Origins) == 0 {
		return nil, errkind.New(errkind.Invalid, "at least one origin or the wildcard must be provided")
	}
	if slices.Contains(next.Origins, "*") && len(next.Origins) > 1 {
		return nil, errkind.New(errkind.Invalid, "to allow all origins the '*' must be the only value for allowed_origins")
	}
	for _, origin := range next.Origins {
		if u, err := url.Parse(origin); origin != "*" && (err != nil || u.Scheme == "" || u.Host == "" || u.Path != "") {
			return nil, errkind.Errorf(errkind.Invalid, "field \"allowed_origins\": %q is no origin, as https://example.org", origin)
		}
	}
	return nil, s.setCORS(c, next)
}

func (s *system) deleteCORS(c *sysCall) (any, error) { return nil, s.setCORS(c, tables.CORS{}) }

func (s *system) setCORS(c *sysCall, next tables.CORS) error {
	return s.k.gate.Change(c, func(st tables.Tables) (*tables.Tables, []storage.Op, error) {
		op, err := storage.PutJSON(corsKey, next)
		st.CORS = next
		return &st, []storage.Op{op}, err
	})
}
