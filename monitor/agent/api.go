package agent

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/monitor"
)

// Bounds of the HTTP API.
const (
	maxEventBytes = 8 << 20 // what a backend reads at most
	apiTime       = 15 * time.Second
)

// serveAPI answers programs on this host until ctx ends.
func (a *Agent) serveAPI(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /events", a.postEvent)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if !a.Connected() {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, "sensu backend unavailable") // the status says it too
			return
		}
		_, _ = io.WriteString(w, "ok")
	})
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]string{"version": a.cfg.Version}) // who asked may be gone
	})
	if a.cfg.MetricsHandler != nil {
		mux.Handle("GET /metrics", a.cfg.MetricsHandler)
	}
	s := &http.Server{Handler: mux, ReadTimeout: apiTime, WriteTimeout: apiTime, ReadHeaderTimeout: apiTime,
		MaxHeaderBytes: 64 << 10}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if s.Shutdown(grace) != nil {
			_ = s.Close() // whoever still waits is cut off
		}
	}()
	a.cfg.Log.Info("the agent's API listens", "address", a.api.Addr().String())
	err := s.Serve(a.api)
	if ctx.Err() == nil {
		return err
	}
	<-stopped
	return nil
}

// postEvent takes an event, and answers 202 once it is safe.
func (a *Agent) postEvent(w http.ResponseWriter, r *http.Request) {
	e := new(monitor.Event)
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxEventBytes)).Decode(e)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		http.Error(w, "an event has at most 8 MiB", http.StatusRequestEntityTooLarge)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if err := a.prepare(e); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
	defer cancel()
	switch err := a.hand(ctx, a.handed, e); {
	case errkind.Is(err, errkind.Overloaded):
		w.Header().Set("Retry-After", "5")
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}
