package session

var deltaStories = map[string]string{
	"that there is nothing is said once": `
		sub cds
		< cds
		< nothing
		ack cds => applied
		< nothing
		sub eds a
		< nothing
		sub lds
		< lds
		ack lds
		set cds a@1
		< cds a@1`,
	"a new proxy gets types in order, listeners after clusters and endpoints were answered": `
		set cds web@1
		set eds web@1
		set lds in@1
		sub cds
		< cds web@1
		< nothing
		sub lds
		< nothing
		ack cds => applied web@1
		sub eds web
		< eds web@1
		< nothing
		ack eds => applied web@1
		< lds in@1
		ack lds => applied in@1
		< nothing`,
	"nothing is said twice, and the newest wins": `
		set cds a@1
		sub cds *
		< cds a@1
		set cds a@2
		set cds a@3
		< nothing
		ack cds => applied a@1
		< cds a@3
		ack cds => applied a@3
		set cds a@3
		< nothing`,
	"a refused resource stays until it changes": `
		set cds a@1
		sub cds
		< cds a@1
		ack cds
		set cds a@2
		< cds a@2
		nack cds bad port => refused (bad port) a@2
		< nothing
		set cds a@2
		< nothing
		set cds a@1
		< cds a@1
		ack cds => applied a@1`,
	"a wrong nonce answers nothing": `
		set cds a@1
		sub cds
		< cds a@1
		stale cds =>
		set cds a@2
		< nothing
		ack cds => applied a@1
		ack cds =>
		< cds a@2`,
	"names are sent when asked for and when they come to be": `
		set eds a@1 b@1
		sub eds a c
		< eds a@1
		ack eds
		< nothing
		set eds c@1
		< eds c@1
		ack eds
		unsub eds a
		set eds a@2
		< nothing
		sub eds a
		< eds a@2`,
	"who asks again gets it again": `
		set eds a@1
		sub eds a
		< eds a@1
		ack eds
		sub eds a
		< eds a@1
		ack eds
		< nothing`,
	"unsubscribing while unanswered": `
		set eds a@1
		sub eds a
		< eds a@1
		unsub eds a
		sub eds a
		< nothing
		ack eds => applied
		< eds a@1
		ack eds => applied a@1`,
	"removals go last and in the order of use": `
		set sds s@1
		set cds a@1 b@1
		set eds a@1 b@1
		set lds in@1 out@1
		sub sds s
		sub cds
		sub eds a b
		sub lds
		< sds s@1
		< cds a@1 b@1
		< eds a@1 b@1
		ack sds
		ack cds
		ack eds
		< lds in@1 out@1
		ack lds
		gone sds s
		gone cds b
		gone eds b
		gone lds out
		set cds c@1
		< cds c@1
		< nothing
		ack cds
		< lds -out
		< nothing
		ack lds => applied and 1 removed
		< cds -b
		< nothing
		ack cds => applied and 1 removed
		< eds -b
		< sds -s
		ack eds
		ack sds
		< nothing`,
	"removed and back before it was said": `
		set cds a@1
		sub cds
		< cds a@1
		ack cds
		gone cds a
		set cds a@1
		< nothing`,
	"a removal while unanswered, and back": `
		set cds a@1 b@1
		sub cds
		< cds a@1 b@1
		gone cds b
		< nothing
		ack cds
		< cds -b
		set cds b@1
		< nothing
		ack cds
		< cds b@1`,
	"a cluster that changes takes its endpoints along, a new one does not": `
		set cds a@1:serves-x b@1
		set eds serves-x@1 b@1
		sub cds
		sub eds serves-x b
		< cds a@1 b@1
		< eds b@1 serves-x@1
		ack cds
		ack eds
		set cds a@2:serves-x
		< cds a@2
		< eds serves-x@1
		ack cds
		ack eds
		< nothing`,
	"a listener that changes takes its routes along": `
		set lds in@1:web-routes
		set rds web-routes@1 other@1
		sub lds
		sub rds web-routes other
		< lds in@1
		< rds other@1 web-routes@1
		ack lds
		ack rds
		set lds in@2:web-routes
		< lds in@2
		< rds web-routes@1
		< nothing`,
	"who comes back is told what changed alone": `
		set cds a@1 b@2 d@1
		have cds a@1 b@1 c@1
		< cds b@2 d@1 (has a)
		ack cds
		< cds -c
		ack cds => applied and 1 removed
		< nothing`,
	"who comes back up to date is told nothing": `
		set eds a@1
		have eds a@1
		< nothing (has a)
		set eds a@2
		< eds a@2`,
	"who comes back gets the endpoints of a changed cluster, which Envoy warms": `
		set cds a@2:e1 b@1:e2
		set eds e1@1 e2@1
		have cds a@1 b@1
		< cds a@2 (has b)
		ack cds
		have eds e1@1 e2@1
		< eds e1@1 (has e1) (has e2)
		ack eds => applied e1@1
		< nothing`,
	"an end to everything": `
		set cds a@1 b@1
		sub cds * a
		< cds a@1 b@1
		ack cds
		unsub cds *
		set cds a@2 b@2
		< cds a@2`,
	"secrets and extensions by name": `
		set sds leaf@1 roots@1
		set ecds rbac@1
		sub sds leaf roots
		sub ecds rbac
		< sds leaf@1 roots@1
		< ecds rbac@1
		ack sds
		ack ecds
		set ecds rbac@2
		< ecds rbac@2
		nack ecds no => refused (no) rbac@2
		< nothing`,
}

var worldStories = map[string]string{
	"a client from before is told that nothing is left": `
		want lds
		< lds
		ack lds => applied
		< nothing
		set lds in@1
		< lds in@1`,
	"clusters and listeners are always whole": `
		set cds a@1 b@1
		set lds in@1
		want cds
		want lds
		< cds a@1 b@1
		ack cds => applied a@1 b@1
		< lds in@1
		ack lds
		set cds b@2
		< cds a@1 b@2
		ack cds
		< nothing`,
	"a removed cluster stays until the listener is gone": `
		set cds a@1 b@1
		set lds in@1 out@1
		want cds
		want lds
		< cds a@1 b@1
		ack cds
		< lds in@1 out@1
		ack lds
		gone cds b
		gone lds out
		set cds c@1
		< cds a@1 b@1 c@1
		ack cds
		< lds in@1
		ack lds
		< cds a@1 c@1
		ack cds
		< nothing`,
	"named types are told what is new": `
		set eds a@1 b@1
		want eds a
		< eds a@1
		want eds a => applied a@1
		want eds a b
		< eds b@1
		want eds a b
		set eds a@2
		< eds a@2
		want eds b => applied a@2
		< nothing
		want eds a b
		< eds a@2`,
	"a stale request changes nothing": `
		set eds a@1
		want eds a
		< eds a@1
		stale eds
		set eds a@2
		< nothing
		want eds a => applied a@1
		< eds a@2`,
	"refused": `
		set cds a@1
		want cds
		< cds a@1
		nack cds why => refused (why) a@1
		< nothing
		set cds a@2
		< cds a@2`,
	"the last cluster goes": `
		set cds a@1
		want cds
		< cds a@1
		ack cds
		gone cds a
		< cds
		ack cds => applied and 1 removed
		< nothing`,
}
