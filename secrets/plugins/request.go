package plugins

import (
	"encoding/json"
	"net/netip"
	"strings"
	"time"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/plugins/message"
)

// Operations that no client names.
const (
	opRenew    = "renew"
	opRevoke   = "revoke"
	opRollback = "rollback"
)

// holder is who asks, as a plug-in is told.
type holder struct {
	token    string // a name of the token that opens nothing
	accessor string
	known    bool // it showed a token
}

// asked is a request in the words of plug-ins.
func asked(e *mount.Entry, r *secrets.Request, who holder) (*message.RequestArgs, error) {
	f, err := r.Fields()
	if err != nil {
		return nil, err
	}
	values := make(map[string]any, f.Len())
	for _, name := range f.Names() {
		values[name] = f.Any(name)
	}
	data, err := json.Marshal(values)
	if err != nil {
		return nil, err
	}
	out := about(e, r.Op.String(), r.Rest)
	if r.Op == secrets.List && out.Path != "" && !strings.HasSuffix(out.Path, "/") {
		out.Path += "/"
	}
	out.ID, out.Data = r.ID, string(data)
	out.ClientToken, out.Accessor, out.Unauthenticated = who.token, who.accessor, !who.known
	out.DisplayName, out.EntityID = r.Holder, r.Whose
	out.Connection = connection(r.Remote, r.RemotePort, r.Certificates)
	if r.Wrap > 0 {
		out.Wrap = &message.WrapInfo{TTL: int64(r.Wrap)}
	}
	return &message.RequestArgs{Request: out}, nil
}

// about is a request to a mount, with no data.
func about(e *mount.Entry, op, path string) *message.Request {
	return &message.Request{Operation: op, Path: path, Data: "{}",
		Mounted: message.Mounted{MountPoint: e.Path, MountType: e.Type, MountAccessor: e.Accessor}}
}

func connection(from netip.Addr, port uint16, certificates [][]byte) *message.Connection {
	c := &message.Connection{RemotePort: int32(port)}
	if from.IsValid() {
		c.RemoteAddr = from.String()
	}
	if len(certificates) > 0 {
		chain := &message.Chain{}
		for _, der := range certificates {
			chain.Certificates = append(chain.Certificates, &message.Certificate{DER: der})
		}
		c.TLS = &message.TLS{HandshakeComplete: true, Peer: chain}
	}
	return c
}

// leased is what is kept of a lease, for its renewal and its end.
type leased struct {
	Path     string          `json:"path"`
	Internal json.RawMessage `json:"internal"`
	Issued   time.Time       `json:"issued"`
	TTL      time.Duration   `json:"ttl"`
	MaxTTL   time.Duration   `json:"max_ttl"`
}

// ofLease asks for a lease's renewal or its end.
func ofLease(e *mount.Entry, op string, l engine.Lease, now time.Time) (*message.RequestArgs, error) {
	var kept leased
	if err := json.Unmarshal(l.Internal, &kept); err != nil {
		return nil, errBrokenLease
	}
	r := about(e, op, kept.Path)
	left := max(l.Expires.Sub(now), 0)
	r.Secret = &message.Secret{LeaseID: l.ID, Internal: string(kept.Internal), Lease: &message.LeaseOptions{
		TTL: int64(kept.TTL), MaxTTL: int64(kept.MaxTTL), Renewable: true, Increment: int64(left),
		IssueTime: &message.Time{Seconds: kept.Issued.Unix()}}}
	return &message.RequestArgs{Request: r}, nil
}

// loggedIn is what is kept of a login, for the renewals of its token.
type loggedIn struct {
	Path     string            `json:"path"`
	Internal json.RawMessage   `json:"internal"`
	Meta     map[string]string `json:"meta,omitempty"`
	Display  string            `json:"display_name,omitempty"`
	Alias    string            `json:"alias,omitempty"`
	Policies []string          `json:"policies,omitempty"`
	Period   time.Duration     `json:"period,omitempty"`
	TTL      time.Duration     `json:"ttl,omitempty"`
	MaxTTL   time.Duration     `json:"max_ttl,omitempty"`
	Issued   time.Time         `json:"issued"`
}

// ofLogin asks whether a token may be renewed.
func ofLogin(e *mount.Entry, l engine.Login) (*message.RequestArgs, *loggedIn, error) {
	kept := &loggedIn{}
	if err := json.Unmarshal(l.Data, kept); err != nil {
		return nil, nil, errBrokenLogin
	}
	r := about(e, opRenew, kept.Path)
	r.Auth = &message.Auth{Internal: string(kept.Internal), DisplayName: kept.Display, Policies: kept.Policies,
		TokenPolicies: kept.Policies, Metadata: kept.Meta, Period: int64(kept.Period),
		Alias: &message.Alias{Name: kept.Alias, MountType: e.Type, MountAccessor: e.Accessor},
		Lease: &message.LeaseOptions{TTL: int64(kept.TTL), MaxTTL: int64(kept.MaxTTL), Renewable: true,
			IssueTime: &message.Time{Seconds: kept.Issued.Unix()}}}
	return &message.RequestArgs{Request: r}, kept, nil
}
