#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# expect.sh LINES TEXT COMMAND...: the command must end well and print exactly LINES lines that match TEXT.
set -u
lines=$1 text=$2
shift 2
output=$("$@")
status=$?
printf '%s\n' "$output"
found=$(printf '%s\n' "$output" | grep -c -e "$text")
[ $status = 0 ] || { echo "expect: exit status $status"; exit 1; }
[ "$found" = "$lines" ] || { echo "expect: $found lines match '$text', not $lines"; exit 1; }
