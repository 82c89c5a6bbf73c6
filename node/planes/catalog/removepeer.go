package catalogplane

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"corbel.dev/corbel/api/consulapi/operatorrows"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/forward"
	monitorplane "corbel.dev/corbel/node/planes/monitor"
	"corbel.dev/corbel/node/raftgroup"
)

// removeTimeout bounds the removal from one group.
const removeTimeout = 10 * time.Second

// RemovePeer implements operatorrows.Operator: it takes the server out of the catalog's group and out of the monitor
// plane's, wherever that has its leader. What is half done can be repeated: a group that the server is not in any
// more is done.
func (o Operator) RemovePeer(ctx context.Context, r operatorrows.PeerRemoval) error {
	if r.Group != "" {
		return o.removeFrom(ctx, r)
	}
	if r.ID == "" { // the id counts: the groups may have it at different addresses
		r.ID = o.idAt(r.Address)
	}
	found := []string{}
	err := o.Raft.RemovePeer(ctx, r)
	switch {
	case err == nil:
		found = append(found, o.Raft.Name)
	case !errkind.Is(err, errkind.NotFound):
		return err
	}
	r.Group = monitorplane.Name
	switch failed := o.removeFrom(ctx, r); {
	case failed == nil:
		found = append(found, r.Group)
	case !errkind.Is(failed, errkind.NotFound):
		done := "of no group yet"
		if len(found) > 0 {
			done = "of the group " + strings.Join(found, ", ")
		}
		return errkind.Errorf(errkind.Internal,
			"the server was taken out %s; it is still in the group %s: %s: repeat the command",
			done, r.Group, errkind.Text(failed))
	}
	if len(found) == 0 {
		return err
	}
	o.Raft.Base.Log.Info("an operator removed a server", "server", r.ID, "address", r.Address, "groups", found)
	return nil
}

// idAt is the id of the member with an address in one of this server's groups; "" where there is none.
func (o Operator) idAt(address string) string {
	for _, plane := range append([]*raftgroup.Group{o.Raft}, o.Others()...) {
		if s, ok := plane.Find(operatorrows.PeerRemoval{Address: address}); ok {
			return s.ID
		}
	}
	return ""
}

// removeFrom removes a server from the group that the removal names: here, or where its leader is.
func (o Operator) removeFrom(ctx context.Context, r operatorrows.PeerRemoval) error {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	var plane *raftgroup.Group
	for _, p := range o.Others() {
		if p.Name == r.Group {
			plane = p
		}
	}
	addr := ""
	switch {
	case plane == nil:
		if addr = o.host(r.Group); addr == "" {
			return errkind.Errorf(errkind.NotFound, "no server has a Raft group %q", r.Group)
		}
	case plane.IsLeader():
		return plane.RemovePeer(ctx, r)
	default:
		addr = plane.LeaderAddr()
	}
	j := rows.JourneyOf(ctx)
	if addr == "" || addr == o.Raft.Base.RPCAddr() || j.Hops >= forward.MaxHops {
		return errkind.New(errkind.Unavailable, "it has no leader now")
	}
	query := url.Values{"id": {r.ID}, "group": {r.Group}}
	if r.ID == "" {
		query = url.Values{"address": {r.Address}, "group": {r.Group}}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, "/v1/operator/raft/peer?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	if r.Token != "" {
		req.Header.Set("X-Consul-Token", r.Token) // servers judge it themselves
	}
	encoded, err := forward.Encode(req, rows.Journey{Hops: j.Hops + 1, Crossed: j.Crossed})
	if err != nil {
		return err
	}
	reply, err := o.Raft.Base.RPC.Call(ctx, addr, forward.MethodHTTP, encoded)
	if err != nil {
		return err
	}
	status, _, body, err := forward.DecodeReply(reply)
	switch {
	case err != nil:
		return err
	case status == http.StatusNotFound:
		return errkind.New(errkind.NotFound, string(body))
	case status != http.StatusOK:
		return fmt.Errorf("%s answers %d: %s", addr, status, strings.TrimSpace(string(body)))
	}
	return nil
}

// host is the address of a living server that has a group which this one has not.
func (o Operator) host(name string) string {
	for _, m := range o.Raft.Base.Pool.Members(member.ActAskServer) {
		if name == monitorplane.Name && m.Status == member.Alive && m.Tags[monitorplane.Tag] != "" {
			return base.MemberRPC(m)
		}
	}
	return ""
}
