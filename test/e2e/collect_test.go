package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
)

// spanFile is an OpenTelemetry collector that writes each span that it is sent as a line: trace, span, parent, host,
// then name and attributes.
type spanFile struct {
	mu sync.Mutex
	to io.Writer
}

func (f *spanFile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var request collector.ExportTraceServiceRequest
	if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &request) != nil {
		http.Error(w, "no spans", http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, resource := range request.ResourceSpans {
		host := resource.Resource.Attributes[slices.IndexFunc(resource.Resource.Attributes,
			func(kv *common.KeyValue) bool { return kv.Key == "host.name" })].Value.GetStringValue()
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				// String has what the reading by fields may leave out.
				fmt.Fprintf(f.to, "%x %x %x %s %s %s\n", s.TraceId, s.SpanId, s.ParentSpanId, host, s.Name,
					strings.Join(strings.Fields(s.String()), " "))
			}
		}
	}
}

// collectMain is such a collector as a command: collect PORT FILE.
func collectMain() {
	l, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		fail("%v", err)
	}
	f, err := os.Create(os.Args[2])
	if err != nil {
		fail("%v", err)
	}
	sig := make(chan os.Signal, 1)
	signal.Notify(sig, os.Interrupt, syscall.SIGTERM)
	srv := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: &spanFile{to: f}}
	go func() { <-sig; _ = srv.Close() }()
	_ = srv.Serve(l)
}
