#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# abi.sh ROOT [--accept]: what compiled programs rely on, the functions of include/tutti and the layouts of the structs they
# take, is what cmake/libtutti.abi says: libabigail compares it with a library made of the headers alone, each function of
# them with an empty body. (house.symbols compares the headers' functions with the library's.) --accept writes the file.
set -eu
root=${1:?usage: abi.sh ROOT [--accept]} kept=$1/cmake/libtutti.abi
command -v abidw >/dev/null && command -v abidiff >/dev/null || { echo "abi: abidw is not here (Debian: apt-get install abigail-tools)"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir "$work/tutti"
for header in "$root"/include/tutti/*.h; do
    sed -Ez 's/ TUTTI_MUST_USE;/;/g; s/(\nTUTTI_API [^;]*);/\1 { __builtin_trap(); }/g' "$header" >"$work/tutti/${header##*/}"
    echo "#include <tutti/${header##*/}>"
done >"$work/all.c"
"${CC:-cc}" -g -w -fPIC -shared -Wl,-soname,libtutti.so -I"$work" "$work/all.c" -o "$work/libtutti.so"
abidw --no-corpus-path --no-comp-dir-path --no-show-locs --no-elf-needed --no-architecture "$work/libtutti.so" >"$work/abi"
if [ "${2:-}" = --accept ]; then
    sed -E "s@ path='[^']*'@@" "$work/abi" >"$kept"
    exit
fi
status=0
abidiff --no-show-locs "$kept" "$work/abi" >"$work/report" || status=$?
if [ $status != 0 ]; then
    cat "$work/report"
    echo "abi: include/tutti is not what cmake/libtutti.abi says: programs compiled before may not run with it; if that is" \
        "meant, say so in CHANGELOG.md and run tests/house/abi.sh . --accept"
    exit 1
fi
echo "abi: $(grep -c '<elf-symbol ' "$kept") functions and their structs are as they were"
