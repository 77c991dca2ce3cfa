#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# purity.sh ARCHIVE: the library of algorithms may import tutti_emit_* alone, and may own no memory that can change (S10).
set -eu
archive=${1:?usage: purity.sh ARCHIVE}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

nm --undefined-only -j "$archive" | grep -v -e ':$' -e '^$' | LC_ALL=C sort -u >"$work/undefined"
nm --defined-only --extern-only -j "$archive" | grep -v -e ':$' -e '^$' | LC_ALL=C sort -u >"$work/defined"
[ -s "$work/defined" ] || { echo "purity: $archive defines nothing"; exit 1; }
# _GLOBAL_OFFSET_TABLE_ is how position-independent code finds its own constants.
bad=$(LC_ALL=C comm -23 "$work/undefined" "$work/defined" | grep -v -e '^tutti_emit_' -e '^_GLOBAL_OFFSET_TABLE_$' || true)
for name in $bad; do
    echo "purity: $archive imports $name; an algorithm may import only tutti_emit_*"
done
state=$(size -A "$archive" | awk '($1 ~ /^\.t?data$/ || $1 ~ /^\.t?data\.[^r]/ || $1 ~ /^\.t?bss/) && $2 > 0 {print $1}' | sort -u)
[ -z "$state" ] || echo "purity: $archive has variables (in" $state"); an algorithm may keep no state"
[ -z "$bad$state" ] || exit 1
echo "purity: imports" $(LC_ALL=C comm -23 "$work/undefined" "$work/defined")
