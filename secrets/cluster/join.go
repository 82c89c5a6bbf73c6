package cluster

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/core/group"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/barrier"
	"corbel.dev/corbel/secrets/seal"
	"corbel.dev/corbel/secrets/sealing"
)

// How a server joins a Raft cluster: it asks any member for a challenge, and gets with it the records of the seal, so
// that people (or an automatic seal) can give it the root key. With a key that is derived of that one it answers the
// challenge, and the active server adds it to the group and gives it the cluster's authority, sealed with another
// derived key. So nothing on the way is worth stealing, and nobody joins who could not unseal.

// JoinTarget is a server of a cluster to join.
type JoinTarget struct {
	APIAddr                       string
	ServerName                    string
	CACert, ClientCert, ClientKey []byte // PEM
	NonVoter                      bool
}

// invitation is what a cluster that this server asked to join has said.
type invitation struct {
	target  JoinTarget
	Records map[string][]byte // of the seal: they show what is needed to unseal
}

// The paths below /v1/sys/storage/raft/bootstrap/ and what goes over them.
const (
	challengePath = "/v1/sys/storage/raft/bootstrap/challenge"
	answerPath    = "/v1/sys/storage/raft/bootstrap/answer"

	answerPurpose = "corbel: join a Raft cluster"
	replyPurpose  = "corbel: the authority of a Raft cluster"

	challengeAge = 2 * time.Minute
	joinWithin   = 60 * time.Second
	maxJoinBytes = 1 << 20
)

// Challenge is what a joiner is given.
type Challenge struct {
	Challenge string            `json:"challenge"`
	Records   map[string][]byte `json:"records"`
}

// Answer is what a joiner answers.
type Answer struct {
	ServerID    string `json:"server_id"`
	ClusterAddr string `json:"cluster_addr"`
	NonVoter    bool   `json:"non_voter"`
	Challenge   string `json:"challenge"`
	Answer      []byte `json:"answer"`
}

func (a *Answer) proof(root []byte) []byte {
	mac := hmac.New(sha256.New, root)
	for _, part := range []string{"answer", a.Challenge, a.ServerID, a.ClusterAddr, fmt.Sprint(a.NonVoter)} {
		mac.Write(binary.AppendUvarint(nil, uint64(len(part))))
		mac.Write([]byte(part))
	}
	return mac.Sum(nil)
}

var (
	errNotRaft   = errkind.New(errkind.Invalid, "the storage is not raft")
	errChallenge = errkind.New(errkind.Denied, "the challenge is not one of this cluster, or is too old: ask for another")
	errProof     = errkind.New(errkind.Denied, "the answer is wrong: the joining server was unsealed with other keys")
)

// Invite gives a challenge to a server that wants to join; on the active server.
func (c *Cluster) Invite(ctx context.Context, serverID string) (*Challenge, error) {
	if c.cfg.Raft == nil {
		return nil, errNotRaft
	}
	if serverID == "" {
		return nil, errkind.New(errkind.Invalid, "server_id: is missing")
	}
	key, err := c.keeper.Derive(answerPurpose)
	if err != nil {
		return nil, err
	}
	out := &Challenge{Challenge: challengeOf(key, serverID, c.cfg.Clock.Now()), Records: map[string][]byte{}}
	for _, name := range sealing.SealRecords() {
		value, ok, err := c.cfg.Storage.Get(ctx, name)
		if err != nil {
			return nil, err
		}
		if ok {
			out.Records[name] = value
		}
	}
	return out, nil
}

// challengeOf is a time with a mark that only this cluster can make: nothing is remembered of challenges that were
// given.
func challengeOf(key []byte, serverID string, at time.Time) string {
	stamp := binary.BigEndian.AppendUint64(nil, uint64(at.Unix()))
	mac := hmac.New(sha256.New, key)
	mac.Write(append(append([]byte("challenge\x00"), stamp...), serverID...))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(stamp))
}

