// Package secondfactor asks a person for the passcodes that a login of the secrets plane lacks. It keeps none.
package secondfactor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"corbel.dev/corbel/client/vault"
)

// Path is where the passcodes are brought.
const Path = "sys/mfa/validate"

// Methods are those that a passcode is asked for of: the first one of each constraint.
func Methods(m *vault.MFA) (list []vault.MFAMethod, err error) {
	for _, name := range slices.Sorted(maps.Keys(m.Constraints)) {
		methods := m.Constraints[name].Any
		if len(methods) == 0 {
			return nil, fmt.Errorf("the login enforcement %s names no method that exists: an operator must change it", name)
		}
		if !slices.Contains(list, methods[0]) {
			list = append(list, methods[0])
		}
	}
	return list, nil
}

// Ask asks for a passcode of each method, without showing it.
func Ask(m *vault.MFA, hidden func(prompt string) (string, error)) (passcodes map[string][]string, err error) {
	list, err := Methods(m)
	passcodes = map[string][]string{}
	for _, one := range list {
		code, err := hidden(fmt.Sprintf("Passcode of the MFA method %s (will be hidden): ", cmp.Or(one.Name, one.ID)))
		if err != nil {
			return nil, err
		}
		passcodes[one.ID] = []string{code}
	}
	return passcodes, err
}

// Body is what Path takes.
func Body(m *vault.MFA, passcodes map[string][]string) map[string]any {
	return map[string]any{"mfa_request_id": m.ID, "mfa_payload": passcodes}
}
