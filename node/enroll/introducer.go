package enroll

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"regexp"
	"strings"
	"sync"

	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/grants"
	"corbel.dev/corbel/catalog/login"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/mesh/ca"
	"corbel.dev/corbel/mesh/issue"
	"corbel.dev/corbel/node/config"
)

// IntroducerConfig describes an Introducer.
type IntroducerConfig struct {
	Datacenter string
	Rules      *config.AutoConfig
	Current    func() *config.Config // as the last reload left it
	// Leads tells whether this server introduces agents itself; else CallLeader passes a request on.
	Leads      func() bool
	CallLeader func(ctx context.Context, method string, req []byte) ([]byte, error)
	State      func() *statestore.State
	Issuer     *issue.Issuer
	// CreateToken makes an agent's token; nil where there are none.
	CreateToken func(context.Context, grants.TokenRequest) (*acl.Token, error)
	Join        func() []string // gossip addresses of servers
	Keys        func() (member.KeyAnswer, error)
	Clock       clock.Clock
	Log         *slog.Logger
}

// Introducer gives agents that show a good JWT what they need to be one of the cluster. Strangers may ask it, so it
// works on few requests at once, fairly between addresses, and does nothing for a request before its JWT was judged.
type Introducer struct {
	cfg        IntroducerConfig
	verifier   *login.Verifier
	method     *acl.AuthMethod
	assertions []string
	gate       *limit.Gate
}

// The bounds of introductions.
const (
	introSlots   = 8
	introWaiting = 512
)

// NewIntroducer checks the rules.
func NewIntroducer(cfg IntroducerConfig) (*Introducer, error) {
	rules := &cfg.Rules.Static
	i := &Introducer{cfg: cfg, verifier: login.New(cfg.Clock), method: methodOf(rules), assertions: rules.Assertions,
		gate: limit.NewGate(limit.GateConfig{Name: "introductions", Slots: introSlots, MaxWaiting: introWaiting,
			Clock: cfg.Clock})}
	if err := Check(cfg.Rules); err != nil {
		return nil, err
	}
	if !strings.Contains(strings.Join(i.assertions, " "), "${node}") {
		cfg.Log.Warn("auto_config.authorization: no claim_assertion names ${node}, so a JWT that is good for one agent is " +
			"good for every name")
	}
	return i, nil
}

// Check names what is wrong in the rules.
func Check(c *config.AutoConfig) error {
	if !c.Authorize {
		return nil
	}
	verifier, method := login.New(nil), methodOf(&c.Static)
	if err := verifier.Check(method); err != nil {
		return fmt.Errorf("auto_config.authorization.static: %w", err)
	}
	claims := verifier.Fields(method).Selectable
	for _, text := range c.Static.Assertions {
		if err := grants.CheckAssertion(fill(text, "node"), claims); err != nil {
			return fmt.Errorf("auto_config.authorization.static.claim_assertions: %q: %w", text, err)
		}
	}
	return nil
}

// introMethod is the rules as the auth method whose settings they are.
func methodOf(r *config.IntroRules) *acl.AuthMethod {
	settings := map[string]any{"BoundIssuer": r.BoundIssuer, "BoundAudiences": r.BoundAudiences,
		"JWTSupportedAlgs":     r.Algs,
		"JWTValidationPubKeys": r.PubKeys, "JWKSURL": r.JWKSURL, "JWKSCACert": r.JWKSCACert,
		"OIDCDiscoveryURL": r.OIDCDiscoveryURL, "OIDCDiscoveryCACert": r.OIDCDiscoveryCACert,
		"ClaimMappings": r.ClaimMappings, "ListClaimMappings": r.ListClaimMappings,
		"ExpirationLeeway": r.ExpirationLeeway.String(), "NotBeforeLeeway": r.NotBeforeLeeway.String(),
		"ClockSkewLeeway": r.ClockSkewLeeway.String()}
	return &acl.AuthMethod{Name: "auto_config", Type: "jwt", Config: settings}
}

// fill puts an agent's name into an assertion. There are neither segments nor partitions.
func fill(assertion, node string) string {
	return strings.NewReplacer("${node}", node, "${segment}", "", "${partition}", "default").Replace(assertion)
}

