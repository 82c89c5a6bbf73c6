package pki

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/engine/pki/acme"
	"corbel.dev/corbel/secrets/engine/pki/revocation"
	"corbel.dev/corbel/secrets/engine/record"
	"corbel.dev/corbel/secrets/storage"
)

// tidyAsk is what is to be tidied.
type tidyAsk struct {
	Certs        bool
	Revoked      bool
	Associations bool // ours are never missing: accepted, and nothing to do
	Issuers      bool
	Buffer       time.Duration
	IssuerBuffer time.Duration
}

func newTidyAsk() tidyAsk {
	return tidyAsk{Buffer: 72 * time.Hour, IssuerBuffer: 365 * 24 * time.Hour}
}

func (t *tidyAsk) params() record.Params {
	return record.Params{{Name: "tidy_cert_store", At: &t.Certs}, {Name: "tidy_revoked_certs", At: &t.Revoked},
		{Name: "tidy_revoked_cert_issuer_associations", At: &t.Associations},
		{Name: "tidy_expired_issuers", At: &t.Issuers}, {Name: "safety_buffer", At: &t.Buffer},
		{Name: "issuer_safety_buffer", At: &t.IssuerBuffer}}
}

// tidyConfig is the tidying that nobody asks for, under "config/auto-tidy".
type tidyConfig struct {
	tidyAsk
	Enabled bool
	Every   time.Duration
}

func newTidyConfig() *tidyConfig {
	return &tidyConfig{tidyAsk: newTidyAsk(), Every: 12 * time.Hour}
}

func (t *tidyConfig) params() record.Params {
	return append(t.tidyAsk.params(), record.Param{Name: "enabled", At: &t.Enabled},
		record.Param{Name: "interval_duration", At: &t.Every})
}

// tidyState is how far a tidying is, under "tidy". It is stored with what each step takes away,
// so it goes on where it was after a restart.
type tidyState struct {
	State    string          `json:"state"`
	Ask      json.RawMessage `json:"ask,omitempty"`
	Auto     bool            `json:"auto,omitempty"`
	Phase    int             `json:"phase,omitempty"`
	From     string          `json:"from,omitempty"`
	Started  time.Time       `json:"started,omitzero"`
	Finished time.Time       `json:"finished,omitzero"`
	LastAuto time.Time       `json:"last_auto,omitzero"`
	Certs    int             `json:"cert_store_deleted_count"`
	Revoked  int             `json:"revoked_cert_deleted_count"`
	Issuers  int             `json:"expired_issuer_deleted_count"`
}

const (
	stateKey  = "tidy"
	running   = "Running"
	finished  = "Finished"
	cancelled = "Cancelled"
	tidyPage  = 500 // records of one step, which is one commit
)

func (e *Engine) tidyState(ctx context.Context, view engine.View) (*tidyState, error) {
	s, ok, err := e.states.Get(ctx, view, stateKey, record.ReadJSON[tidyState])
	if err != nil || !ok {
		return &tidyState{State: "Inactive"}, err
	}
	own := *s
	return &own, nil
}

func (e *Engine) tidyConfig(ctx context.Context, view engine.View) (*tidyConfig, error) {
	t, ok, err := e.tidies.Get(ctx, view, "config/auto-tidy", func(raw []byte) (*tidyConfig, error) {
		t := newTidyConfig()
		return t, t.params().Decode(raw)
	})
	if err != nil || !ok {
		return newTidyConfig(), err
	}
	return t, nil
}

// Due implements engine.Tender: the next step of a tidying under way, or the beginning of one by the clock.
func (e *Engine) Due(ctx context.Context, view engine.View, now time.Time) ([]*secrets.Request, error) {
	s, err := e.tidyState(ctx, view)
	if err != nil {
		return nil, err
	}
	t, err := e.tidyConfig(ctx, view)
	if err != nil {
		return nil, err
	}
	if s.State == running || (t.Enabled && now.Sub(s.LastAuto) >= t.Every) {
		return []*secrets.Request{{Op: secrets.Update, Rest: "tidy"}}, nil
	}
	return acme.Due(ctx, view, now)
}

// tidying takes away what has expired.
type tidying struct{ *call }

func (c tidying) readAuto() (*secrets.Response, error) {
	t, err := c.e.tidyConfig(c, c.view)
	if err != nil {
		return nil, err
	}
	return show(t.params())
}

func (c tidying) writeAuto() (*secrets.Response, error) {
	old, err := c.e.tidyConfig(c, c.view)
	if err != nil {
		return nil, err
	}
	t := *old
	if err := t.params().Read(c.f); err != nil {
		return nil, err
	}
	switch {
	case t.Enabled && !t.any():
		return nil, invalid("auto-tidy enabled but no tidy operations were requested; enable at least one tidy operation " +
			"to be run (tidy_cert_store, tidy_revoked_certs, tidy_revoked_cert_issuer_associations, tidy_expired_issuers)")
	case t.Every < time.Second:
		return nil, invalid("given interval_duration must be at least one second")
	}
	if err := t.check(); err != nil {
		return nil, err
	}
	raw, err := t.params().Encode()
	if err != nil {
		return nil, err
	}
	c.ops = append(c.ops, storage.Put("config/auto-tidy", raw))
	return show(t.params())
}

func (t *tidyAsk) any() bool { return t.Certs || t.Revoked || t.Associations || t.Issuers }

func (t *tidyAsk) check() error {
	if t.Buffer < time.Second || t.IssuerBuffer < time.Second {
		return invalid("given safety_buffer, issuer_safety_buffer must be at least one second")
	}
	return nil
}

