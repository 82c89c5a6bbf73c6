#!/bin/sh
# Before @PACKAGE@ is removed; rpm says 0 for that, and 1 before the files of a former version go.
set -e
case "$1" in
upgrade | 1 | failed-upgrade | deconfigure) exit 0 ;;
esac
[ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ] || exit 0
for unit in @UNITS@; do
	systemctl --quiet disable --now "$unit" || true # it was never enabled
done
