package node

import (
	"corbel.dev/corbel/catalog/coordinates"
	"corbel.dev/corbel/core/wan"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/forward"
)

// answerRPC registers what every process answers, and what servers do for agents and for each other. The parts of a
// process that have methods of their own register them where they are built.
func (p *Process) answerRPC(servers *catalogServers) {
	p.knowServers()
	p.RPCSrv.Handle(wire.Federation, wan.MethodPing, wan.AnswerPing)
	p.RPCSrv.Handle(wire.Servers, base.MethodKeyring, p.Pool.AnswerKeys)
	if p.wan != nil {
		p.RPCSrv.Handle(wire.AllServers, wan.MethodKeys, p.wan.Pool.AnswerKeys)
	}
	if !p.Cfg.Server { // an agent is asked by servers alone, and answers for itself
		return
	}
	forward.Answers{API: p.api, Streamed: p.doctor, Uploads: p.uploads, Parting: p.parting,
		Ending: &p.doors.Ending}.Register(p.RPCSrv, wire.Federation)
	p.RPCSrv.Handle(wire.Members, methodDNS, serveDNS(p.dns))
	p.RPCSrv.Handle(wire.Members, coordinates.MethodUpdate, p.places.Serve)
	p.RPCSrv.Handle(wire.Servers, coordinates.MethodJudged, p.places.ServeJudged)
	handleCatalog(p.RPCSrv, servers, p.api)
}
