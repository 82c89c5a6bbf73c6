package node

import (
	"corbel.dev/corbel/catalog/coordinates"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/node/base"
)

// answerRPC registers what every process answers, and what servers do for agents and for each other. The parts of a
// process that have methods of their own register them where they are built.
func (p *Process) answerRPC(servers *catalogServers) {
	p.knowServers()
	p.RPCSrv.Handle(wire.Servers, methodAsk, p.serveAsked)
	p.RPCSrv.HandleStream(wire.Servers, methodAskStream, p.serveAskedStream)
	p.RPCSrv.Handle(wire.Federation, methodPing, servePing())
	p.RPCSrv.Handle(wire.Servers, base.MethodKeyring, p.Pool.AnswerKeys)
	if p.wan != nil {
		p.RPCSrv.Handle(wire.AllServers, methodKeyringWAN, p.wan.pool.AnswerKeys)
	}
	if !p.Cfg.Server { // an agent is asked by servers alone, and answers for itself
		return
	}
	p.RPCSrv.Handle(wire.Federation, methodHTTP, serveForwarded(p.api, p.parting, &p.ending))
	p.RPCSrv.HandleStream(wire.Federation, methodHTTPStream, serveStreamed(p.withProfiles(p.api), p.uploads))
	p.RPCSrv.Handle(wire.Federation, methodHTTPOffer, serveOffer(p.api, p.uploads))
	p.RPCSrv.Handle(wire.Federation, methodHTTPUpload, p.uploads.Piece)
	p.RPCSrv.Handle(wire.Members, methodDNS, serveDNS(p.dns))
	p.RPCSrv.Handle(wire.Members, coordinates.MethodUpdate, p.places.Serve)
	p.RPCSrv.Handle(wire.Servers, coordinates.MethodJudged, p.places.ServeJudged)
	handleCatalog(p.RPCSrv, servers, p.api)
	p.handleFleet(p.RPCSrv)
}
