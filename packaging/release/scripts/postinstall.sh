#!/bin/sh
# After the installation or an upgrade of @PACKAGE@. deb says "configure [former version]", rpm 1 or 2 (2 upgrades), apk
# the version [and the former one].
set -e
root="${DPKG_ROOT:-}"
case "$1" in
abort-*) exit 0 ;;
esac

# The user. Nothing of the host is touched when the system is installed from outside (DPKG_ROOT).
if command -v systemd-sysusers >/dev/null 2>&1; then
	systemd-sysusers --root="${root:-/}" @PACKAGE@.conf
elif [ -z "$root" ] && ! id @USER@ >/dev/null 2>&1; then
	if command -v useradd >/dev/null 2>&1; then
		useradd --system --user-group --home-dir @HOME@ --no-create-home --shell /usr/sbin/nologin @USER@
	else
		addgroup -S @USER@
		adduser -S -D -H -h @HOME@ -s /sbin/nologin -G @USER@ @USER@
	fi
fi

# Owners: by number where the users are those of another root.
ids=$(sed -n 's/^@USER@:[^:]*:\([0-9]*\):\([0-9]*\):.*/\1:\2/p' "$root/etc/passwd" 2>/dev/null || true)
if [ -n "$ids" ]; then
	for folder in @DATA@; do
		[ ! -d "$root$folder" ] || chown "$ids" "$root$folder"
	done
	for folder in @FOLDERS@; do
		case " @DATA@ " in
		*" $folder "*) continue ;;
		esac
		chown "0:${ids#*:}" "$root$folder"
		chmod 0750 "$root$folder"
	done
fi

[ -z "$root" ] || exit 0
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true # the package is there all the same
	active() { systemctl --quiet is-active "$1"; }
	restart() { systemctl --no-block try-restart "$1"; }
elif [ -d /run/openrc ]; then
	active() { rc-service --quiet "${1%.service}" status; }
	restart() { rc-service --ifstarted "${1%.service}" restart; }
else
	exit 0
fi
# A unit under a peer's name may be the peer's own, or not be there: its program tells.
ours() {
	case "$1" in
	corbel-*) ;;
	*) [ "$(readlink -f "/usr/bin/${1%.service}")" = "$(readlink -f /usr/bin/corbel)" ] || return 1 ;;
	esac
	active "$1"
}
if [ "$1" = 2 ] || [ -n "$2" ]; then
	for unit in @RESTART@; do
		! ours "$unit" || restart "$unit" || echo "@PACKAGE@: ${unit%.service} was not restarted" >&2
	done
	for unit in @LATER@; do
		! ours "$unit" || echo "@PACKAGE@: ${unit%.service} still runs the former version. Restart one server after the other."
	done
fi
