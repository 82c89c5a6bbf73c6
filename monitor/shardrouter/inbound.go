package shardrouter

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/monitor/frame"
	"corbel.dev/corbel/monitor/ingest"
)

// inbound is what keeps a call that is made again from being taken twice.
type inbound struct {
	mu   sync.Mutex
	last map[queueKey]*answered
}

// answered is the newest call of a queue.
type answered struct {
	mu     sync.Mutex
	number uint64
	reply  []byte
	at     time.Time
}

// inboundMost bounds how many queues of other processes are remembered.
const inboundMost = 1024

func (x *inbound) of(key queueKey, now time.Time) *answered {
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

// takeEvents takes events that another server brings, and answers with those that it does not take: they belong
// elsewhere.
func (s *Router) takeEvents(ctx context.Context, req []byte) ([]byte, error) {
	r := pack.Read(req)
	key := queueKey{r.String(), int(r.Uint())}
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
	refused, err := s.takeAll(ctx, r)
	if err != nil {
		return nil, err
	}
	a.number, a.reply = number, refused
	return refused, nil
}

// takeAll takes the events of a call, and returns those that it does not take (answer).
func (s *Router) takeAll(ctx context.Context, r *pack.Reader) (refused []byte, err error) {
	f := frames.Get().(*frame.Frame)
	defer frames.Put(f)
	var closed [ingest.Shards]bool // of which one was refused: no later one is taken
	namespace := ""
	for i := uint64(0); r.More(); i++ {
		shard, in, brief, event := r.Uint(), r.Bytes(), r.Bool(), r.Bytes()
		if r.Err() != nil || shard >= ingest.Shards {
			return nil, errkind.Errorf(errkind.Invalid, "%s: event %d is damaged", methodEvents, i)
		}
		if closed[shard] {
			refused = pack.Uint(refused, 2*i)
			continue
		}
		if string(in) != namespace {
			namespace = string(in)
		}
		if brief {
			err = s.cfg.Ingest.TakeBrief(ctx, namespace, event, f)
		} else {
			_, err = s.cfg.Ingest.Take(ctx, namespace, event, f, true)
		}
		switch {
		case err == nil:
		case err == ingest.ErrWhole:
			refused, closed[shard] = pack.Uint(refused, 2*i+1), true
		case err == ingest.ErrElsewhere, errkind.Is(err, errkind.Overloaded), errkind.Is(err, errkind.Unavailable):
			refused, closed[shard] = pack.Uint(refused, 2*i), true
		default:
			s.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "an event of an agent is dropped", slog.String("namespace", namespace),
				slog.Any("error", err))
		}
	}
	return refused, nil
}