// plainNodeName are the names that an assertion can hold without changing its meaning.
// Its counted repetition takes long to compile, which not each start of the program shall do.
var plainNodeName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9._-]{1,253}$`)
})

// Serve implements MethodIntroduce: here when this server leads, as tokens are made there, else by asking the leader.
func (i *Introducer) Serve(ctx context.Context, req []byte) ([]byte, error) {
	if !i.cfg.Leads() {
		return i.cfg.CallLeader(ctx, MethodIntroduce, req)
	}
	host, _, err := net.SplitHostPort(rpc.Peer(ctx))
	if err != nil {
		host = rpc.Peer(ctx)
	}
	permit, err := i.gate.Acquire(ctx, host)
	if err != nil {
		return nil, err
	}
	defer permit.Release()
	var r Request
	if err := json.Unmarshal(req, &r); err != nil {
		return nil, errkind.E(errkind.Invalid, "read a request for an introduction", err)
	}
	if err := i.judge(ctx, &r); err != nil {
		i.cfg.Log.Warn("an agent was not introduced", "node", r.Node, "from", host, "error", err)
		return nil, err
	}
	in, err := i.Introduce(ctx, host, &r)
	if err != nil {
		return nil, err
	}
	i.cfg.Log.Info("an agent was introduced", "node", r.Node, "from", host)
	return json.Marshal(in)
}

// judge is nil when the JWT is good for the agent's name.
func (i *Introducer) judge(ctx context.Context, r *Request) error {
	switch dc := i.cfg.Datacenter; {
	case r.Datacenter != dc:
		return errkind.Errorf(errkind.Invalid, "auto_config: the agent is of datacenter %q, this one is %s", r.Datacenter, dc)
	case !plainNodeName().MatchString(r.Node):
		return errkind.Errorf(errkind.Invalid, "auto_config: the node name %q must be of letters, digits, dots, - and _",
			r.Node)
	}
	claims, err := i.verifier.Login(ctx, i.method, r.JWT)
	if err != nil {
		return err
	}
	for _, text := range i.assertions {
		if !grants.Holds(fill(text, r.Node), claims.Selectable) {
			// for the operator, not for the stranger
			i.cfg.Log.Warn("the JWT of an agent does not satisfy an assertion", "node", r.Node, "assertion", text)
			return errkind.New(errkind.Denied, "Permission denied: the JWT does not satisfy "+
				"auto_config.authorization.static.claim_assertions for the node "+r.Node)
		}
	}
	return nil
}

// Introduce makes what the agent gets. The certificate comes first: a request that cannot be signed leaves no token
// behind.
func (i *Introducer) Introduce(ctx context.Context, from string, r *Request) (*Introduction, error) {
	c := i.cfg.Current()
	domain, err := ca.TrustDomainOf(i.cfg.State())
	if err != nil {
		return nil, err
	}
	signed, err := i.cfg.Issuer.Sign(ctx, from,
		issue.Request{CSR: r.CSR, Judged: &ca.ID{Kind: ca.AgentID, TrustDomain: domain, Datacenter: r.Datacenter,
			Name: r.Node}})
	if err != nil {
		return nil, err
	}
	in := &Introduction{PrimaryDatacenter: c.Node.PrimaryDatacenter, Join: i.cfg.Join(),
		VerifyServerHostname: c.TLS.InternalRPC.VerifyServerHostname, TLSMinVersion: c.TLS.InternalRPC.MinVersion,
		CertPEM: signed.CertPEM}
	if keys, err := i.cfg.Keys(); err == nil { // else gossip is plain
		for key := range maps.Keys(keys.PrimaryKeys) {
			in.GossipKey, in.VerifyIncoming, in.VerifyOutgoing = key, c.Gossip.VerifyIncoming, c.Gossip.VerifyOutgoing
		}
	}
	if i.cfg.CreateToken == nil {
		return in, nil
	}
	t, err := i.cfg.CreateToken(ctx,
		grants.TokenRequest{Token: acl.Token{Description: "auto_config: agent " + r.Node, Local: true,
			Grants: acl.Grants{NodeIdentities: []acl.NodeIdentity{{NodeName: r.Node, Datacenter: r.Datacenter}}}}})
	if err != nil {
		return nil, err
	}
	in.ACL = ACL{Enabled: true, DefaultPolicy: c.ACL.DefaultPolicy, DownPolicy: c.ACL.DownPolicy,
		KeyListPolicy: c.ACL.KeyListPolicy,
		TokenTTL:      c.ACL.TokenTTL, PolicyTTL: c.ACL.PolicyTTL, RoleTTL: c.ACL.RoleTTL, Token: t.SecretID}
	return in, nil
}
