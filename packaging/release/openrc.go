//go:build release

package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

// openrcScript is what starts a unit's program on Alpine, which has no systemd. It logs into a file.
const openrcScript = `#!/sbin/openrc-run
# Made of @NAME@.service.
description="@DESCRIPTION@"
supervisor=supervise-daemon
command=@COMMAND@
command_args="@ARGUMENTS@"
command_user=@USER@
respawn_delay=2
respawn_max=0
retry=TERM/@STOP@/KILL/5
rc_ulimit="-n @FILES@"
umask=0077
output_log=/var/log/@NAME@.log
error_log=/var/log/@NAME@.log
extra_started_commands=reload
description_reload="Read the configuration again"

depend() {
	need net
	use dns
	after firewall
}

start_pre() {
	checkpath --file --mode 0640 --owner @USER@ /var/log/@NAME@.log
	@STATE@
}

reload() {
	ebegin "$RC_SVCNAME reads its configuration"
	supervise-daemon "$RC_SVCNAME" --signal HUP
	eend $?
}
`

// openrc makes the script of a unit: what it starts, as whom, and within which limits stands in the unit alone.
func openrc(name, unit string) (string, error) {
	f, err := os.Open(unit)
	if err != nil {
		return "", err
	}
	defer f.Close()
	said := map[string]string{"User": "root", "Group": "root"}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if key, value, ok := strings.Cut(lines.Text(), "="); ok && !strings.HasPrefix(key, "#") {
			said[key] = value
		}
	}
	if err := lines.Err(); err != nil {
		return "", err
	}
	for _, key := range []string{"Description", "ExecStart", "TimeoutStopSec", "LimitNOFILE"} {
		if said[key] == "" {
			return "", fmt.Errorf("%s has no %s", unit, key)
		}
	}
	command, arguments, _ := strings.Cut(said["ExecStart"], " ")
	user, state := said["User"]+":"+said["Group"], ":"
	if dir := said["StateDirectory"]; dir != "" {
		state = "checkpath --directory --mode 0700 --owner " + user + " /var/lib/" + dir
	}
	return strings.NewReplacer("@NAME@", name, "@DESCRIPTION@", said["Description"], "@COMMAND@", command,
		"@ARGUMENTS@", arguments, "@USER@", user, "@STOP@", said["TimeoutStopSec"], "@FILES@", said["LimitNOFILE"],
		"@STATE@", state).Replace(openrcScript), nil
}
