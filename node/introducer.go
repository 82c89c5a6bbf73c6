package node

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"regexp"
	"strconv"
	"strings"

	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/grants"
	"corbel.dev/corbel/catalog/login"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/mesh/ca"
	"corbel.dev/corbel/mesh/issue"
	"corbel.dev/corbel/node/config"
)

// introducer gives agents that show a good JWT what they need to be one of the cluster. Strangers may ask it, so it
// works on few requests at once, fairly between addresses, and does nothing for a request before its JWT was judged.
type introducer struct {
	p          *Process
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

// buildIntroducer makes the introducer where the configuration wants one.
func (p *Process) buildIntroducer() error {
	c := &p.Cfg.AutoConfig
	if !c.Authorize {
		return nil
	}
	i := &introducer{p: p, verifier: login.New(p.Clock), method: introMethod(&c.Static), assertions: c.Static.Assertions,
		gate: limit.NewGate(limit.GateConfig{Name: "introductions", Slots: introSlots, MaxWaiting: introWaiting,
			Clock: p.Clock})}
	if err := checkIntroRules(c); err != nil {
		return err
	}
	if !strings.Contains(strings.Join(i.assertions, " "), "${node}") {
		p.Log.Warn("auto_config.authorization: no claim_assertion names ${node}, so a JWT that is good for one agent is " +
			"good for every name")
	}
	p.introducer = i
	return nil
}

// checkIntroRules names what is wrong in the rules.
func checkIntroRules(c *config.AutoConfig) error {
	if !c.Authorize {
		return nil
	}
	verifier, method := login.New(nil), introMethod(&c.Static)
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
func introMethod(r *config.IntroRules) *acl.AuthMethod {
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
var plainNodeName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,253}$`)

// serve answers methodIntroduce: here when this server leads, as tokens are made there, else by asking the leader.
func (i *introducer) serve(ctx context.Context, req []byte) ([]byte, error) {
	if !i.p.raft.IsLeader() {
		return i.p.callLeader(ctx, methodIntroduce, req)
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
	var r introRequest
	if err := json.Unmarshal(req, &r); err != nil {
		return nil, errkind.E(errkind.Invalid, "read a request for an introduction", err)
	}
	if err := i.judge(ctx, &r); err != nil {
		i.p.Log.Warn("an agent was not introduced", "node", r.Node, "from", host, "error", err)
		return nil, err
	}
	in, err := i.introduce(ctx, host, &r)
	if err != nil {
		return nil, err
	}
	i.p.Log.Info("an agent was introduced", "node", r.Node, "from", host)
	return json.Marshal(in)
}

// judge is nil when the JWT is good for the agent's name.
func (i *introducer) judge(ctx context.Context, r *introRequest) error {
	switch dc := i.p.Cfg.Node.Datacenter; {
	case r.Datacenter != dc:
		return errkind.Errorf(errkind.Invalid, "auto_config: the agent is of datacenter %q, this one is %s", r.Datacenter, dc)
	case !plainNodeName.MatchString(r.Node):
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
			i.p.Log.Warn("the JWT of an agent does not satisfy an assertion", "node", r.Node, "assertion", text)
			return errkind.New(errkind.Denied, "Permission denied: the JWT does not satisfy "+
				"auto_config.authorization.static.claim_assertions for the node "+r.Node)
		}
	}
	return nil
}

// introduce makes what the agent gets. The certificate comes first: a request that cannot be signed leaves no token
// behind.
func (i *introducer) introduce(ctx context.Context, from string, r *introRequest) (*introduction, error) {
	p, c := i.p, i.p.Current()
	domain, err := ca.TrustDomainOf(p.registry.State())
	if err != nil {
		return nil, err
	}
	signed, err := p.issuer.Sign(ctx, from,
		issue.Request{CSR: r.CSR, Judged: &ca.ID{Kind: ca.AgentID, TrustDomain: domain, Datacenter: r.Datacenter,
			Name: r.Node}})
	if err != nil {
		return nil, err
	}
	in := &introduction{PrimaryDatacenter: c.Node.PrimaryDatacenter, Join: p.gossipOfServers(),
		VerifyServerHostname: c.TLS.InternalRPC.VerifyServerHostname, TLSMinVersion: c.TLS.InternalRPC.MinVersion,
		CertPEM: signed.CertPEM}
	if keys, err := p.Pool.LocalKeys(); err == nil { // else gossip is plain
		for key := range maps.Keys(keys.PrimaryKeys) {
			in.GossipKey, in.VerifyIncoming, in.VerifyOutgoing = key, c.Gossip.VerifyIncoming, c.Gossip.VerifyOutgoing
		}
	}
	if p.access.keeper == nil {
		return in, nil
	}
	t, err := p.access.keeper.CreateToken(ctx,
		grants.TokenRequest{Token: acl.Token{Description: "auto_config: agent " + r.Node, Local: true,
			Grants: acl.Grants{NodeIdentities: []acl.NodeIdentity{{NodeName: r.Node, Datacenter: r.Datacenter}}}}})
	if err != nil {
		return nil, err
	}
	in.ACL = introACL{Enabled: true, DefaultPolicy: c.ACL.DefaultPolicy, DownPolicy: c.ACL.DownPolicy,
		KeyListPolicy: c.ACL.KeyListPolicy,
		TokenTTL:      c.ACL.TokenTTL, PolicyTTL: c.ACL.PolicyTTL, RoleTTL: c.ACL.RoleTTL, Token: t.SecretID}
	return in, nil
}

// gossipOfServers are the addresses at which the living servers can be joined.
func (p *Process) gossipOfServers() (list []string) {
	for _, m := range p.Pool.Members(member.ActHintJoin) {
		list = append(list, net.JoinHostPort(m.Addr, strconv.Itoa(m.Port)))
	}
	return list
}
