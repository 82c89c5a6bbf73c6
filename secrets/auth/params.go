package auth

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
)

// Params are the token_* parameters that every role has (contract 3.1).
type Params struct {
	TTL         time.Duration `json:"token_ttl,omitempty"`
	MaxTTL      time.Duration `json:"token_max_ttl,omitempty"`
	ExplicitMax time.Duration `json:"token_explicit_max_ttl,omitempty"`
	Period      time.Duration `json:"token_period,omitempty"`
	Policies    []string      `json:"token_policies,omitempty"`
	CIDRs       []string      `json:"token_bound_cidrs,omitempty"`
	NoDefault   bool          `json:"token_no_default_policy,omitempty"`
	NumUses     int           `json:"token_num_uses,omitempty"`
	Type        string        `json:"token_type,omitempty"`
}

// given is the name that a parameter was given by: its own, or the one of old without "token_".
func given(f *secrets.Fields, name string) (string, bool) {
	if f.Has(name) {
		return name, true
	}
	old := strings.TrimPrefix(name, "token_")
	return old, f.Has(old)
}

// Read takes the parameters that were given; the others stay as they are.
func (p *Params) Read(f *secrets.Fields) error {
	for name, into := range map[string]*time.Duration{"token_ttl": &p.TTL, "token_max_ttl": &p.MaxTTL,
		"token_explicit_max_ttl": &p.ExplicitMax, "token_period": &p.Period} {
		if as, ok := given(f, name); ok {
			if *into = f.Duration(as, 0); *into < 0 {
				return errkind.Errorf(errkind.Invalid, "field %q: must not be negative", as)
			}
		}
	}
	if as, ok := given(f, "token_policies"); ok {
		p.Policies = Names(f.Strings(as))
	}
	if as, ok := given(f, "token_bound_cidrs"); ok {
		var err error
		if p.CIDRs, err = Blocks(f, as); err != nil {
			return err
		}
	}
	if as, ok := given(f, "token_num_uses"); ok {
		if p.NumUses = f.Int(as, 0); p.NumUses < 0 {
			return errkind.Errorf(errkind.Invalid, "field %q: must not be negative", as)
		}
	}
	p.NoDefault = f.Bool("token_no_default_policy", p.NoDefault)
	if f.Has("token_type") {
		p.Type = f.String("token_type")
	}
	if err := f.Err(); err != nil {
		return err
	}
	switch {
	case !slices.Contains([]string{"", "default", "service", "batch", "default-service", "default-batch"}, p.Type):
		return errkind.Errorf(errkind.Invalid,
			"field \"token_type\": %q is none of default, service, batch, default-service, default-batch", p.Type)
	case (p.Type == "batch" || p.Type == "default-batch") && p.NumUses > 0:
		return errkind.New(errkind.Invalid, "field \"token_type\": cannot be batch or default-batch with token_num_uses: "+
			"batch tokens are not counted")
	case (p.Type == "batch" || p.Type == "default-batch") && p.Period > 0:
		return errkind.New(errkind.Invalid, "field \"token_type\": cannot be batch or default-batch with token_period: "+
			"batch tokens cannot be renewed")
	case (p.Type == "batch" || p.Type == "default-batch") && p.ExplicitMax > 0:
		return errkind.New(errkind.Invalid, "field \"token_type\": cannot be batch or default-batch with "+
			"token_explicit_max_ttl: batch tokens cannot be renewed")
	case p.MaxTTL > 0 && p.TTL > p.MaxTTL:
		return errkind.New(errkind.Invalid, "field \"token_ttl\": is greater than token_max_ttl")
	}
	return nil
}

// Show writes the parameters in the names that they are read by.
func (p *Params) Show(into map[string]any) {
	into["token_ttl"], into["token_max_ttl"] = Seconds(p.TTL), Seconds(p.MaxTTL)
	into["token_explicit_max_ttl"], into["token_period"] = Seconds(p.ExplicitMax), Seconds(p.Period)
	into["token_policies"], into["token_bound_cidrs"] = List(p.Policies), List(p.CIDRs)
	into["token_no_default_policy"], into["token_num_uses"] = p.NoDefault, p.NumUses
	into["token_type"] = p.Type
	if p.Type == "" {
		into["token_type"] = "default"
	}
}

// Auth is a login by these parameters: an orphan that can be renewed.
func (p *Params) Auth() *secrets.Auth {
	return &secrets.Auth{Policies: p.Policies, Lifetime: secrets.Lifetime{TTL: p.TTL, MaxTTL: p.MaxTTL,
		ExplicitMax: p.ExplicitMax, Period: p.Period,
		Renewable: true},
		NumUses: p.NumUses, Type: p.Type, Orphan: true, NoDefault: p.NoDefault, BoundCIDRs: p.CIDRs}
}

// Terms are what a renewal goes by.
func (p *Params) Terms() engine.Terms {
	return engine.Terms{TTL: p.TTL, MaxTTL: p.MaxTTL, Period: p.Period}
}

// errChanged is the error of a renewal whose role gives other policies than its login did.
var errChanged = errkind.New(errkind.Invalid, "policies have changed, not renewing")

// Unchanged reports that a token's policies are others than it would get by a login now; "default" does not count.
// Vault's userpass and cert ask that at a renewal; its approle, jwt and kubernetes do not.
func (p *Params) Unchanged(policies []string) error {
	own := func(list []string) []string {
		return slices.DeleteFunc(slices.Clone(list), func(name string) bool { return name == "default" })
	}
	if !slices.Equal(own(p.Policies), own(policies)) {
		return errChanged
	}
	return nil
}

// Seconds is a duration as the API shows it.
func Seconds(d time.Duration) int64 { return int64(d / time.Second) }

// List is a list as the API shows it: never null.
func List(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// Names are the names of policies in one form: lower case, in order, each once.
func Names(list []string) []string {
	var out []string
	for _, name := range list {
		if name = strings.ToLower(strings.TrimSpace(name)); name != "" {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Blocks reads a list of addresses and blocks of addresses.
func Blocks(f *secrets.Fields, name string) ([]string, error) {
	list := f.Strings(name)
	for _, text := range list {
		if _, ok := block(text); !ok {
			return nil, errkind.Errorf(errkind.Invalid,
				"field %q: %q is neither an address nor a block of addresses like 10.0.0.0/8", name, text)
		}
	}
	return list, nil
}

func block(text string) (netip.Prefix, bool) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.Masked(), true
	}
	addr, err := netip.ParseAddr(text)
	return netip.PrefixFrom(addr, addr.BitLen()), err == nil
}

// Within reports whether an address lies in one of the blocks; no blocks are no bound.
func Within(blocks []string, addr netip.Addr) bool {
	if len(blocks) == 0 {
		return true
	}
	for _, text := range blocks {
		if p, ok := block(text); ok && p.Contains(addr.Unmap()) {
			return true
		}
	}
	return false
}

// Narrower reports whether every block lies in one of the bounds; no bounds are none.
func Narrower(blocks, bounds []string) bool {
	for _, text := range blocks {
		p, ok := block(text)
		if ok && len(bounds) > 0 {
			ok = slices.ContainsFunc(bounds, func(text string) bool {
				bound, is := block(text)
				return is && bound.Bits() <= p.Bits() && bound.Contains(p.Addr())
			})
		}
		if !ok {
			return false
		}
	}
	return true
}
