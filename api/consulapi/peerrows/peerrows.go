// Package peerrows answers /v1/peering and /v1/peerings: tokens for other clusters, their use, and how the peerings
// stand. What was imported from a peer is answered by the rows of the catalog, of prepared queries and by DNS.
package peerrows

import (
	"context"
	"net/http"
	"strings"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/peering"
	"corbel.dev/corbel/catalog/statestore"
)

// Config is what the rows need; Peers is nil on a client agent, and where peering is switched off.
type Config struct{ Peers Peers }

// Peers keeps the peerings, on a server. Errors of kind NotLeader have the request passed on.
type Peers interface {
	GenerateToken(ctx context.Context, in peering.TokenRequest) (string, error)
	Establish(ctx context.Context, in peering.EstablishRequest) error
	Delete(ctx context.Context, name string) error
	Stands(p *peering.Peering) (peering.State, peering.Status)
}

// Rows are the rows of peerings.
type Rows struct{ Config }

// New makes the rows; it starts nothing.
func New(cfg Config) *Rows { return &Rows{cfg} }

// Routes are the rows of this part of the contract.
func (pr *Rows) Routes() []rows.Row {
	return []rows.Row{
		rows.Write("POST", "/v1/peering/token", acl.Peering, pr.token),
		rows.Write("POST", "/v1/peering/establish", acl.Peering, pr.establish),
		rows.Read("GET", "/v1/peering/", acl.Peering, pr.read),
		rows.Write("DELETE", "/v1/peering/", acl.Peering, pr.remove),
		rows.Read("GET", "/v1/peerings", acl.Peering, pr.list),
	}
}

var errOff = answer.Fail(http.StatusInternalServerError,
	"peering is disabled: set peering.enabled = true on the servers")

// may asks for the right, and whether there is peering at all.
func (pr *Rows) may(q *rows.Request, l acl.Level) error {
	if err := q.Allow(acl.Peering, "", l); err != nil {
		return err
	}
	if pr.Peers == nil {
		return errOff
	}
	return nil
}

// partitioned refuses partitions, which the enterprise edition has.
func partitioned(name string) error {
	if name != "" && name != "default" {
		return answer.Invalidf("Invalid Partition %q: Partitions are a Consul Enterprise feature", name)
	}
	return nil
}

func (pr *Rows) token(q *rows.Request) error {
	var in struct {
		peering.TokenRequest
		Partition string
	}
	if err := q.Decode(&in); err != nil {
		return err
	}
	if err := pr.may(q, acl.Write); err != nil {
		return err
	}
	if in.PeerName == "" {
		return answer.Invalidf("PeerName is required in the payload when generating a new peering token.")
	}
	if err := partitioned(in.Partition); err != nil {
		return err
	}
	token, err := pr.Peers.GenerateToken(q.R.Context(), in.TokenRequest)
	if err != nil {
		return err
	}
	return q.ReplyValue(struct{ PeeringToken string }{token})
}

func (pr *Rows) establish(q *rows.Request) error {
	var in struct {
		peering.EstablishRequest
		Partition string
	}
	if err := q.Decode(&in); err != nil {
		return err
	}
	if err := pr.may(q, acl.Write); err != nil {
		return err
	}
	switch {
	case in.PeerName == "":
		return answer.Invalidf("PeerName is required in the payload when establishing a peering.")
	case in.PeeringToken == "":
		return answer.Invalidf("PeeringToken is required in the payload when establishing a peering.")
	}
	if err := partitioned(in.Partition); err != nil {
		return err
	}
	if err := pr.Peers.Establish(q.R.Context(), in.EstablishRequest); err != nil {
		return err
	}
	return q.ReplyValue(struct{}{})
}

func (pr *Rows) remove(q *rows.Request) error {
	if err := pr.may(q, acl.Write); err != nil {
		return err
	}
	if q.Rest == "" {
		return answer.Invalidf("Must specify a name to delete.")
	}
	if err := pr.Peers.Delete(q.R.Context(), q.Rest); err != nil {
		return err
	}
	return q.ReplyEmpty()
}

// shown is a peering as the contract has it.
type shown struct {
	ID                  string
	Name                string
	DeletedAt           *time.Time        `json:",omitempty"`
	Meta                map[string]string `json:",omitempty"`
	State               peering.State
	PeerID              string   `json:",omitempty"`
	PeerCAPems          []string `json:",omitempty"`
	PeerServerName      string   `json:",omitempty"`
	PeerServerAddresses []string `json:",omitempty"`
	StreamStatus        stream
	Remote              remote
	CreateIndex         uint64
	ModifyIndex         uint64
}

type remote struct{ Partition, Datacenter string }

// stream is how the connection stands; times are null for never.
type stream struct {
	ImportedServices, ExportedServices   []string
	LastHeartbeat, LastReceive, LastSend *time.Time
	// Trouble is ours: why the last try failed.
	Trouble string `json:",omitempty"`
}

func at(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func (pr *Rows) show(q *rows.Request, st *statestore.State, p *peering.Peering) shown {
	state, s := pr.Peers.Stands(p)
	out := shown{ID: p.ID, Name: p.Name, DeletedAt: at(p.DeletedAt), Meta: p.Meta, State: state, PeerID: p.PeerID,
		Remote: remote(p.Remote), CreateIndex: p.Created, ModifyIndex: p.Index}
	out.StreamStatus = stream{ImportedServices: peering.Names(st, p.Name), ExportedServices: []string{},
		LastHeartbeat: at(s.LastHeartbeat), LastReceive: at(s.LastReceive), LastSend: at(s.LastSend), Trouble: s.Trouble}
	if p.State == peering.Active {
		for _, name := range peering.ExportedTo(st, p.Name) {
			if peering.ServiceOf(st, name) != nil {
				out.StreamStatus.ExportedServices = append(out.StreamStatus.ExportedServices, name)
			}
		}
	}
	if p.Dial != nil {
		out.PeerCAPems, out.PeerServerName, out.PeerServerAddresses = p.Dial.CAPems, p.Dial.ServerName, p.Dial.Addresses
	}
	return out
}

func (pr *Rows) read(q *rows.Request) error {
	if err := pr.may(q, acl.Read); err != nil {
		return err
	}
	name := q.Rest
	if name == "" {
		return answer.Invalidf("Must specify a name to fetch.")
	}
	st, err := q.ReadRecord(catalog.RecordPeering, name)
	if err != nil {
		return err
	}
	p, err := peering.Named(st, name)
	if err != nil {
		return err
	}
	if p == nil {
		return answer.Fail(http.StatusNotFound, "Peering not found for \""+strings.ReplaceAll(name, `"`, "")+`"`)
	}
	return q.ReplyValue(pr.show(q, st, p))
}

func (pr *Rows) list(q *rows.Request) error {
	if err := q.Allow(acl.Peering, "", acl.Read); err != nil {
		return err
	}
	st, err := q.ReadRecords(catalog.RecordPeering)
	if err != nil {
		return err
	}
	out := []shown{}
	if pr.Peers != nil { // switched off, there are none
		for p := range peering.All(st) {
			out = append(out, pr.show(q, st, p))
		}
	}
	return q.ReplyValue(out)
}
