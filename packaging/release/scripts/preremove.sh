#!/bin/sh
# Before @PACKAGE@ is removed; rpm says 0 for that, and 1 before the files of a former version go.
set -e
case "$1" in
upgrade | 1 | failed-upgrade | deconfigure) exit 0 ;;
esac
[ -z "${DPKG_ROOT:-}" ] || exit 0
for unit in @UNITS@; do
	if [ -d /run/systemd/system ]; then
		systemctl --quiet disable --now "$unit" || true # it was never enabled
	elif [ -d /run/openrc ]; then
		rc-service --ifstarted "${unit%.service}" stop || true
		rc-update --quiet --all delete "${unit%.service}" || true
	fi
done
