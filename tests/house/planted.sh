#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# planted.sh ROOT CC: the checks of this folder refuse what they are there for: each fault is planted in a small tree
# of its own, and the check must pass before it and fail, naming it, after it.
set -eu
root=${1:?usage: planted.sh ROOT CC} cc=${2:?usage: planted.sh ROOT CC}
here=$root/tests/house
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
n_failed=0

expect() { # pass|fail, text that must be printed, command...
    want=$1 text=$2
    shift 2
    if "$@" >"$work/out" 2>&1; then got=pass; else got=fail; fi
    if [ $got = "$want" ] && grep -q -- "$text" "$work/out"; then return 0; fi
    echo "planted: '$*' should $want and print '$text'; it did $got and printed:"
    cat "$work/out"
    n_failed=$((n_failed + 1))
}

# ---- rooms ----
tree=$work/tree
mkdir -p "$tree/src/base" "$tree/src/engine/low" "$tree/src/engine/high" "$tree/include/tutti" "$tree/examples" "$tree/bindings/x" \
    "$tree/tools/tutti" "$tree/tools/z/part" "$tree/tests"
rooms='0 | base |  | ground
1 | model | base | above it
2 | engine | base | a folder, its header
2 | engine/low | base engine | a room in it
2 | engine/high | base engine engine/low | and one above that
10 | bindings/y/low |  | a room of a binding
10 | bindings/y/high | low | and one above it
10 | tools/tutti | engine | a tool
10 | tools/z | base | another
10 | tools/z/part | base tools/z | a part of it'
echo "$rooms" >"$tree/src/rooms.txt"
echo '#include "base/a.h"' >"$tree/src/base/a.c"
: >"$tree/src/base/a.h"
printf '#include <tutti/a.h>\n#include <stdio.h>\n#include "base/a.h"\n' >"$tree/src/engine/e.h"
printf '#include "engine/e.h"\n' >"$tree/src/engine/low/l.h"
printf '#include "engine/low/l.h"\n#include "base/a.h"\n' >"$tree/src/engine/high/h.c"
printf '#include "engine/low/l.h"\n#include "tools/tutti/t.h"\n' >"$tree/tools/tutti/t.c"
: >"$tree/tools/tutti/t.h"
printf '#include "base/a.h"\n' >"$tree/tools/z/z.h"
printf '#include "tools/z/z.h"\n#include "base/a.h"\n' >"$tree/tools/z/part/p.c"
: >"$tree/include/tutti/a.h"
: >"$tree/bindings/x/x.hpp"
printf '#include "x.hpp"\n#include <tutti/a.h>\n#include <torch/x.h>\n#include <vector>\n' >"$tree/bindings/x/x.cpp"
expect pass "0 refused" sh "$here/rooms.sh" "$tree"
mkdir -p "$tree/bindings/y/low" "$tree/bindings/y/high"
: >"$tree/bindings/y/low/l.hpp"
echo '#include "low/l.hpp"' >"$tree/bindings/y/high/h.hpp"
echo '#include "high/h.hpp"' >"$tree/bindings/y/high/g.hpp"
expect pass "0 refused" sh "$here/rooms.sh" "$tree"
plant() { # file, line, words of the refusal
    cp "$tree/$1" "$work/saved" 2>/dev/null || : >"$work/saved"
    echo "$2" >>"$tree/$1"
    expect fail "$3" sh "$here/rooms.sh" "$tree"
    cp "$work/saved" "$tree/$1"
}
plant src/base/a.c '#include "engine/e.h"' 'may not include "engine/e.h"'
plant src/base/a.c '  #  include <model/c.h>' 'may not include "model/c.h"'
plant src/engine/e.h '#include "model/choose.h"' 'may not include "model/choose.h"'
plant src/engine/e.h '#include "engine/low/l.h"' 'may not include "engine/low/l.h"'
plant src/engine/low/l.h '#include "engine/high/h.h"' 'may not include "engine/high/h.h"'
plant src/engine/e.h '#include "../model/c.h"' 'climbs out'
plant src/engine/e.h '#include "a.h"' 'neither in src/engine nor'
plant src/engine/low/k.cu '#include "h.c"' 'neither in src/engine/low nor'
plant include/tutti/a.h '#include "base/a.h"' 'a public header'
plant examples/x.c '#include "base/a.h"' 'a program in examples may use only'
plant bindings/x/x.cpp '#include "base/a.h"' 'a binding may use only'
plant bindings/x/x.hpp '#include "y.hpp"' '"y.hpp" is not in bindings/x'
plant bindings/y/low/l.hpp '#include "high/h.hpp"' 'bindings/y/low may not include "high/h.hpp"'
plant bindings/y/high/h.hpp '#include "high/g.hpp"' 'in a circle of includes: bindings/y/high/'
plant bindings/y/high/h.hpp '#include <cuda_runtime.h>' 'one kind of device'
plant bindings/x/x.cpp '#include <c10/cuda/CUDAStream.h>' 'one kind of device'
plant bindings/x/x.cpp '#include <cuda_runtime.h>' 'one kind of device'
plant tools/tutti/t.c '#include "nowhere.h"' 'not named from the root'
plant tools/z/part/p.c '#include "engine/e.h"' 'tools/z/part may not include "engine/e.h"'
plant tools/z/z.h '#include "tools/z/part/p.c"' 'tools/z may not include "tools/z/part/p.c"'
plant tests/t.c '#include "nowhere.h"' 'neither in tests nor'
plant src/rooms.txt '1 | sideways | engine | what it uses is above it' 'sideways may not use engine'
mkdir "$tree/src/stray" "$tree/src/engine/stray" "$tree/bindings/y/stray"
plant bindings/y/stray/s.hpp '#include <vector>' 'a folder without a row'
plant src/stray/s.c '#include <stdio.h>' 'src/stray has no row'
plant src/engine/stray/s.c '#include <stdio.h>' 'a folder without a row'
rm -r "$tree/src/stray" "$tree/src/engine/stray" "$tree/bindings/y/stray" "$tree/examples/x.c" "$tree/tests/t.c" "$tree/src/engine/low/k.cu"
expect pass "0 refused" sh "$here/rooms.sh" "$tree"

