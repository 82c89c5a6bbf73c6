package aws

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/engine"
)

// role says who may log in, under "role/<name>".
type role struct {
	Type       string      `json:"auth_type"`
	ID         string      `json:"role_id"`
	Principals []string    `json:"bound_iam_principal_arn,omitempty"`
	AMIs       []string    `json:"bound_ami_id,omitempty"`
	Accounts   []string    `json:"bound_account_id,omitempty"`
	Regions    []string    `json:"bound_region,omitempty"`
	Machines   []string    `json:"bound_ec2_instance_id,omitempty"`
	Migration  bool        `json:"allow_instance_migration,omitempty"`
	Once       bool        `json:"disallow_reauthentication,omitempty"`
	Tokens     auth.Params `json:"tokens"`
}

const (
	ofIAM = "iam"
	ofEC2 = "ec2"
)

func (r *role) bounds() map[string]*[]string {
	return map[string]*[]string{"bound_iam_principal_arn": &r.Principals, "bound_ami_id": &r.AMIs,
		"bound_account_id": &r.Accounts, "bound_region": &r.Regions, "bound_ec2_instance_id": &r.Machines}
}

// unknown are bounds that need an API of AWS.
var unknown = []string{"bound_vpc_id", "bound_subnet_id", "bound_iam_role_arn", "bound_iam_instance_profile_arn",
	"inferred_entity_type", "role_tag"}

// Read implements auth.Record.
func (r *role) Read(f *secrets.Fields) error {
	for field, at := range r.bounds() {
		if f.Has(field) {
			*at = f.Strings(field)
		}
	}
	kind := f.String("auth_type")
	r.Migration = f.Bool("allow_instance_migration", r.Migration)
	r.Once = f.Bool("disallow_reauthentication", r.Once)
	unique := f.Bool("resolve_aws_unique_ids", false)
	if err := r.Tokens.Read(f); err != nil {
		return err
	}
	for _, field := range unknown {
		if f.Has(field) && len(f.Strings(field)) > 0 {
			return invalid("field %q: cannot be bound: neither STS nor a machine's document tells it, and no other API of AWS "+
				"is asked", field)
		}
	}
	if err := f.Err(); err != nil {
		return err
	}
	switch {
	case unique:
		return invalid("field \"resolve_aws_unique_ids\": must be false: it needs IAM's API; a principal that is made anew " +
			"under its name can log in as the former one")
	case r.Type != "" && kind != "" && kind != r.Type:
		return invalid("field \"auth_type\": is %s: delete the role first", r.Type)
	case r.Type == "":
		if r.Type, r.ID = kind, uuid.NewString(); kind == "" {
			r.Type = ofIAM
		}
	}
	if err := r.check(); err != nil {
		return err
	}
	for _, pattern := range r.Principals {
		if i := strings.IndexByte(pattern, '*'); !strings.HasPrefix(pattern, "arn:") || i >= 0 && i < len(pattern)-1 ||
			strings.Count(pattern, ":") < 5 {
			return invalid("field \"bound_iam_principal_arn\": %q is not like arn:aws:iam::123456789012:role/NAME, with an "+
				"account, and a '*' at its end alone", pattern)
		}
	}
	return nil
}

func (r *role) check() error {
	switch {
	case r.Type != ofIAM && r.Type != ofEC2:
		return invalid("field \"auth_type\": must be iam or ec2")
	case r.Type == ofIAM && len(r.Principals) == 0:
		return invalid("field \"bound_iam_principal_arn\": at least one is needed by roles of the type iam")
	case r.Type == ofIAM && len(r.AMIs)+len(r.Accounts)+len(r.Regions)+len(r.Machines) > 0:
		return invalid("fields \"bound_ami_id\", \"bound_account_id\", \"bound_region\", \"bound_ec2_instance_id\": are " +
			"for roles of the type ec2")
	case r.Type == ofEC2 && len(r.Principals) > 0:
		return invalid("field \"bound_iam_principal_arn\": is for roles of the type iam")
	case r.Type == ofEC2 && len(r.AMIs)+len(r.Accounts)+len(r.Machines) == 0:
		return invalid("one of the fields \"bound_ami_id\", \"bound_account_id\", \"bound_ec2_instance_id\" is needed by " +
			"roles of the type ec2: any machine of AWS could log in")
	case r.Once && r.Migration:
		return invalid("fields \"allow_instance_migration\", \"disallow_reauthentication\": only one of them may be true")
	}
	return nil
}

// Show implements auth.Record.
func (r *role) Show() map[string]any {
	out := map[string]any{"auth_type": r.Type, "role_id": r.ID, "allow_instance_migration": r.Migration,
		"disallow_reauthentication": r.Once, "resolve_aws_unique_ids": false}
	for field, at := range r.bounds() {
		out[field] = auth.List(*at)
	}
	r.Tokens.Show(out)
	return out
}

// admits reports whether a principal is one of the role's.
func (r *role) admits(arn string) bool {
	return slices.ContainsFunc(r.Principals, func(pattern string) bool {
		prefix, star := strings.CutSuffix(pattern, "*")
		return pattern == arn || star && strings.HasPrefix(arn, prefix)
	})
}

// found gives the role of a login, which must be of the type.
func (l *attempt) found(name, kind string) (*role, error) {
	if name == "" {
		return nil, invalid("field \"role\": is required")
	}
	r, err := auth.Find[role](l, l.view, rolePrefix, name)
	switch {
	case err != nil:
		return nil, err
	case r == nil:
		return nil, invalid("entry for role %q not found", name)
	case r.Type != kind:
		return nil, invalid("auth method %s not allowed for role %s", kind, name)
	case !auth.Within(r.Tokens.CIDRs, l.Remote):
		return nil, auth.ErrDenied
	}
	return r, nil
}

// kept is what a token remembers of its login.
type kept struct {
	Role      string `json:"role"`
	Principal string `json:"principal,omitempty"` // of IAM
}

func (k kept) token(a *secrets.Auth) (*secrets.Response, error) {
	raw, err := json.Marshal(k)
	a.Login, a.AliasMeta = raw, a.Metadata
	return &secrets.Response{Auth: a}, err
}

// Renewable implements engine.Renewer: a role that is gone renews nothing, nor one that has the principal no more.
func (*Engine) Renewable(ctx context.Context, view engine.View, _ *secrets.Request, l engine.Login) (engine.Terms,
	error) {
	var k kept
	if json.Unmarshal(l.Data, &k) != nil {
		return engine.Terms{}, errkind.New(errkind.Corrupt, "the token's login is not what was stored")
	}
	r, err := auth.StillThere[role](ctx, view, rolePrefix, k.Role)
	if err != nil {
		return engine.Terms{}, err
	}
	if k.Principal != "" && !r.admits(k.Principal) {
		return engine.Terms{}, invalid("role no longer bound to ARN %q", k.Principal)
	}
	return r.Tokens.Terms(), nil
}
