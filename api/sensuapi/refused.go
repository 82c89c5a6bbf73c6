package sensuapi

import (
	"errors"
	"log/slog"
	"sync/atomic"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/kit/ws"
)

// What agents do wrong is counted, and the log names them, each by a few lines a minute however much it sends.
const (
	linesPerSecond = 0.1
	linesBurst     = 5
	linesKeys      = 4096
)

// refusals counts what agents did wrong and says whether there is a line left for one of them.
type refusals struct {
	lines                         *limit.Rate
	messages, sessions, strangers atomic.Uint64
}

func newRefusals() *refusals {
	return &refusals{lines: limit.NewRate(limit.RateConfig{PerSecond: linesPerSecond, Burst: linesBurst,
		MaxKeys: linesKeys})}
}

// Refused are counts since the start.
type Refused struct {
	Messages uint64 // that were dropped
	Sessions uint64 // that ended since the agent broke the protocol or took nothing
	Logins   uint64 // with wrong credentials
}

// Refused returns the counts.
func (a *Agents) Refused() Refused {
	return Refused{a.refused.messages.Load(), a.refused.sessions.Load(), a.refused.strangers.Load()}
}

// stranger tells of wrong credentials.
func (a *Agents) stranger(user, from string) {
	a.refused.strangers.Add(1)
	if ok, _ := a.refused.lines.Allow(address(from)); ok {
		a.cfg.Log.Warn("an agent sent wrong credentials", "user", user, "from", from)
	}
}

// dropped tells of a message that was not taken.
func (a *Agents) dropped(s *session, err error) {
	a.refused.messages.Add(1)
	if ok, _ := a.refused.lines.Allow(s.Namespace + "/" + s.Agent); !ok {
		return
	}
	log := a.logOf(s)
	if errkind.Is(err, errkind.Invalid) {
		log.Warn("a message of an agent is dropped", "error", err)
	} else {
		log.Error("cannot process a message of an agent", "error", err)
	}
}

// ended tells why a session did.
func (a *Agents) ended(s *session, err error) {
	var closed *ws.CloseError
	switch is := errors.As(err, &closed); {
	case is && closed.Clean():
		return
	case errors.Is(err, ws.ErrSlow), is && (closed.Code == ws.CloseProtocol || closed.Code == ws.CloseTooBig ||
		closed.Code == ws.CloseInvalid):
		a.refused.sessions.Add(1)
		if ok, _ := a.refused.lines.Allow(s.Namespace + "/" + s.Agent); ok {
			a.logOf(s).Warn("an agent's session is ended", "error", err)
			return
		}
	}
	a.cfg.Log.Debug("a session ended", "error", err, "agent", s.Agent, "namespace", s.Namespace)
}

// logOf is made when there is something to say: sessions are too many for one each.
func (a *Agents) logOf(s *session) *slog.Logger {
	return a.cfg.Log.With("agent", s.Agent, "namespace", s.Namespace)
}
