#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# package.sh ROOT BUILD CC: installs BUILD into a fresh prefix, moves that somewhere else, and there uses it as a
# stranger would: the program of README.md through pkg-config, a CMake project through find_package, both run by the
# installed command.
set -eu
root=${1:?usage: package.sh ROOT BUILD CC} build=${2:?usage: package.sh ROOT BUILD CC} cc=${3:-cc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "package: $*"; exit 1; }

cmake --install "$build" --prefix "$work/first" >"$work/log" 2>&1 || { cat "$work/log"; fail "cannot install"; }
mkdir "$work/a place" && mv "$work/first" "$work/a place/moved"
ln -s "a place/moved" "$work/prefix" # pkg-config's output cannot carry a space
prefix=$work/prefix
libdir=$(dirname "$(find -L "$prefix" -name 'libtutti.so')")
export LD_LIBRARY_PATH="$libdir" PATH="$prefix/bin:$PATH"

for file in bin/tutti include/tutti/tutti.h share/man/man1/tutti.1 share/man/man1/tutti-sched.1 share/man/man3/tutti.3 share/man/man7/tutti.7 \
    share/bash-completion/completions/tutti share/zsh/site-functions/_tutti; do
    [ -s "$prefix/$file" ] || fail "$file is not installed"
done
[ ! -e "$build/man/stamp" ] || [ -s "$prefix/share/man/man3/tutti_all_reduce.3" ] || fail "the functions' man pages are not installed"
[ -s "$libdir/tutti/nccl/libnccl.so.2" ] || fail "libnccl.so.2 is not installed in tutti/nccl beside libtutti.so"
stray=$(cd "$prefix/include" && find . -name '*.h' | sed 's|^\./||' | LC_ALL=C sort)
ours=$(cd "$root/include" && find . -name '*.h' | sed 's|^\./||' | LC_ALL=C sort)
[ "$stray" = "$ours" ] || fail "the installed headers are not those of include/: $stray"

awk '/^```c$/ {on = 1; next} /^```$/ {on = 0} on' "$root/README.md" >"$work/hello.c"
grep -q 'int main' "$work/hello.c" || fail "README.md has no example"
hello() { # program
    command -v tutti | grep -q "^$prefix/" || fail "tutti is not the installed one"
    tutti run -n 4 -- "$1" >"$work/out" 2>&1 || { cat "$work/out"; fail "$1 fails"; }
    [ "$(grep -c 'of 4: the sum is 10$' "$work/out")" = 4 ] || { cat "$work/out"; fail "$1 prints something else"; }
}

# Every public header stands alone, in C and in pedantic C.
for header in "$prefix"/include/tutti/*.h; do
    echo "#include <tutti/$(basename "$header")>" >"$work/alone.c"
    "$cc" -std=c11 -Wall -Wextra -Wpedantic -Werror -I"$prefix/include" -fsyntax-only "$work/alone.c" ||
        fail "$(basename "$header") does not compile alone"
done

if command -v pkg-config >/dev/null; then
    export PKG_CONFIG_PATH="$libdir/pkgconfig"
    "$cc" "$work/hello.c" -o "$work/hello" $(pkg-config --cflags --libs tutti) || fail "README's example does not compile"
    hello "$work/hello"
    version=$(pkg-config --modversion tutti)
    [ "tutti $version" = "$(tutti --version)" ] || fail "tutti.pc says $version, the command $(tutti --version)"
else
    echo "package: pkg-config is not here; tutti.pc is not tested"
fi

cp -r "$root/tests/package/consumer" "$work/consumer"
cp "$work/hello.c" "$work/consumer/hello.c"
cmake -S "$work/consumer" -B "$work/consumer/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" \
    >"$work/log" 2>&1 && cmake --build "$work/consumer/build" >>"$work/log" 2>&1 ||
    { cat "$work/log"; fail "find_package(tutti) does not serve"; }
hello "$work/consumer/build/hello"
echo "package: installed, moved, compiled against and run"
