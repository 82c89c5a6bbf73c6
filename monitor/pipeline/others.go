package pipeline

import (
	"context"
	"encoding/json"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

// othersTime bounds the question for one event, whichever server has it.
const othersTime = 2 * time.Second

// others finds events of a namespace for a program of its filters and mutators (sensu.FetchEvent).
func (p *Pipelines) others(namespace string) func(ctx context.Context, entity, check string) ([]byte, error) {
	if p.cfg.Event == nil {
		return nil
	}
	return func(ctx context.Context, entity, check string) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, othersTime)
		defer cancel()
		e, err := p.cfg.Event(ctx, namespace, entity, check)
		if errkind.Is(err, errkind.NotFound) || err == nil && e == nil {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return json.Marshal(e)
	}
}