# ---- circles ----
objects=$work/build/tutti_x.dir
mkdir -p "$objects"
object() { # name, text
    echo "$2" | "$cc" -x c -c -o "$objects/$1.c.o" -
}
object a 'int b(void); int a(void) { return b(); } int d(void) { return 0; }'
object b 'int c(void); int b(void) { return c(); }'
object c 'int c(void) { return 0; }'
for name in a b c; do echo "  \"command\": \"cc -o tutti_x.dir/$name.c.o -c $name.c\""; done >"$work/build/compile_commands.json"
expect pass "3 files" sh "$here/circles.sh" "$work/build"
object c 'int d(void); int c(void) { return d(); }'
expect fail "in a circle: b.c" sh "$here/circles.sh" "$work/build"

# ---- files ----
find "$tree" -name '*.[ch]' -o -name '*.[ch]pp' -o -name '*.cu' -o -name '*.cuh' | while read -r file; do echo '/* SPDX-License-Identifier: BSD-3-Clause */' >"$file"; done
expect pass "0 refused" sh "$here/files.sh" "$tree"
spoil() { # text of a file, words of the refusal
    printf "$1" >"$tree/src/base/spoilt.c"
    expect fail "spoilt.c: .*$2" sh "$here/files.sh" "$tree"
    rm "$tree/src/base/spoilt.c"
}
licence='/* SPDX-License-Identifier: BSD-3-Clause */\n'
spoil 'int x;\n' 'no SPDX line'
spoil "${licence}int x; /* TO""DO */\n" 'a promise'
snake() { # text of a Python file, words of the refusal
    printf "$1" >"$tree/bindings/x/spoilt.py"
    expect fail "spoilt.py: .*$2" sh "$here/files.sh" "$tree"
    rm "$tree/bindings/x/spoilt.py"
}
snake '# SPDX-License-Identifier: BSD-3-Clause\nx = 1\n' 'no docstring'
snake "# SPDX-License-Identifier: BSD-3-Clause\n\"\"\"Says.\"\"\"\nx = '$(printf '%0120d' 0)'\n" '126 columns are more than 120'
spoil "${licence}int x;" 'does not end with a newline'
spoil "$licence$(yes 'int x;\n' | head -500 | tr -d '\n')" '501 lines are more than 500'

