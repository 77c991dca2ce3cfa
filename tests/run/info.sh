#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# usage: info.sh TUTTI. What `tutti info` says of the CPUs that it may use, alone and in jobs of many ranks.
set -u
tutti=$1
failed=0

# expect WORDS COMMAND...: an extended regular expression in the command's output.
expect() {
    local words=$1 output
    shift
    output=$("$@" 2>&1)
    grep -qE -- "$words" <<<"$output" && return
    printf 'FAILED: %s\n  expected "%s"; it said:\n%s\n' "$*" "$words" "$output"
    failed=1
}
fact() { # NAME: the number or text of a fact in the JSON that comes in
    sed -nE "s/.*\"$1\":\"?([^\",}]*).*/\1/p"
}
job() { # options of tutti run...
    "$tutti" run "$@" -- "$tutti" info --job --json
}

page=$("$tutti" info --json)
allowed=$(fact cpus_allowed <<<"$page")
usable=$(fact cpus_usable <<<"$page")
first=${allowed%%[-,]*}
[ -n "$first" ] && [ "${usable:-0}" -ge 1 ] || { echo "FAILED: no CPUs in: $page"; exit 1; }
expect '"topology":"(hwloc [0-9.]+|/sys)"' "$tutti" info --json
if command -v taskset >/dev/null; then
    expect "\"cpus_allowed\":\"$first\"" taskset -c "$first" "$tutti" info --json
    expect '"ranks_uncrowded":1[,}]' taskset -c "$first" "$tutti" info --json
fi

# More ranks than CPUs; one for each; two on the same; and each on its own.
expect '"crowded":true' job -n $((usable + 1)) --cores none
[ "$usable" -gt 16 ] || expect '"crowded":false' job -n "$usable" --cores none
expect '"crowded":false' job -n 1 --cores "$first"
expect '"crowded":true' job -n 2 --cores "$first"
[ "$usable" -lt 2 ] || expect '"crowded":false' job -n 2 --cores spread

# All ranks meet, one speaks.
[ "$(job -n 3 --cores none | grep -c '"job":')" = 1 ] || { echo "FAILED: three ranks, not one page"; failed=1; }
expect '"ranks":3[,}]' job -n 3
expect '"back_end":"none"' env TUTTI_BACKENDS=off "$tutti" run -n 2 -- "$tutti" info --job --json
TUTTI_RANK=0 TUTTI_WORLD_SIZE=2 TUTTI_TIMEOUT_CREATE=200ms "$tutti" info --job >/dev/null
[ $? = 1 ] || { echo "FAILED: the ranks did not meet, yet all is well"; failed=1; }

# By default a rank of 64 has at most 4 MiB of staging.
staging=$(job -n 64 --cores none | fact staging)
[ "${staging:-0}" -gt 0 ] && [ "$staging" -le $((4 << 20)) ] || { echo "FAILED: $staging bytes of staging"; failed=1; }

# A method that there is not is refused, with those that there are.
expect 'option flat is "lin" but can be .*line, stage' env TUTTI_FLAT=lin "$tutti" info --job
[ $failed = 0 ] && echo "info: all as expected"
exit $failed
