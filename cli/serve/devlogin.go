package serve

import (
	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/keptlogin"
)

// logUserIn keeps the well-known logins of dev's planes for the host's user, so that its commands need none: the
// catalog of dev asks nobody for a token. Where they cannot be kept, the greeting says what they are.
func logUserIn(e *command.Env, planes planeAddrs) {
	if planes.secrets != "" {
		_ = keptlogin.Keep(e.Getenv, keptlogin.Secrets, planes.secrets, keptlogin.Login{Token: "root"})
	}
	if planes.monitor != "" {
		_ = keptlogin.Keep(e.Getenv, keptlogin.Monitor, planes.monitor, keptlogin.Login{User: "admin",
			Password: "P@ssw0rd!"})
	}
}

// logUserOut forgets them: whatever answers at the same address next is not shown them.
func logUserOut(e *command.Env, planes planeAddrs) {
	if planes.secrets != "" {
		_ = keptlogin.Forget(e.Getenv, keptlogin.Secrets, planes.secrets)
	}
	if planes.monitor != "" {
		_ = keptlogin.Forget(e.Getenv, keptlogin.Monitor, planes.monitor)
	}
}
