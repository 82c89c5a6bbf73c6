package mounting

import (
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/mount"
)

// instead says of Vault's types that are not here what serves their users.
var instead = map[Side]map[string]string{
	Login: {
		"kerberos": "people log in by ldap or oidc",
	},
	Secret: {
		"ad":       "mount the type ldap, and write schema=ad to its config",
		"openldap": "mount the type ldap",
		"rabbitmq": "keep its users in the server, and their passwords in kv",
	},
}

// missing is the error for a type of mounts that there is not.
func missing(e *mount.Entry, side Side) error {
	if text := instead[side][e.Type]; text != "" {
		return errkind.Errorf(errkind.Invalid, "plugin not found in the catalog: %s is not supported: %s", e.Type, text)
	}
	return errkind.Errorf(errkind.Invalid, "plugin not found in the catalog: %s", e.Type)
}
