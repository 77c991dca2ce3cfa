#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# deb.sh ROOT BUILD: makes the Debian packages of BUILD, has lintian look at them where it is, and lets dpkg install them
# below a folder. README's program is built there through pkg-config and through find_package, and run by the installed
# command; libnccl.so.2 is found; removal leaves nothing. Needs no rights.
set -eu
root=${1:?usage: deb.sh ROOT BUILD} build=${2:?usage: deb.sh ROOT BUILD}
for tool in dpkg dpkg-shlibdeps file gzip; do
    command -v $tool >/dev/null || { echo "deb: $tool is not here (Debian: apt-get install dpkg-dev file)"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "deb: $*"; exit 1; }
logged() { "$@" >"$work/log" 2>&1 || { cat "$work/log"; fail "$1 fails"; }; }
mkdir "$work/bin" && ln -s "$(command -v true)" "$work/bin/ldconfig" # this machine's cache stays as it is
PATH=$work/bin:$PATH:/usr/sbin:/sbin
system=$work/system
dpkg_here() { logged dpkg --root="$system" --log="$work/dpkg.log" --force-not-root,depends,script-chrootless --no-triggers "$@"; }

logged cpack -G DEB --config "$build/CPackConfig.cmake" -B "$work/made"
for name in libtutti0 libtutti-dev tutti-tools; do
    file=$(find "$work/made" -maxdepth 1 -name "${name}_*.deb")
    [ -f "$file" ] || fail "there is no $name"
    [ "$(dpkg-deb -f "$file" Package)" = "$name" ] || fail "$file is not $name"
    dpkg-deb -c "$file" | awk '$1 !~ /^d/ {print $6}' >>"$work/files"
done
[ -z "$(sort "$work/files" | uniq -d)" ] || fail "two packages hold $(sort "$work/files" | uniq -d | head -1)"
dpkg-deb -f "$work"/made/libtutti0_*.deb Depends | grep -q 'libc6 (>= ' || fail "libtutti0 names no libc6"
dpkg-deb -f "$work"/made/libtutti-dev_*.deb Depends | grep -q 'libtutti0 (= ' || fail "libtutti-dev does not need libtutti0"
if command -v lintian >/dev/null; then
    logged lintian --allow-root --fail-on error "$work"/made/*.deb
else
    echo "deb: lintian is not here"
fi

mkdir -p "$system/var/lib/dpkg/updates" "$system/var/lib/dpkg/info"
touch "$system/var/lib/dpkg/status"
dpkg_here --install "$work"/made/*.deb
export LD_LIBRARY_PATH="$system/usr/lib" PATH="$system/usr/bin:$PATH" PKG_CONFIG_PATH="$system/usr/lib/pkgconfig"
awk '/^```c$/ {on = 1; next} /^```$/ {on = 0} on' "$root/README.md" >"$work/hello.c"
hello() { # words before the program, program
    logged tutti run "$@"
    [ "$(grep -c 'of 4: the sum is 10$' "$work/log")" = 4 ] || { cat "$work/log"; fail "README's program prints something else"; }
}
command -v tutti | grep -q "^$system/" || fail "tutti is not the installed one"
if command -v pkg-config >/dev/null; then
    "${CC:-cc}" "$work/hello.c" -o "$work/hello" $(pkg-config --cflags --libs tutti)
    hello -n 4 -- "$work/hello"
fi
cp -r "$root/tests/package/consumer" "$work/consumer"
cp "$work/hello.c" "$work/consumer"
logged cmake -S "$work/consumer" -B "$work/consumer/build" -DCMAKE_PREFIX_PATH="$system/usr"
logged cmake --build "$work/consumer/build"
hello -n 4 -- "$work/consumer/build/hello"
said=$(tutti run --as-nccl -- sh -c 'echo "$LD_PRELOAD"')
[ "$said" = "$system/usr/lib/tutti/nccl/libnccl.so.2" ] || fail "tutti run --as-nccl loads '$said'"

dpkg_here --purge tutti-tools libtutti-dev libtutti0
left=$(cd "$system" && find . -path ./var -prune -o ! -type d -print)
[ -z "$left" ] || fail "removal leaves $left"
[ ! -e "$system/usr" ] || fail "removal leaves folders in usr"
echo "deb: made, installed, compiled against, run and removed"
