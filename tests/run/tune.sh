#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# usage: tune.sh TUTTI. What `tutti tune` writes is what the library chooses by: rank 0's file, for all ranks.
set -u
tutti=$1
failed=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export XDG_CACHE_HOME=$folder/cache
unset TUTTI_TUNING

fail() { printf 'FAILED: %s\n' "$*"; failed=1; }
# expect WORDS COMMAND...: an extended regular expression in the command's output.
expect() {
    local words=$1 output
    shift
    output=$("$@" 2>&1)
    grep -qE -- "$words" <<<"$output" || fail "$*: expected \"$words\"; it said: $output"
}
chosen() { sed -nE 's/^  \* ([a-z_0-9:]+) .*/\1/p'; }
explain() { # file, bytes
    TUTTI_BACKENDS=off TUTTI_TUNING=$1 "$tutti" bench all_to_all -n 4 -b "$2" -e "$2" --explain --rounds 1
}

constants='line_ns wake_ns yield_ns call_ns message_ns ring_gbs pull_gbs pull_all_gbs far_gbs copy_gbs fold_gbs memory_gbs memory_all_gbs
give_gbs mid_gbs walk_ns own_kib attach_ns attach_page_ns attach_gbs cache_kib'

# What is measured is printed, and written where the library looks.
output=$("$tutti" tune) || fail "tune ended with $?"
for name in $constants; do
    grep -qE "^  $name +[0-9.]+ " <<<"$output" || fail "no $name in: $output"
done
file=$(sed -nE 's/^# written to (.*\.tune), which is used from now on$/\1/p' <<<"$output")
[ -n "$file" ] && [ -f "$file" ] && [ "${file#"$folder/cache/tutti/"}" != "$file" ] || fail "no file where it says: $output"
for name in $constants; do
    grep -qE "^$name +[0-9]+\.[0-9]{3}\$" "$file" || fail "no $name in $file"
done
# Two worlds at least; what a busy machine leaves no time for is left out, from the large sizes and the last kinds on.
[ "$(grep -cE "^way [0-9]+ 4k all_reduce [a-z_]+ [0-9.]+ " "$file")" -ge 2 ] || fail "no ways of all_reduce in $file"
expect '^# tutti' "$tutti" bench all_reduce -b 8 -e 8 --calls 1 --rounds 1

expect "tuning +.*$(basename "$file")" "$tutti" info
expect 'tuning +built-in constants' env TUTTI_TUNING=off "$tutti" info

# On one CPU what two ranks do at once is not measured, the rest is.
if command -v taskset >/dev/null; then
    output=$(taskset -c "$(taskset -cp $$ | sed -E 's/.*: ([0-9]+).*/\1/')" "$tutti" tune -o "$folder/one.tune")
    grep -qE '^  line_ns .*\(not measured\)' <<<"$output" || fail "a line's way was measured on one CPU: $output"
    grep -qE '^  wake_ns .*sleeper on the same CPU$' <<<"$output" || fail "no wake_ns on one CPU: $output"
    [ -f "$folder/one.tune" ] || fail "tune -o wrote nothing"
fi

# The choice follows the constants: where messages are dear the fewest, where bytes are dear the fewest bytes.
printf 'message_ns 1000000\nline_ns 1\nwake_ns 10\n' >"$folder/messages.tune"
printf 'message_ns 1\nline_ns 1\nwake_ns 10\nring_gbs 0.01\n' >"$folder/bytes.tune"
dear_messages=$(explain "$folder/messages.tune" 64K | chosen)
dear_bytes=$(explain "$folder/bytes.tune" 64K | chosen)
[ "$dear_messages" = bruck:2 ] || fail "where messages are dear '$dear_messages' is chosen"
[ "$dear_bytes" = pairwise ] || fail "where bytes are dear '$dear_bytes' is chosen"

# So do the ways: what is said to take ten times as long is not chosen, where all ranks have read it.
for way in line stage; do
    { printf 'line_ns 100\n'; printf 'way 2 4k all_gather %s 10 10 10 10 10 10\n' $way; } >"$folder/$way.tune"
    other=$(TUTTI_TUNING=$folder/$way.tune "$tutti" bench all_gather -n 2 -b 1K -e 1K --explain --rounds 1 | chosen)
    case $other in flat:$way | '') fail "'$other' is chosen, which takes ten times as long" ;; esac
done
mixed=$("$tutti" run -n 2 -- sh -c 'f=line; [ "$RANK" = 0 ] || f=stage
    TUTTI_TUNING=$0/$f.tune exec "$1" bench all_gather -b 1K -e 1K --explain --rounds 1' "$folder" "$tutti" | chosen)
alone=$(printf 'line_ns 100\n' >"$folder/alone.tune"
    TUTTI_TUNING=$folder/alone.tune "$tutti" bench all_gather -n 2 -b 1K -e 1K --explain --rounds 1 | chosen)
[ "$mixed" = "$alone" ] || fail "ranks that read different ways chose '$mixed', not '$alone'"

# Ways are measured beside the constants alone, which here promise too much, not beside what the file says of ways.
printf 'line_ns 20\nway 2 4k all_gather line 100 100 100 100 100 100\n' >"$folder/again.tune"
"$tutti" run -n 2 -- "$tutti" tune --ways "$folder/again.tune" >/dev/null || fail "tune --ways ended with $?"
times=$(sed -nE 's/^way 2 4k all_gather line ([0-9.]+) .*/\1/p' "$folder/again.tune" | sed 1d)
awk -v times="$times" 'BEGIN { exit !(times > 0.5) }' || fail "a line's way took '$times' times as long as predicted"

# Rank 0's count for all, whatever the others read.
mixed=$(TUTTI_BACKENDS=off "$tutti" run -n 4 -- sh -c 'f=messages; [ "$RANK" = 0 ] || f=bytes
    TUTTI_TUNING=$0/$f.tune exec "$1" bench all_to_all -b 64K -e 64K --explain --rounds 1' "$folder" "$tutti" | chosen)
[ "$mixed" = bruck:2 ] || fail "by rank 0's constants it is bruck:2, but '$mixed' was chosen"

# What is wrong is said, and where.
printf 'line_ns 5\nlime_ns 5\n' >"$folder/wrong.tune"
expect 'wrong\.tune:2: "lime_ns" is no constant of a machine; did you mean line_ns' env TUTTI_TUNING="$folder/wrong.tune" \
    "$tutti" bench -n 2 -b 8 -e 8
expect 'tuning file .*nowhere\.tune can not be read: No such file' env TUTTI_TUNING="$folder/nowhere.tune" "$tutti" bench -n 2
before=$(cksum "$file")
expect '^# [0-9]+ ranks' env TUTTI_TUNING="$folder/nowhere.tune" "$tutti" tune --dry-run
[ "$before" = "$(cksum "$file")" ] || fail "tune --dry-run wrote something"
expect 'tutti tune: .*can not be written' "$tutti" tune -o /proc/none/x.tune

# The share of well chosen cells is told, as a page and as JSON.
expect '^# the chosen way takes at most 1\.1 times as long as the best one in [0-9] of 2 cells' \
    "$tutti" bench all_reduce -n 2 -b 8 -e 16 --explain --rounds 1
expect '"near":[0-9],"cells":2}$' "$tutti" bench all_reduce -n 2 -b 8 -e 16 --explain --rounds 1 --json

[ $failed = 0 ] && echo "tune: all as expected"
exit $failed
