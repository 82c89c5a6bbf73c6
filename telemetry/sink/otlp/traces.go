package otlp

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/telemetry"
)

const (
	// gatherFor is how long the first span of a batch waits for others; batchSpans is how many a batch has at most, but
	// for one request's rest.
	gatherFor  = time.Second
	batchSpans = 512
	// A batch is tried batchTries times, with retryWait between two, doubled each time, or what the collector asks for
	// up to mostRetryWait.
	batchTries    = 4
	retryWait     = time.Second
	mostRetryWait = 30 * time.Second
	// lastTimeout bounds the last batch at the end of the process.
	lastTimeout = 500 * time.Millisecond
	// answerBytes is how much of an answer is read.
	answerBytes = 64 << 10
)

// TracesConfig makes Traces.
type TracesConfig struct {
	Endpoint string // http(s)://host:port; a path of "" or "/" means /v1/traces
	Host     string // host.name of the resource
	Instance string // service.instance.id of the resource
	Registry *telemetry.Registry
	Clock    clock.Clock   // nil means the machine's
	Logger   *slog.Logger  // nil discards
	Client   *http.Client  // nil means one of its own
	Gather   time.Duration // 0 means a second
	Timeout  time.Duration // of one POST; 0 means 5 s
	Retry    time.Duration // before the second try, doubled each time; 0 means a second
}

// Traces sends the spans of finished requests to one collector while Run runs; before and after it none are made. Run
// it once.
type Traces struct {
	cfg   TracesConfig
	url   string
	queue *telemetry.SpanQueue
	delivery
}

// NewTraces makes Traces; it opens nothing.
func NewTraces(cfg TracesConfig) (*Traces, error) {
	address, err := parseEndpoint(cfg.Endpoint, "/v1/traces")
	if err != nil {
		return nil, err
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Client == nil {
		cfg.Client = newClient(0) // each POST has a deadline
	}
	if cfg.Gather <= 0 {
		cfg.Gather = gatherFor
	}
	if cfg.Retry <= 0 {
		cfg.Retry = retryWait
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = exportTimeout
	}
	t := &Traces{cfg: cfg, url: address, delivery: newDelivery("otlp_traces", "spans", cfg.Registry, cfg.Logger,
		cfg.Client)}
	t.queue = telemetry.NewSpanQueue(cfg.Clock, t.dropped)
	return t, nil
}

// Run has spans made and sends them until ctx ends, then for at most half a second what is queued.
func (t *Traces) Run(ctx context.Context) error {
	defer t.cfg.Client.CloseIdleConnections()
	defer t.cfg.Registry.Traces().Attach(t.queue)()
	for {
		select {
		case <-ctx.Done():
			t.last(nil)
			return nil
		case first := <-t.queue.C:
			batch := t.gather(ctx, first)
			if ctx.Err() != nil {
				t.last(batch)
				return nil
			}
			t.deliver(ctx, batch)
		}
	}
}

// gather waits a while for more.
func (t *Traces) gather(ctx context.Context, batch []telemetry.Span) []telemetry.Span {
	timer := t.cfg.Clock.NewTimer(t.cfg.Gather)
	defer timer.Stop()
	for len(batch) < batchSpans {
		select {
		case more := <-t.queue.C:
			batch = append(batch, more...)
		case <-timer.C:
			return batch
		case <-ctx.Done():
			return batch
		}
	}
	return batch
}

// last sends what there is when the process ends, in one try.
func (t *Traces) last(batch []telemetry.Span) {
	for queued := len(t.queue.C); queued > 0; queued-- {
		batch = append(batch, <-t.queue.C...)
	}
	if len(batch) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastTimeout)
	defer cancel()
	if _, err := t.post(ctx, batch); err != nil {
		t.dropped.Add(uint64(len(batch)))
	}
}

// deliver sends a batch, again where the collector says that it is worth it. Spans that come meanwhile wait in the
// queue.
func (t *Traces) deliver(ctx context.Context, batch []telemetry.Span) {
	wait := t.cfg.Retry
	for try := 1; ; try++ {
		again, err := t.post(ctx, batch)
		if err == nil {
			t.recovered()
			return
		}
		if again < 0 || try == batchTries || ctx.Err() != nil {
			t.failed(ctx, err, len(batch))
			return
		}
		if again == 0 {
			again, wait = wait, 2*wait
		}
		timer := t.cfg.Clock.NewTimer(min(again, mostRetryWait))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// post sends a batch once. again is after how long it is worth another try: below zero never, 0 as the caller likes.
func (t *Traces) post(ctx context.Context, batch []telemetry.Span) (again time.Duration, err error) {
	body, err := proto.Marshal(&collector.ExportTraceServiceRequest{
		ResourceSpans: []*trace.ResourceSpans{t.encode(batch)},
	})
	if err != nil {
		return -1, err
	}
	ctx, cancel := context.WithTimeout(ctx, t.cfg.Timeout)
	defer cancel()
	response, err := t.send(ctx, t.url, body)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, answerBytes))
	switch {
	case response.StatusCode/100 == 2:
		t.taken(answer, err, len(batch))
		return 0, nil
	case response.StatusCode == http.StatusTooManyRequests, response.StatusCode == http.StatusBadGateway,
		response.StatusCode == http.StatusServiceUnavailable, response.StatusCode == http.StatusGatewayTimeout:
		return retryAfter(response.Header.Get("Retry-After"), t.cfg.Clock.Now()),
			fmt.Errorf("the collector answered %s", response.Status)
	}
	return -1, fmt.Errorf("the collector answered %s", response.Status)
}

// taken counts what the collector took of a batch: it may have refused a part.
func (t *Traces) taken(answer []byte, err error, spans int) {
	refused := 0
	var told collector.ExportTraceServiceResponse
	if err == nil && proto.Unmarshal(answer, &told) == nil {
		refused = int(min(max(told.GetPartialSuccess().GetRejectedSpans(), 0), int64(spans)))
	}
	t.sent.Add(uint64(spans - refused))
	if refused > 0 {
		t.dropped.Add(uint64(refused))
		t.failures.Add(1)
		t.cfg.Logger.Debug("the collector refused spans", "sink", "otlp_traces", "spans", refused, "reason",
			told.GetPartialSuccess().GetErrorMessage())
	}
}

// retryAfter is what a Retry-After header asks for: seconds or a date; 0 is nothing.
func retryAfter(header string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(header, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(header); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}
