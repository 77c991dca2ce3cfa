#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# symbols.sh ROOT LIBRARY: three lists must be equal: the functions that include/tutti declares, the names in
# cmake/libtutti.map, and what the library exports. Its soname must be libtutti.so.MAJOR.
set -eu
root=${1:?usage: symbols.sh ROOT LIBRARY} library=${2:?usage: symbols.sh ROOT LIBRARY}
export LC_ALL=C
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat "$root"/include/tutti/*.h | grep -v '^#' | tr '\n' ' ' | grep -oE 'TUTTI_API [^(]*\(' |
    sed -E 's/.*[ *](tutti_[a-z0-9_]+)\($/\1/' | sort -u >"$work/declared"
sed -nE 's/^ *(tutti_[a-z0-9_]+);$/\1/p' "$root/cmake/libtutti.map" | sort -u >"$work/listed"
nm -D --defined-only -j "$library" | sed 's/@.*//' | grep -v '^TUTTI_' | sort -u >"$work/exported"
[ -s "$work/declared" ] || { echo "symbols: no declarations found in $root/include/tutti"; exit 1; }

status=0
report() { # file of names, sentence
    while read -r name; do
        echo "symbols: $name $2"
        status=1
    done <"$1"
}
comm -23 "$work/declared" "$work/listed" >"$work/a" && report "$work/a" "is declared but not in cmake/libtutti.map"
comm -13 "$work/declared" "$work/listed" >"$work/b" && report "$work/b" "is in cmake/libtutti.map but not declared"
comm -23 "$work/declared" "$work/exported" >"$work/c" && report "$work/c" "is declared but not exported"
comm -13 "$work/declared" "$work/exported" >"$work/d" && report "$work/d" "is exported but not declared"
soname=$(readelf -d "$library" | sed -nE 's/.*SONAME.*\[(.*)\].*/\1/p')
major=$(sed -nE 's/^project\(tutti VERSION ([0-9]+)\..*/\1/p' "$root/CMakeLists.txt")
[ "$soname" = "libtutti.so.$major" ] || { echo "symbols: soname is '$soname', not libtutti.so.$major"; status=1; }
echo "symbols: $(wc -l <"$work/declared") declared, $(wc -l <"$work/exported") exported, soname $soname"
exit $status
