#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# manual.sh ROOT TUTTI: the manual pages name every public function, every option of the library and every option of
# the command, and none that does not exist. docs/security.md names only tests that exist. docs/xpu.md lists what is not
# proved of Intel GPUs as `tutti info` does, whose list is that of `tutti prove`.
set -euo pipefail
root=${1:?usage: manual.sh ROOT TUTTI} tutti=${2:?usage: manual.sh ROOT TUTTI}
export LC_ALL=C
n_failed=0

same() { # what, one list, other list
    local line
    while read -r line; do
        [ -z "$line" ] && continue
        echo "manual: $1: ${line//	/}"
        n_failed=$((n_failed + 1))
    done < <(comm -3 <(sort -u <<<"$2") <(sort -u <<<"$3"))
    [ -n "$2" ] || { echo "manual: $1: found none"; n_failed=$((n_failed + 1)); }
}

declared=$(sed -nE 's/^ *(tutti_[a-z0-9_]+);$/\1/p' "$root/cmake/libtutti.map") # which the test house.symbols compares
same "function in one of tutti.3 and the headers" "$(grep -oE 'tutti_[a-z0-9_]+' <(grep '^\.It Fn' "$root/man/tutti.3"))" "$declared"

options=$("$tutti" info --options | grep -oE '^\| `TUTTI_[A-Z_]+' | tr -d '|` ')
same "variable in one of tutti.7 and the list of options" \
    "$(sed -n '/^\.Sh OPTIONS/,/^\.Sh WHO/s/^\.It Ev \(TUTTI_[A-Z_]*\).*/\1/p' "$root/man/tutti.7")" "$options"

"$tutti" info --options | diff "$root/docs/options.md" - || {
    echo "manual: docs/options.md is not what 'tutti info --options' writes"
    n_failed=$((n_failed + 1))
}

same "point in one of docs/xpu.md and 'tutti info --verbose'" \
    "$(sed -n '/^| point of `tutti prove xpu`/,/^$/s/^| `\([a-z_]*\)` | \(.*\) |$/\1: \2/p' "$root/docs/xpu.md")" \
    "$("$tutti" info --verbose | sed -n '/^not_proved_of_xpu$/,/^$/s/^  \([a-z_]*\)  *\(.*\)/\1: \2/p')"

# Each test that docs/security.md names is there: a function of a test, or a fuzz target.
tests=$(find "$root/src" "$root/tests" "$root/tools" -name '*_test.c' -exec grep -hoE '^static void [a-z0-9_]+\(void \*\*state\)' {} + |
    sed -E 's/static void ([a-z0-9_]+).*/\1/'; sed -nE 's/^    def (test_[a-z0-9_]+).*/\1/p' "$root"/tests/{hosts,torch}/*_test.py; ls "$root/tests/fuzz" | sed -nE 's/^(.*)_fuzz\.c$/fuzz.\1/p')
for test in $(grep -E '^\| |fuzz\.' "$root/docs/security.md" | grep -oE '`([a-z]+_[a-z_0-9]+|fuzz\.[a-z]+)`' | tr -d '`'); do
    grep -qx "$test" <<<"$tests" || { echo "manual: docs/security.md names the test $test, which is not there"; n_failed=$((n_failed + 1)); }
done

for command in run bench info prove tune chaos "sched list" "sched show" "sched check" "sched mutants" "sched sim" "sched search" "sched job" "sched startup"; do
    given=$("$tutti" $command --help | sed -nE 's/^ +(-[a-zA-Z], )?(--[a-z-]+).*/\2/p' | grep -v -e '^--help$' || true)
    told=$(awk -v name=".Ss tutti $command" '/^\.S[sh] / {on = $0 == name} on' "$root"/man/*.1 |
        sed -nE '/^\.It Fl/s/.*Fl \\-([a-z\\-]+).*/--\1/p' | tr -d '\\')
    [ -z "$given$told" ] || same "option in one of the pages of section 1 and 'tutti $command --help'" "$told" "$given"
done
[ $n_failed = 0 ] && echo "manual: nothing missing, nothing too much"
exit $((n_failed > 0))
