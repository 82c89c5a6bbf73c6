package jobsagentplane

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

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

// secret reads a path of the secrets plane with the token that the task has.
func (s *source) secret(ctx context.Context, name string, after uint64) (v tasktemplate.Value, err error) {
	if err := s.wait(ctx, after); err != nil {
		return v, err
	}
	token := s.work.Extra["VAULT_TOKEN"]
	if token == "" {
		return v, errkind.New(errkind.Unavailable, "the task has no token of the secrets plane: its job needs a vault block")
	}
	text, _, found, err := s.fetch(ctx, readLimit, s.secretsAPI()+"/v1/"+strings.TrimPrefix(escaped(name), "/"),
		http.Header{"X-Vault-Token": {token}, "X-Vault-Request": {"true"}})
	if err != nil || !found {
		return tasktemplate.Value{Index: 2}, err
	}
	var answer struct {
		LeaseDuration int `json:"lease_duration"`
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
	return tasktemplate.Value{Found: true, Index: sum.Sum64() | 2, Data: &tasktemplate.SecretData{Data: answer.Data,
		LeaseDuration: answer.LeaseDuration, Renewable: answer.Renewable}}, nil
}

// secretsAPI is where the secrets plane answers: in the environment of the agent as for its other clients, else on
// this host.
func (s *source) secretsAPI() string {
	if addr := s.work.Env.Vars["VAULT_ADDR"]; addr != "" {
		return strings.TrimSuffix(addr, "/")
	}
	if addr := s.agent.secrets; addr != "" {
		return strings.TrimSuffix(addr, "/")
	}
	return "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(s.d.Cfg.Ports.Secrets))
}
