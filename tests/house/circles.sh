#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# circles.sh ROOT BUILD: refuses circles between the folders of the library and of the command. A folder uses another when
# one of its object files needs a symbol that the other one defines. Files of one folder may need one another, and a
# folder may name the folders inside it: there stands the list of its implementations.
set -eu
root=${1:?usage: circles.sh ROOT BUILD} build=${2:?usage: circles.sh ROOT BUILD}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Object file and source, of what is built now: files that were removed may have left objects behind.
sed -n 's/^ *"command": .* -o \([^ ]*\.c\.o\).* -c \([^ "]*\)",*$/\1 \2/p' "$build/compile_commands.json" |
    grep -E '/tutti_[a-z_]+\.dir/' | awk -v root="$root/" 'index($2, root) == 1 { print $1, substr($2, length(root) + 1) }' |
    grep -E ' (src|tools)/' | LC_ALL=C sort >"$work/sources"
[ -s "$work/sources" ] || { echo "circles: no object files below $build"; exit 1; }
(cd "$build" && cut -d ' ' -f 1 "$work/sources" | xargs nm -A 2>/dev/null) | awk -v sources="$work/sources" '
BEGIN {
    while ((getline line <sources) > 0) {
        split(line, cell, " ")
        sub(/\/[^\/]*$/, "", cell[2])
        folder[cell[1]] = cell[2]
    }
}
{
    object = $1
    sub(/:.*/, "", object)
    if ($(NF - 1) ~ /^[TDBRVW]$/) owner[$NF] = folder[object]
    else if ($(NF - 1) == "U") { n++; user[n] = folder[object]; used[n] = $NF }
}
END {
    for (i = 1; i <= n; i++)
        if (used[i] in owner && owner[used[i]] != user[i] && index(owner[used[i]], user[i] "/") != 1) print user[i], owner[used[i]]
}' | LC_ALL=C sort -u >"$work/edges"
printf 'circles: %d object files, %d uses of one folder by another\n' "$(wc -l <"$work/sources")" "$(wc -l <"$work/edges")"
[ -s "$work/edges" ] || exit 1
tsort "$work/edges" >/dev/null 2>"$work/loops" && exit 0
sed -n 's/^tsort: //p' "$work/loops" | grep -v 'input contains a loop' | sort -u | sed 's/^/in a circle: /'
exit 1
