package usageload

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"corbel.dev/corbel/kit/pack"
)

// jointProduct is told by several fields at once: it has a tag that names three others, so each event has a value more
// that is made of theirs, and each instance counts in rows of all of them.
const (
	jointProduct    = "bench_seats"
	jointDefinition = `{"kind":"unique","identity":["user"],"tags":["team","env","zone","team,env,zone"]}`
)

// The values of the fields: 90 combinations, fewer than a product keeps rows of.
const (
	jointTeams = 10
	jointEnvs  = 3
	jointZones = 3
)

// joint sends binary batches of uniques with three tags.
func (x *run) joint(ctx context.Context) (Door, error) {
	if err := x.define(ctx, jointProduct, jointDefinition); err != nil {
		return Door{}, err
	}
	texts := []string{jointProduct, "bench", "user", "team", "env", "zone"}
	fields := len(texts)
	for i := range jointTeams {
		texts = append(texts, "team-"+strconv.Itoa(i))
	}
	for i := range jointEnvs + jointZones {
		texts = append(texts, "value-"+strconv.Itoa(i))
	}
	tenants := len(texts)
	for t := range x.o.Tenants {
		texts = append(texts, tenantOf(t))
	}
	tail := pack.Uint(pack.Strings(nil, texts), uint64(x.o.Events))
	now := time.Now().UnixNano()
	for i := range x.o.Events {
		b, mark := pack.Begin(tail)
		b = pack.Uint(b, 0)
		b = pack.Uint(pack.Uint(pack.Uint(b, uint64(tenants+i%x.o.Tenants)), 0), 1)
		at := int64(0) // after the event before
		if i == 0 {
			at = now
		}
		b = pack.Int(pack.Int(b, at), 0)
		b = pack.String(pack.Uint(pack.Uint(b, 1), 2), "user-"+strconv.Itoa(i))
		n := i / x.o.Tenants
		b = pack.Uint(b, 3)
		for tag, value := range []int{n % jointTeams, jointTeams + n%jointEnvs,
			jointTeams + jointEnvs + n/3%jointZones} {
			b = pack.Uint(pack.Uint(b, uint64(3+tag)), uint64(fields+value))
		}
		tail = pack.End(b, mark)
	}
	d, err := x.batches(ctx, "bench-joint-", tail)
	if err != nil {
		return d, err
	}
	status, body, err := x.ask(ctx, "GET", "/v1/usage/estimates?window=1h&by=team,zone&product="+jointProduct+"&tenant="+
		tenantOf(0), nil, nil)
	if err == nil && status/100 != 2 { // who could not be asked for rows has measured something else
		err = fmt.Errorf("rows by two fields: %d %.200s", status, body)
	}
	return d, err
}
