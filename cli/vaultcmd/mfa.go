package vaultcmd

import (
	"fmt"

	"corbel.dev/corbel/cli/secondfactor"
	"corbel.dev/corbel/client/vault"
)

// loginSecond brings the second factor of a login: a passcode for each constraint, by its first method.
func loginSecond(c *Call, l *loginFlags, first *vault.Answer) (*vault.Answer, error) {
	m := first.Auth.MFA
	if l.alone {
		list, err := secondfactor.Methods(m)
		if err != nil {
			return nil, err
		}
		ids := []string{}
		for _, one := range list {
			ids = append(ids, one.ID)
		}
		return nil, fmt.Errorf("a second factor is needed, of %v: vault write sys/mfa/validate mfa_request_id=%s "+
			"mfa_payload=@FILE, where FILE holds {\"METHOD\": [\"PASSCODE\"]}; or log in with -mfa METHOD:PASSCODE", ids, m.ID)
	}
	passcodes, err := secondfactor.Ask(m, c.Hidden)
	if err != nil {
		return nil, err
	}
	return c.Do("PUT", secondfactor.Path, secondfactor.Body(m, passcodes))
}
