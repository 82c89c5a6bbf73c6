#!/bin/sh
# After the removal of @PACKAGE@. Data and configuration stay, but for a purge.
set -e
root="${DPKG_ROOT:-}"
if [ "$1" = purge ]; then
	for folder in @PURGED@; do
		rm -rf "$root$folder"
	done
fi
[ -z "$root" ] && [ -d /run/systemd/system ] || exit 0
systemctl daemon-reload || true