# ---- purity ----
build() { # source text -> archive
    echo "$1" >"$work/x.c"
    rm -f "$work/x.a"
    "$cc" -O1 -fPIC -fno-builtin -c "$work/x.c" -o "$work/x.o" && ar rcs "$work/x.a" "$work/x.o"
}
emit='void tutti_emit_send(void); static const int table[] = {1, 2};'
build "$emit int f(int i); int f(int i) { tutti_emit_send(); return table[i]; }"
expect pass "imports tutti_emit_send" sh "$here/purity.sh" "$work/x.a"
build "$emit void *malloc(unsigned long); void *f(void); void *f(void) { tutti_emit_send(); return malloc(8); }"
expect fail "imports malloc" sh "$here/purity.sh" "$work/x.a"
build "$emit int f(void); int f(void) { static int calls; tutti_emit_send(); return table[calls++ & 1]; }"
expect fail "has variables" sh "$here/purity.sh" "$work/x.a"
build "$emit int f(void); int f(void) { static int calls = 7; tutti_emit_send(); return table[calls++ & 1]; }"
expect fail "has variables" sh "$here/purity.sh" "$work/x.a"

# ---- symbols ----
mkdir "$tree/cmake"
echo 'project(tutti VERSION 0.1.0 LANGUAGES C)' >"$tree/CMakeLists.txt"
printf '#define TUTTI_API\nTUTTI_API int tutti_one(void);\nTUTTI_API void *\ntutti_two(int a);\n' >"$tree/include/tutti/a.h"
printf 'TUTTI_0 {\nglobal:\n    tutti_one;\n    tutti_two;\nlocal:\n    *;\n};\n' >"$tree/cmake/libtutti.map"
share() { # source text, version script -> library
    echo "$1" >"$work/y.c"
    "$cc" -shared -fPIC -Wl,-soname,"${3:-libtutti.so.0}" ${2:+-Wl,--version-script="$2"} "$work/y.c" -o "$work/y.so"
}
one='int tutti_one(void) { return 1; }' two='void *tutti_two(int a) { return a ? "" : 0; }'
share "$one $two int stray(void) { return 2; }" "$tree/cmake/libtutti.map"
expect pass "2 declared, 2 exported" sh "$here/symbols.sh" "$tree" "$work/y.so"
share "$one $two int stray(void) { return 2; }" ""
expect fail "stray is exported but not declared" sh "$here/symbols.sh" "$tree" "$work/y.so"
share "$one" ""
expect fail "tutti_two is declared but not exported" sh "$here/symbols.sh" "$tree" "$work/y.so"
share "$one $two" "" libtutti.so.1
expect fail "soname is 'libtutti.so.1'" sh "$here/symbols.sh" "$tree" "$work/y.so"
share "$one $two" ""
echo 'TUTTI_API int tutti_three(void);' >>"$tree/include/tutti/a.h"
expect fail "tutti_three is declared but not in cmake/libtutti.map" sh "$here/symbols.sh" "$tree" "$work/y.so"

# ---- links ----
mkdir -p "$work/pages/docs"
echo 'See [it](a.md#part), [there](../docs/a.md) and [far](https://tutti.example).' >"$work/pages/docs/a.md"
expect pass "of 1 pages" sh "$here/links.sh" "$work/pages"
echo 'Also [gone](../gone.c).' >>"$work/pages/docs/a.md"
expect fail "there is no ../gone.c" sh "$here/links.sh" "$work/pages"

# ---- names ----
mkdir -p "$work/pages/src/base"
echo 'See [it](a.md), b.c and `b_one`.' >"$work/pages/docs/a.md"
printf '/* As base/b.c has it, and its list.\n * See a.md. */\nint b_one = "gone.c"; // <gone.h>\n' >"$work/pages/src/base/b.c"
expect pass "0 of which" sh "$here/names.sh" "$work/pages"
spell() { # file, line, words of the refusal
    cp "$work/pages/$1" "$work/saved" 2>/dev/null || : >"$work/saved"
    echo "$2" >>"$work/pages/$1"
    expect fail "$3" sh "$here/names.sh" "$work/pages"
    cp "$work/saved" "$work/pages/$1"
}
spell src/base/b.c '/* As other/b.c has it. */' 'b.c:4: there is no other/b.c'
spell src/base/b.c 'int x; // as in gone.h' 'there is no gone.h'
printf '/* B. */\nstruct b_one {\n};\n' >"$work/pages/src/base/b.h"
spell src/base/c.h 'struct b_one {' 'two headers define: struct b_one'
rm "$work/pages/src/base/b.h" "$work/pages/src/base/c.h"
spell docs/a.md 'Look at `src/base/c.c`.' 'a.md:2: there is no src/base/c.c'
spell docs/tour.md 'Then `b_two` is called.' 'names what no source has: b_two'

[ $n_failed = 0 ] && echo "planted: every fault refused"
exit $((n_failed > 0))
