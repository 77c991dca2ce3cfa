#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# words.sh ROOT: a comment begins with a noun and its article, an imperative or a condition. Refused as its first word are
# Who, Whom, Whose, Whoever and Of: a sentence that begins so has to be read twice. Read are comments of C and its kin,
# of scripts, of Python with its docstrings, and of Markdown the first words of paragraphs and of items of lists.
set -eu
cd "${1:?usage: words.sh ROOT}"
find src include bindings compat bench examples tests tools cmake dev docs README.md CONTRIBUTING.md CHANGELOG.md \
    \( -name data -o -name corpus -o -name __pycache__ -o -name '_C.*' \) -prune -o -type f \
    \( -name '*.[ch]' -o -name '*.[ch]pp' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cl' -o -name '*.clh' -o -name '*.py' \
    -o -name '*.pyi' -o -name '*.sh' -o -name '*.cmake' -o -name CMakeLists.txt -o -name dev -o -name '*.md' \) -print |
    LC_ALL=C sort | xargs awk '
FNR == 1 {
    n_files++
    begins = "(^|[ \t])#+ *"
    if (FILENAME ~ /\.(c|h|cpp|hpp|cu|cuh|cl|clh)$/) begins = "(/[*][*]?|//)[ !<]*"
    if (FILENAME ~ /\.pyi?$/) begins = "(^|[ \t])(#+|r?\"\"\") *"
    if (FILENAME ~ /\.md$/) begins = "^(<!-- |[-*] |[0-9]+[.] )?"
    page = FILENAME ~ /\.md$/
    blank = 1
    line_before = 0
}
{
    text = $0
    # In a page a line begins something after an empty one, or as an item of a list.
    asked = page && (text ~ /[?]/ || !(blank || text ~ /^([-*]|[0-9]+[.]) /))
    blank = text ~ /^ *$/
    # The first line of a comment alone is asked.
    goes_on = line_before && text ~ /^[ \t]*(#|\/\/)/
    line_before = text ~ /^[ \t]*(#|\/\/)/
    if (goes_on) next
    if (asked || !match(text, begins "([Ww]hom?|[Ww]hose|[Ww]hoever|[Oo]f)([^A-Za-z_]|$)")) next
    print FILENAME ":" FNR ":" substr(text, RSTART, 160)
    n++
}
END {
    printf "words: %d files, %d comments refused\n", n_files, n
    exit n_files == 0 || n > 0
}'