func checkChallenge(key []byte, serverID, challenge string, now time.Time) bool {
	raw, err := base64.RawURLEncoding.DecodeString(challenge)
	if err != nil || len(raw) < 8 {
		return false
	}
	at := time.Unix(int64(binary.BigEndian.Uint64(raw)), 0)
	return hmac.Equal([]byte(challengeOf(key, serverID, at)), []byte(challenge)) && now.Sub(at).Abs() < challengeAge
}

// Admit takes a joiner's answer: the server becomes a member without a vote, which autopilot gives it, and gets the
// authority of the cluster.
func (c *Cluster) Admit(ctx context.Context, a *Answer) (sealed []byte, err error) {
	n := c.cfg.Raft
	if n == nil {
		return nil, errNotRaft
	}
	key, err := c.keeper.Derive(answerPurpose)
	if err != nil {
		return nil, err
	}
	if !checkChallenge(key, a.ServerID, a.Challenge, c.cfg.Clock.Now()) {
		return nil, errChallenge
	}
	if !hmac.Equal(a.proof(key), a.Answer) {
		return nil, errProof
	}
	if _, _, err := net.SplitHostPort(a.ClusterAddr); err != nil {
		return nil, errkind.Errorf(errkind.Invalid, "cluster_addr: %q is no host:port", a.ClusterAddr)
	}
	if err := c.admit(ctx, a); err != nil {
		return nil, err
	}
	raw, err := authorityOf(n)
	if err != nil {
		return nil, err
	}
	reply, err := c.keeper.Derive(replyPurpose)
	if err != nil {
		return nil, err
	}
	return seal.Wrap(reply, raw, a.Challenge)
}

// authorityOf is the authority as it stands on the disk.
func authorityOf(n *Node) ([]byte, error) {
	authority, err := load(n.cfg.FS, n.path(authorityFile))
	if err != nil || authority == nil {
		return nil, errkind.Errorf(errkind.Unavailable, "the cluster's authority is not there: %w", err)
	}
	return json.Marshal(authority)
}

func (c *Cluster) admit(ctx context.Context, a *Answer) error {
	n := c.cfg.Raft
	g := n.group.Load()
	if g == nil {
		return errNotOpen
	}
	list, _, err := g.Configuration()
	if err != nil {
		return err
	}
	for _, s := range list {
		if s.ID == a.ServerID && s.Address == a.ClusterAddr {
			return nil // it asks again
		}
		if s.Address == a.ClusterAddr && s.ID != a.ServerID {
			if err := g.RemoveServer(ctx, s.ID); err != nil { // it lost its data and comes back as somebody new
				return err
			}
		}
	}
	if err := (admin{c}).setReplica(ctx, a.ServerID, a.NonVoter); err != nil {
		return err
	}
	c.cfg.Log.Info("secrets: a server joins the Raft cluster", "server", a.ServerID, "address", a.ClusterAddr, "non_voter",
		a.NonVoter)
	if i := slices.IndexFunc(list, func(s group.Server) bool { return s.ID == a.ServerID && s.Voter }); i >= 0 {
		return g.AddVoter(ctx, a.ServerID, a.ClusterAddr)
	}
	return g.AddNonvoter(ctx, a.ServerID, a.ClusterAddr)
}

// Join asks a server for an invitation. Its records are shown as this server's seal from then on, and Joining makes use
// of the root key that they lead to.
func (n *Node) Join(ctx context.Context, t JoinTarget) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.Member() {
		return errkind.New(errkind.Invalid, "this server is a member of a Raft cluster already")
	}
	if !n.cfg.Own {
		return errkind.New(errkind.Invalid, "the members of this cluster are its servers: nobody joins by hand")
	}
	ch, err := n.ask(ctx, &t)
	if err != nil {
		return err
	}
	n.joined.Store(&invitation{t, ch.Records})
	return nil
}

// Invited reports whether this server waits for the keys to join with.
func (n *Node) Invited() bool { return n.joined.Load() != nil }

