package raftgroup

import (
	"corbel.dev/corbel/core/group"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/kit/version"
	"corbel.dev/corbel/node/base"
)

// autopilotSource is the pool as autopilot sees the servers.
type autopilotSource struct {
	pool      *member.Pool
	takesPart func(member.Member) bool
}

// Servers implements group.MemberSource.
func (s autopilotSource) Servers() []group.ServerInfo {
	var list []group.ServerInfo
	for _, m := range s.pool.Members(member.ActSuggestServer) {
		if !s.takesPart(m) {
			continue
		}
		status := group.MemberAlive
		switch m.Status {
		case member.Failed:
			status = group.MemberFailed
		case member.Left, member.Leaving:
			status = group.MemberLeft
		}
		list = append(list, group.ServerInfo{ID: m.Tags["id"], Name: m.Name, Address: base.MemberRPC(m),
			Version: version.Contract,
			Hearsay: true, Status: status, Replica: m.Tags["read_replica"] == "1", Meta: m.Tags})
	}
	return list
}
