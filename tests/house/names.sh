#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# names.sh ROOT: a file that a comment or a page of docs/ names exists: its name may stand alone or with its last folders.
# And what docs/tour.md and docs/architecture.md name in `backticks` with an underscore is a word of the sources.
# No two headers of src/ define a struct of one name: one word, one meaning.
# In sources of C and its kin comments alone are read; in scripts the lines that begin with "#", in Python also
# docstrings. Names with wildcards, and those from the root of a machine, are not looked at.
set -eu
cd "${1:?usage: names.sh ROOT}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
find . -type d \( -name .git -o -name 'build*' -o -name __pycache__ -o -name data -o -name corpus \) -prune -o -type f -print |
    sed 's/^..//' | LC_ALL=C sort >"$work/all"
grep -E '^(src|include|bindings|compat|bench|examples|tests|tools|cmake|docs)/.*\.([ch]|[ch]pp|cu|cuh|cl|clh|py|sh|cmake|md)$' "$work/all" |
    grep -v '^docs/results' >"$work/read"
xargs awk -v all="$work/all" '
BEGIN {
    while ((getline path <all) > 0)
        for (have[path]; sub(/^[^\/]*\//, "", path);) have[path]
    close(all)
    # Made by the build; by users; by others.
    split("images.c xpu_images.c tuttiConfig.cmake summary.md mine.c mine.py pat.py train.py onerank.cu a.hpp a.cpp tutti_torch/_build.py", foreign, " ")
    for (i in foreign) have[foreign[i]]
}
# What of the line is comment: of C between its marks, without what is quoted.
function comment(line,    text, i) {
    for (text = ""; line != "";) {
        if (inside) {
            i = index(line, "*/")
            text = text " " (i ? substr(line, 1, i - 1) : line)
            if (!i) return text
            inside = 0
            line = substr(line, i + 2)
        } else {
            gsub(/"([^"\\]|\\.)*"/, "", line)
            if (!match(line, /\/\*|\/\//)) return text
            if (substr(line, RSTART, 2) == "//") return text " " substr(line, RSTART + 2)
            inside = 1
            line = substr(line, RSTART + 2)
        }
    }
    return text
}
function docstring(line,    n, text) {
    text = inside || line ~ /^[ \t]*r?"""/ || line ~ /^[ \t]*#/ ? line : ""
    n = gsub(/"""/, "", line)
    if (n % 2) inside = !inside
    return text
}
FNR == 1 {
    n_files++
    inside = 0
    style = FILENAME ~ /\.md$/ ? "page" : FILENAME ~ /\.py$/ ? "python" : FILENAME ~ /\.(sh|cmake)$/ ? "script" : "c"
}
{
    text = style == "c" ? comment($0) : style == "python" ? docstring($0) : style == "page" || $0 ~ /^[ \t]*#/ ? $0 : ""
    gsub(/<[^>]*>|https?:[^ )]*/, "*", text)
    while (match(text, /[A-Za-z0-9_.\/*{}$~-]+\.([ch]pp|cuh?|cmake|py|sh|md|[ch])($|[^A-Za-z0-9_.(*])/)) {
        name = substr(text, RSTART, RLENGTH)
        text = substr(text, RSTART + RLENGTH)
        sub(/[^a-z]+$/, "", name)
        while (sub(/^\.\.?\//, "", name)) continue
        n_names++
        if (!(name in have) && name !~ /^\/|[*{}$~]|^\./) {
            print FILENAME ":" FNR ": there is no " name
            n_refused++
        }
    }
}
END {
    printf "names: %d files name %d files, %d of which do not exist\n", n_files, n_names, n_refused
    exit n_files == 0 || n_refused > 0
}' <"$work/read"
for page in docs/tour.md docs/architecture.md; do
    [ -e $page ] || continue
    grep -oE '`[A-Za-z0-9]+_[A-Za-z0-9_]*`' $page | tr -d '`' | LC_ALL=C sort -u >"$work/words"
    grep -rhowF -f "$work/words" src include bindings tools | LC_ALL=C sort -u >"$work/found"
    gone=$(LC_ALL=C comm -23 "$work/words" "$work/found")
    [ -z "$gone" ] || { echo "$page names what no source has:" $gone; exit 1; }
done
twice=$({ grep -E '^src/.*\.(h|cuh)$' "$work/read" || :; } | grep -v '_test\.h$' | xargs -r grep -hoE '^struct [a-z0-9_]+ \{' | LC_ALL=C sort | uniq -d)
[ -z "$twice" ] || { echo "two headers define: $twice"; exit 1; }