// start begins a tidying, or does its next step where the engine itself asks.
func (c tidying) start() (*secrets.Response, error) {
	s, err := c.e.tidyState(c, c.view)
	if err != nil {
		return nil, err
	}
	if c.r.Due && s.State == running {
		return c.step(s)
	}
	if s.State == running {
		c.warn = append(c.warn, "Tidy operation already in progress.")
		return &secrets.Response{Status: http.StatusAccepted}, nil
	}
	ask := newTidyAsk()
	if c.r.Due {
		t, err := c.e.tidyConfig(c, c.view)
		if err != nil {
			return nil, err
		}
		ask = t.tidyAsk
		s.LastAuto = c.r.Now.UTC()
	} else if err := ask.params().Read(c.f); err != nil {
		return nil, err
	}
	if err := ask.check(); err != nil {
		return nil, err
	}
	if !ask.any() {
		c.warn = append(c.warn, "No targets to tidy; specify tidy_cert_store=true, tidy_revoked_certs=true or "+
			"tidy_expired_issuers=true: nothing was started.")
		return &secrets.Response{Status: http.StatusAccepted}, nil
	}
	raw, err := ask.params().Encode()
	if err != nil {
		return nil, err
	}
	next := tidyState{State: running, Ask: raw, Auto: c.r.Due, Started: c.r.Now.UTC(), LastAuto: s.LastAuto}
	c.warn = append(c.warn, "Tidy operation successfully started: tidy-status says how far it is.")
	return &secrets.Response{Status: http.StatusAccepted}, c.Put(stateKey, next)
}

func (c tidying) cancel() (*secrets.Response, error) {
	s, err := c.e.tidyState(c, c.view)
	if err != nil {
		return nil, err
	}
	if s.State != running {
		c.warn = append(c.warn, "Tidy operation cannot be cancelled as none is currently running.")
		return &secrets.Response{}, nil
	}
	s.State, s.Finished = cancelled, c.r.Now.UTC()
	if err := c.Put(stateKey, s); err != nil {
		return nil, err
	}
	return s.show()
}

func (c tidying) status() (*secrets.Response, error) {
	s, err := c.e.tidyState(c, c.view)
	if err != nil {
		return nil, err
	}
	return s.show()
}

func (s *tidyState) show() (*secrets.Response, error) {
	ask := newTidyAsk()
	if s.Ask != nil {
		if err := ask.params().Decode(s.Ask); err != nil {
			return nil, err
		}
	}
	out := map[string]any{"state": s.State, "error": nil, "message": "", "time_started": moment(s.Started),
		"time_finished":           moment(s.Finished),
		"last_auto_tidy_finished": moment(s.LastAuto), "cert_store_deleted_count": s.Certs,
		"revoked_cert_deleted_count":   s.Revoked,
		"expired_issuer_deleted_count": s.Issuers, "missing_issuer_cert_count": 0}
	ask.params().Show(out)
	return answer(out)
}

func moment(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.Format(time.RFC3339Nano)
}

// step looks at one page of what is to be tidied.
func (c tidying) step(s *tidyState) (*secrets.Response, error) {
	ask := newTidyAsk()
	if err := ask.params().Decode(s.Ask); err != nil {
		return nil, err
	}
	before := c.r.Now.Add(-ask.Buffer)
	var err error
	switch {
	case s.Phase == 0 && ask.Certs:
		err = c.page(s, "certs/", func(r storage.Record) bool {
			cert, err := x509.ParseCertificate(r.Value)
			if err != nil || !cert.NotAfter.Before(before) {
				return false
			}
			s.Certs++
			return true
		})
	case s.Phase == 1 && ask.Revoked:
		n := len(c.ops)
		err = c.page(s, "revoked/", func(r storage.Record) bool {
			rv, err := record.ReadJSON[revocation.Revoked](r.Value)
			if err != nil || !rv.End.Before(before) {
				return false
			}
			c.ops = append(c.ops, storage.Delete(rv.Log))
			s.Revoked++
			return true
		})
		if len(c.ops) > n {
			c.ops = append(c.ops, storage.Put(revocation.GenKey, []byte(uuid.NewString())))
		}
	case s.Phase == 2 && ask.Issuers:
		err = c.issuers(s, c.r.Now.Add(-ask.IssuerBuffer))
	case s.Phase > 2:
		s.State, s.Finished = finished, c.r.Now.UTC()
	default:
		s.Phase++
	}
	if err != nil {
		return nil, err
	}
	return &secrets.Response{}, c.Put(stateKey, s)
}

// page takes away what gone says of the next records below prefix.
func (c tidying) page(s *tidyState, prefix string, gone func(storage.Record) bool) error {
	from := max(s.From, prefix)
	records, err := c.view.Scan(c, from, storage.After(prefix), tidyPage)
	if err != nil {
		return err
	}
	for _, r := range records {
		if gone(r) {
			c.ops = append(c.ops, storage.Delete(r.Key))
		}
		s.From = r.Key + "\x00"
	}
	if len(records) < tidyPage {
		s.Phase, s.From = s.Phase+1, ""
	}
	return nil
}

func (c tidying) issuers(s *tidyState, before time.Time) error {
	ch, err := c.change()
	if err != nil {
		return err
	}
	for _, p := range slices.Clone(ch.Issuers) {
		if p.ID != ch.Default && ch.Issuer(p.ID).X509().NotAfter.Before(before) {
			ch.RemoveIssuer(p.ID)
			s.Issuers++
		}
	}
	s.Phase++
	if s.Issuers == 0 {
		return nil
	}
	return ch.Save()
}