func (n *Node) ask(ctx context.Context, t *JoinTarget) (*Challenge, error) {
	ch := &Challenge{}
	if err := post(ctx, t, challengePath, map[string]string{"server_id": n.cfg.ID}, ch); err != nil {
		return nil, err
	}
	if len(ch.Records) == 0 {
		return nil, errkind.Errorf(errkind.Unavailable, "%s gave no challenge: is it a server of a Raft cluster?", t.APIAddr)
	}
	ch.Records[barrier.KeyringPath] = []byte{} // there is one, and it cannot be had yet
	return ch, nil
}

// Joining is for keeper.Config: a server that was invited becomes a member with the root key, and waits for the
// keyring.
func (n *Node) Joining(ctx context.Context, root []byte) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	in := n.joined.Load()
	if in == nil || n.Member() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, joinWithin)
	defer cancel()
	ch, err := n.ask(ctx, &in.target) // the first one may be old by now
	if err != nil {
		return err
	}
	a := &Answer{ServerID: n.cfg.ID, ClusterAddr: n.cfg.Address, NonVoter: in.target.NonVoter, Challenge: ch.Challenge}
	a.Answer = a.proof(barrier.Derive(root, answerPurpose))
	var reply struct {
		Authority []byte `json:"authority"`
	}
	if err := post(ctx, &in.target, answerPath, a, &reply); err != nil {
		return err
	}
	raw, err := seal.Unwrap(barrier.Derive(root, replyPurpose), reply.Authority, ch.Challenge)
	if err != nil {
		return errkind.New(errkind.Denied, "the cluster's answer does not open: it is under other keys")
	}
	authority := &Authority{}
	if err := json.Unmarshal(raw, authority); err != nil {
		return errkind.E(errkind.Invalid, "the cluster's answer", err)
	}
	if err := n.become(authority); err != nil {
		return err
	}
	if err := authority.save(n.cfg.FS, n.path(authorityFile)); err != nil {
		return err
	}
	if err := n.begin(ctx, nil); err != nil {
		return err
	}
	n.joined.Store(nil)
	return n.awaitKeyring(ctx)
}

// awaitKeyring waits until this member's copy has what a server needs to unseal.
func (n *Node) awaitKeyring(ctx context.Context) error {
	for {
		if _, ok, err := n.Get(ctx, barrier.KeyringPath); ok && err == nil {
			return nil
		}
		t := n.cfg.Clock.NewTimer(20 * time.Millisecond)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return errkind.New(errkind.Unavailable,
				"this server is a member now, and the cluster's records have not come yet: unseal it again in a moment")
		}
	}
}

// post sends JSON to a server of the cluster and reads its data.
func post(ctx context.Context, t *JoinTarget, path string, in, out any) error {
	cfg := &tls.Config{ServerName: t.ServerName, MinVersion: tls.VersionTLS12}
	if len(t.CACert) > 0 {
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(t.CACert) {
			return errkind.New(errkind.Invalid, "leader_ca_cert: is no certificate in PEM")
		}
	}
	if len(t.ClientCert) > 0 {
		pair, err := tls.X509KeyPair(t.ClientCert, t.ClientKey)
		if err != nil {
			return errkind.E(errkind.Invalid, "leader_client_cert, leader_client_key", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	transport := &http.Transport{TLSClientConfig: cfg, Proxy: http.ProxyFromEnvironment}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 30 * time.Second}
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, strings.TrimSuffix(t.APIAddr, "/")+path,
		bytes.NewReader(body))
	if err != nil {
		return errkind.E(errkind.Invalid, "leader_api_addr", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return errkind.E(errkind.Unavailable, "ask "+t.APIAddr, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxJoinBytes))
	if err != nil {
		return errkind.E(errkind.Unavailable, "ask "+t.APIAddr, err)
	}
	var answer struct {
		Data   json.RawMessage `json:"data"`
		Errors []string        `json:"errors"`
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return errkind.Errorf(errkind.Unavailable, "%s answered with status %d, which is no answer of such a server",
			t.APIAddr, resp.StatusCode)
	}
	if resp.StatusCode != http.StatusOK {
		return errkind.Errorf(errkind.Unavailable, "%s answered with status %d: %s", t.APIAddr, resp.StatusCode,
			strings.Join(answer.Errors, "; "))
	}
	return json.Unmarshal(answer.Data, out)
}
