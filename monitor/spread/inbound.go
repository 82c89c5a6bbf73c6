package spread

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/monitor/ingest"
)

// inbound is what keeps a call that is made again from being taken twice.
type inbound struct {
	mu   sync.Mutex
	last map[laneKey]*answered
}

// answered is the newest call of a lane.
type answered struct {
	mu     sync.Mutex
	number uint64
	reply  []byte
	at     time.Time
}

// inboundMost bounds how many lanes of other processes are remembered.
const inboundMost = 1024

func (x *inbound) of(key laneKey, now time.Time) *answered {
	x.mu.Lock()
	defer x.mu.Unlock()
	a := x.last[key]
	if a == nil {
		if len(x.last) >= inboundMost {
			for k, old := range x.last {
				if now.Sub(old.at) > itemTime {
					delete(x.last, k)
				}
			}
		}
		a = &answered{}
		x.last[key] = a
	}
	a.at = now
	return a
}

// takeEvents takes events that another server brings, and answers with those that it does not take: they belong elsewhere.
func (s *Spread) takeEvents(ctx context.Context, req []byte) ([]byte, error) {
	r := pack.Read(req)
	key := laneKey{r.String(), int(r.Uint())}
	number := r.Uint()
	if r.Err() != nil {
		return nil, errkind.E(errkind.Invalid, methodEvents, r.Err())
	}
	a := s.inbound.of(key, s.cfg.Now())
	a.mu.Lock()
	defer a.mu.Unlock()
	if number <= a.number {
		return a.reply, nil
	}
	var refused []byte
	closed := map[uint64]bool{} // shards of which one was refused: no later one is taken
	for i := uint64(0); r.More(); i++ {
		shard, namespace, event := r.Uint(), r.String(), r.Bytes()
		if r.Err() != nil {
			return nil, errkind.E(errkind.Invalid, methodEvents, r.Err())
		}
		if closed[shard] {
			refused = pack.Uint(refused, i)
			continue
		}
		_, err := s.cfg.Ingest.Take(ctx, namespace, event, true)
		switch {
		case err == nil:
		case err == ingest.ErrElsewhere, errkind.Is(err, errkind.Overloaded), errkind.Is(err, errkind.Unavailable):
			refused, closed[shard] = pack.Uint(refused, i), true
		default:
			s.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "an event of an agent is dropped", slog.String("namespace", namespace), slog.Any("error", err))
		}
	}
	a.number, a.reply = number, refused
	return refused, nil
}
