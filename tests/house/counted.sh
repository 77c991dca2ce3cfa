#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# usage: counted.sh ROOT. What ./dev counts of the ways in which ctest ends, which a made-up one plays: CMake 3 and 4 word
# the last line differently.
set -uo pipefail
root=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# shellcheck disable=SC2034 # the function asks for them
jobs=1
tree_of() { echo "$folder"; }
note() { told=$*; }
ctest() { printf '%s\n' "${lines[@]}"; return "$ends"; }
source <(sed -n '/^run_ctest()/,/^}/p' "$root/dev")

failed=0
expect() { # status, note, what ctest ends with, its lines...
  local wanted=$1 noted=$2 status=0
  ends=$3 lines=("${@:4}") told=
  run_ctest release >/dev/null || status=$?
  [[ $status = "$wanted" && $told = "$noted" ]] && return
  echo "FAILED: ${lines[*]: -1} (ctest: $ends) ended with $status and \"$told\" instead of $wanted and \"$noted\""
  failed=1
}

skipped='2/3 Test #8: b ........***Skipped   0.01 sec'
broken='1/3 Test #7: a ........***Failed   0.01 sec'
expect 0 "3 passed, 0 skipped, 0 failed" 0 "100% tests passed, 0 tests failed out of 3"
expect 0 "3 passed, 0 skipped, 0 failed" 0 "100% tests passed out of 3"
expect 0 "2 passed, 1 skipped, 0 failed" 0 "$skipped" "100% tests passed out of 3"
expect 1 "2 passed, 0 skipped, 1 failed: a" 8 "$broken" "66% tests passed, 1 tests failed out of 3"
expect 1 "1 passed, 1 skipped, 1 failed: a" 8 "$broken" "$skipped" "66% tests passed, 1 test failed out of 3"
expect 1 "0 passed, 0 skipped, 1 failed" 8 "No tests were found!!!"
expect 1 "0 passed, 0 skipped, 0 failed" 0 "nothing at all"
exit $failed
