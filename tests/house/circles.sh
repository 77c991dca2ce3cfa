#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# circles.sh BUILD: refuses circles between the files of the library and of the command: a file uses another when its object
# file needs a symbol that the other one defines. Read from the object files below BUILD, so that it is what the linker
# sees.
set -eu
build=${1:?usage: circles.sh BUILD}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Those that are built now: of files that were removed the tree may still hold some.
grep -oE ' -o [^ ]*tutti_[a-z_]+\.dir/[^ ]+\.c\.o' "$build/compile_commands.json" | sed "s|^ -o |$build/|" |
    LC_ALL=C sort >"$work/objects"
[ -s "$work/objects" ] || { echo "circles: no object files below $build"; exit 1; }
xargs nm -A <"$work/objects" 2>/dev/null | awk -v root="$build/" '
{
    file = $1
    sub(/:.*/, "", file)
    sub(/.*\.dir\//, "", file)
    sub(/\.o$/, "", file)
    name = $NF
    type = $(NF - 1)
    if (type ~ /^[TDBRVW]$/) owner[name] = file
    else if (type == "U") { n++; user[n] = file; used[n] = name }
}
END {
    for (i = 1; i <= n; i++)
        if (used[i] in owner && owner[used[i]] != user[i]) print user[i], owner[used[i]]
}' | LC_ALL=C sort -u >"$work/edges"
printf 'circles: %d files, %d uses of one by another\n' "$(wc -l <"$work/objects")" "$(wc -l <"$work/edges")"
tsort "$work/edges" >/dev/null 2>"$work/loops" && exit 0
sed -n 's/^tsort: //p' "$work/loops" | grep -v 'input contains a loop' | sort -u | sed 's/^/in a circle: /'
exit 1
