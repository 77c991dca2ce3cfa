#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# deb.sh ROOT BUILD: makes the Debian packages of BUILD, unpacks them as dpkg would below a folder, and looks whether
# README's program is built and run by what is there, and whether removal leaves nothing. Needs no rights.
set -eu
root=${1:?usage: deb.sh ROOT BUILD} build=${2:?usage: deb.sh ROOT BUILD}
command -v dpkg-deb >/dev/null && command -v dpkg-shlibdeps >/dev/null || { echo "deb: no dpkg here"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "deb: $*"; exit 1; }

(cd "$work" && cpack -G DEB --config "$build/CPackConfig.cmake" -B "$work/made" >log 2>&1) || { cat "$work/log"; fail "cpack fails"; }
for name in libtutti0 libtutti-dev tutti-tools; do
    file=$(find "$work/made" -maxdepth 1 -name "${name}_*.deb")
    [ -f "$file" ] || fail "there is no $name"
    [ "$(dpkg-deb -f "$file" Package)" = "$name" ] || fail "$file is not $name"
    dpkg-deb -x "$file" "$work/root"
    dpkg-deb -c "$file" | awk '$1 !~ /^d/ {print $6}' >>"$work/files"
done
[ -z "$(sort "$work/files" | uniq -d)" ] || fail "two packages hold $(sort "$work/files" | uniq -d | head -1)"
dpkg-deb -f "$work"/made/libtutti0_*.deb Depends | grep -q 'libc6 (>= ' || fail "libtutti0 names no libc6"
dpkg-deb -f "$work"/made/libtutti-dev_*.deb Depends | grep -q 'libtutti0 (= ' || fail "libtutti-dev does not need libtutti0"

awk '/^```c$/ {on = 1; next} /^```$/ {on = 0} on' "$root/README.md" >"$work/hello.c"
"${CC:-cc}" "$work/hello.c" -o "$work/hello" -I"$work/root/usr/include" -L"$work/root/usr/lib" -ltutti
LD_LIBRARY_PATH=$work/root/usr/lib "$work/root/usr/bin/tutti" run -n 4 -- "$work/hello" >"$work/out" 2>&1 || { cat "$work/out"; fail "README's program fails"; }
[ "$(grep -c 'of 4: the sum is 10$' "$work/out")" = 4 ] || { cat "$work/out"; fail "README's program prints something else"; }
echo "deb: made, unpacked, compiled against and run"
