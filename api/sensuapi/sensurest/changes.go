package sensurest

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/monitor/eventstore"
)

// change is a run that had another status than the one before.
type change struct {
	At     int64  `json:"at"` // Unix seconds
	Status uint32 `json:"status"`
	State  string `json:"state"`
	Output string `json:"output"`
}

// events answers what is asked of events, now and in the past.
type events struct{ *request }

// changes answers with the changes of a check's status that the store keeps, the newest first.
func (q events) changes() error {
	query := httpx.Query(q.r.URL.RawQuery)
	entity, check := query.Value("entity"), query.Value("check")
	if q.namespace == "" || entity == "" || check == "" {
		return invalid(errors.New("namespace, entity and check must be given"))
	}
	if q.cfg.History == nil {
		return errkind.New(errkind.NotFound, "this server keeps events in itself; their changes are kept by PostgreSQL "+
			"alone (monitor.store)")
	}
	before, most, err := page(query.Value("before"), query.Value("limit"))
	if err != nil {
		return invalid(err)
	}
	runs, err := q.cfg.History(q.r.Context(), eventstore.Key{Namespace: q.namespace, Entity: entity, Check: check},
		before, most)
	if err != nil {
		return err
	}
	list := make([]change, 0, len(runs))
	for _, r := range runs {
		list = append(list, change{r.At.Unix(), r.Status, r.State, string(r.Output)})
	}
	answer := map[string]any{"namespace": q.namespace, "entity": entity, "check": check, "changes": list}
	if len(runs) == most { // the last one's microseconds keep changes of one second on both sides of a page's end
		last := runs[len(runs)-1].At
		answer["next_before"] = fmt.Sprintf("%d.%06d", last.Unix(), last.Nanosecond()/1000)
	}
	return q.answer(http.StatusOK, answer)
}

// latest is later than any change: PostgreSQL's times and Go's both hold it.
const latest = 1 << 34

// page reads which part is wanted: changes before a time in Unix seconds (with up to six decimals), 100 of them or at
// most 1000.
func page(before, limit string) (at time.Time, most int, err error) {
	at, most = time.Unix(latest, 0), 100
	if before != "" {
		whole, fraction, _ := strings.Cut(before, ".")
		seconds, err := strconv.ParseInt(whole, 10, 64)
		micros, err2 := strconv.ParseUint((fraction + "000000")[:6], 10, 64)
		if err != nil || err2 != nil || seconds < 0 || seconds > latest {
			return at, 0, errors.New("before must be Unix seconds, or the next_before of a page")
		}
		at = time.Unix(seconds, int64(micros)*1000)
	}
	if limit != "" {
		if most, err = strconv.Atoi(limit); err != nil || most < 1 || most > 1000 {
			return at, 0, errors.New("limit must be a number from 1 to 1000")
		}
	}
	return at, most, nil
}
