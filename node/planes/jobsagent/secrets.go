package jobsagentplane

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"io"
	"strings"
	"time"

	"corbel.dev/corbel/jobs/client/tasktemplate"
	"corbel.dev/corbel/kit/errkind"
)

// readAll reads an answer within its bound.
func readAll(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxAnswer+1))
	if err != nil {
		return nil, errkind.E(errkind.Unavailable, "", err)
	}
	if len(text) > maxAnswer {
		return nil, errkind.Errorf(errkind.TooLarge, "the answer has more than %d bytes", maxAnswer)
	}
	return text, nil
}

// lease is a secret that lives as long as it is renewed.
type lease struct {
	id    string
	lasts time.Duration
	value tasktemplate.Value
}

// renewed waits until half of a lease is over, and renews it. False has the secret read anew.
func (s *source) renewed(ctx context.Context, l *lease, token string) (ok bool, err error) {
	if err := s.pause(ctx, max(l.lasts/2, time.Second)); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	var answer struct {
		LeaseDuration int64 `json:"lease_duration"`
	}
	err = (&issuer{d: s.d, agent: s.agent}).post(ctx, s.agent.secretsAPI(s.d)+"/v1/sys/leases/renew",
		vaultHeader(s.work.Task.Vault, token), map[string]string{"lease_id": l.id}, &answer)
	switch fresh := time.Duration(answer.LeaseDuration) * time.Second; {
	case errkind.Is(err, errkind.Unavailable):
		return false, err
	case err != nil || fresh < l.lasts/4: // it is over, or as good as that
		return false, nil
	default:
		l.lasts = fresh
		return true, nil
	}
}

// secret reads a path of the secrets plane with the token that the task has. What has a lease is read once, and kept by
// renewals; the rest is read every pollEvery.
func (s *source) secret(ctx context.Context, name string, after uint64) (v tasktemplate.Value, err error) {
	token := s.work.Extra["VAULT_TOKEN"]
	if held := s.work.Tokens.Secrets.Load(); held != nil {
		token = *held
	}
	if token == "" {
		return v, errkind.New(errkind.Unavailable, "the task has no token of the secrets plane: its job needs a vault block")
	}
	if l := s.lease(name); l != nil && after > 1 {
		if ok, err := s.renewed(ctx, l, token); ok || err != nil {
			return l.value, err
		}
	} else if err := s.wait(ctx, after); err != nil {
		return v, err
	}
	text, _, found, err := s.fetch(ctx, readLimit, s.agent.secretsAPI(s.d)+"/v1/"+strings.TrimPrefix(escaped(name), "/"),
		vaultHeader(s.work.Task.Vault, token))
	if err != nil || !found {
		return tasktemplate.Value{Index: 2}, err
	}
	var answer struct {
		LeaseID       string `json:"lease_id"`
		LeaseDuration int    `json:"lease_duration"`
		Renewable     bool
		Data          map[string]any
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return v, err
	}
	sum := fnv.New64a()
	data, err := json.Marshal(answer.Data)
	if err != nil {
		return v, err
	}
	_, _ = sum.Write(data)
	v = tasktemplate.Value{Found: true, Index: sum.Sum64() | 2, Data: &tasktemplate.SecretData{Data: answer.Data,
		LeaseDuration: answer.LeaseDuration, Renewable: answer.Renewable}}
	if answer.LeaseID != "" && answer.LeaseDuration > 0 {
		s.setLease(name, &lease{answer.LeaseID, time.Duration(answer.LeaseDuration) * time.Second, v})
	}
	return v, nil
}

// lease is that of a secret, nil where it has none. The one follower of the secret changes it.
func (s *source) lease(name string) *lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leases[name]
}

func (s *source) setLease(name string, l *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leases == nil {
		s.leases = map[string]*lease{}
	}
	s.leases[name] = l
}
