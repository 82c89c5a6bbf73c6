package tools

import (
	"context"
	"net/url"
	"slices"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/system"
	"corbel.dev/corbel/secrets/tables"
)

// corsKey is where the settings for browsers are.
const corsKey = "core/cors"

// corsHeaders are allowed beside those of the settings.
var corsHeaders = []string{"Content-Type", "X-Requested-With", "X-Vault-AWS-IAM-Server-ID", "X-Vault-MFA",
	"X-Vault-No-Request-Forwarding", "X-Vault-Wrap-Format",
	"X-Vault-Wrap-TTL", "X-Vault-Policy-Override", "Authorization", "X-Vault-Token"}

// LoadCORS reads the settings for browsers.
func (o *Tools) LoadCORS(ctx context.Context, st *tables.Tables) error {
	_, err := o.Records.GetJSON(ctx, corsKey, &st.CORS)
	return err
}

func (o *Tools) readCORS(c *system.Call) (any, error) {
	if !c.Tables.CORS.Enabled {
		return map[string]any{"enabled": false}, nil
	}
	return c.Tables.CORS, nil
}

func (o *Tools) writeCORS(c *system.Call) (any, error) {
	next := tables.CORS{Enabled: c.F.Bool("enable", true), Origins: c.F.Strings("allowed_origins"),
		Headers: slices.Concat(corsHeaders, c.F.Strings("allowed_headers"))}
	if err := c.F.Err(); err != nil {
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
			return nil, errkind.Errorf(errkind.Invalid, "field \"allowed_origins\": %q is no origin, as https://example.org",
				origin)
		}
	}
	return nil, o.setCORS(c, next)
}

func (o *Tools) deleteCORS(c *system.Call) (any, error) { return nil, o.setCORS(c, tables.CORS{}) }

func (o *Tools) setCORS(c *system.Call, next tables.CORS) error {
	return o.Gate.Change(c, func(st tables.Tables) (*tables.Tables, []storage.Op, error) {
		op, err := storage.PutJSON(corsKey, next)
		st.CORS = next
		return &st, []storage.Op{op}, err
	})
}
