package vaultcmd

import (
	"fmt"
	"maps"
	"slices"

	"corbel.dev/corbel/client/vault"
)

// loginSecond brings the second factor of a login: a passcode for each constraint, by its first method.
func loginSecond(c *Call, l *loginFlags, first *vault.Answer) (*vault.Answer, error) {
	m := first.Auth.MFA
	payload, prompts := map[string][]string{}, []string{}
	for _, name := range slices.Sorted(maps.Keys(m.Constraints)) {
		methods := m.Constraints[name].Any
		if len(methods) == 0 {
			return nil, fmt.Errorf("the login enforcement %s names no method that exists: an operator must change it", name)
		}
		if id := methods[0].ID; !slices.Contains(prompts, id) {
			prompts = append(prompts, id)
		}
	}
	if l.alone {
		return nil, fmt.Errorf("a second factor is needed, of %v: vault write sys/mfa/validate mfa_request_id=%s "+
			"mfa_payload=@FILE, where FILE holds {\"METHOD\": [\"PASSCODE\"]}; or log in with -mfa METHOD:PASSCODE",
			prompts, m.ID)
	}
	for _, id := range prompts {
		code, err := Hidden(c, fmt.Sprintf("Passcode of the MFA method %s (will be hidden): ", id))
		if err != nil {
			return nil, err
		}
		payload[id] = []string{code}
	}
	return c.Do("PUT", "sys/mfa/validate", map[string]any{"mfa_request_id": m.ID, "mfa_payload": payload})
}
