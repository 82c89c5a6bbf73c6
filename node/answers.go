package node

import (
	"corbel.dev/corbel/catalog/coordinates"
	"corbel.dev/corbel/core/wire"
)

// answerRPC registers what every process answers, and what servers do for agents and for each other. The parts of a
// process that have methods of their own register them where they are built.
func (p *Process) answerRPC(servers *catalogServers) {
	p.knowServers()
	p.rpcSrv.Handle(wire.Servers, methodAsk, p.serveAsked)
	p.rpcSrv.HandleStream(wire.Servers, methodAskStream, p.serveAskedStream)
	p.rpcSrv.Handle(wire.Federation, methodPing, servePing())
	p.rpcSrv.Handle(wire.Servers, methodKeyring, p.pool.AnswerKeys)
	if p.wan != nil {
		p.rpcSrv.Handle(wire.AllServers, methodKeyringWAN, p.wan.pool.AnswerKeys)
	}
	if !p.cfg.Server { // an agent is asked by servers alone, and answers for itself
		return
	}
	p.rpcSrv.Handle(wire.Federation, methodHTTP, serveForwarded(p.api, p.parting, &p.ending))
	p.rpcSrv.HandleStream(wire.Federation, methodHTTPStream, serveStreamed(p.withProfiles(p.api), p.uploads))
	p.rpcSrv.Handle(wire.Federation, methodHTTPOffer, serveOffer(p.api, p.uploads))
	p.rpcSrv.Handle(wire.Federation, methodHTTPUpload, p.uploads.Piece)
	p.rpcSrv.Handle(wire.Members, methodDNS, serveDNS(p.dns))
	p.rpcSrv.Handle(wire.Members, coordinates.MethodUpdate, p.places.Serve)
	p.rpcSrv.Handle(wire.Servers, coordinates.MethodJudged, p.places.ServeJudged)
	handleCatalog(p.rpcSrv, servers, p.api)
	p.handleFleet(p.rpcSrv)
}
