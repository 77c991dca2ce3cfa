#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# files.sh ROOT: every source says its licence in its first lines, ends with a newline, holds no promise of later work,
# and is not longer than 600 lines (tests: 700); one in Python has lines of at most 120 columns and says what it is for.
set -eu
cd "${1:?usage: files.sh ROOT}"
files=$(find src include bindings compat bench examples tests tools cmake pyproject.toml dev .ci completions man \
    \( -name 'corpus' -o -name 'data' -o -name _build.py -o -name '_C.*' -o -name __pycache__ \) -prune -o \
    -type f \( -name '*.[ch]' -o -name '*.[ch]pp' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cl' -o -name '*.clh' -o -name '*.py' -o -name '*.toml' -o -name '*.sh' -o -name '*.cmake' -o -name '*.map' -o -name CMakeLists.txt -o -name dev \
    -o -name run -o -name '*.bash' -o -name '_*' -o -name '*.[13]' \) -print 2>/dev/null | LC_ALL=C sort)
printf '%s\n' "$files" | awk '
function refuse(why) { print name ": " why; n_refused++ }
{
    name = $0; n_files++; n = 0; licence = 0; purpose = 0; last = ""
    limit = name ~ /_test\.(c|py)$/ ? 700 : 600
    python = name ~ /\.py$/
    while ((getline line <name) > 0) {
        n++
        if (n <= 3 && line ~ /SPDX-License-Identifier: BSD-3-Clause/) licence = 1
        if (line ~ /TO[D]O|FIX[M]E/) refuse("line " n ": a promise of later work")
        if (n <= 6 && line ~ /^r?"""[^ ]/) purpose = 1
        if (python && length(line) > 120) refuse("line " n ": " length(line) " columns are more than 120")
    }
    close(name)
    if (python && !purpose) refuse("no docstring that says what the file is for")
    if (!licence) refuse("no SPDX line in the first three")
    if (n > limit) refuse(n " lines are more than " limit ": find the joint")
    command = "tail -c 1 \"" name "\" | wc -l"; command | getline last; close(command)
    if (last + 0 != 1) refuse("does not end with a newline")
}
END {
    printf "files: %d files, %d refused\n", n_files, n_refused
    exit n_files == 0 || n_refused > 0
}'
