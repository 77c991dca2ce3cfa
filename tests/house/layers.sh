#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# layers.sh ROOT: refuses an #include that goes up or sideways. A folder of src/ may include itself, folders of the rows
# above it in this table, and <tutti/...>; public headers include only one another; examples and bindings see only public
# headers, and a binding its own.
set -eu
root=${1:?usage: layers.sh ROOT}
cd "$root"

find src include examples bindings \( -name '*.[ch]' -o -name '*.[ch]pp' -o -name '*.cu' -o -name '*.cuh' \) 2>/dev/null | LC_ALL=C sort | xargs awk -v helpers="$(cd tests 2>/dev/null && echo *.h)" '
BEGIN {
    n = split(helpers, names, " ") # what tests may include by bare name: the headers of tests/
    for (i = 1; i <= n; i++) helper[names[i]] = 1
    table = "base:0 sched:1 topo:1 device:1 algo:2 transport:2 verify:3 model:3 engine:3 sim:4 backend:4 comm:5 ft:6 train:7"
    n = split(table, entries, " ")
    for (i = 1; i <= n; i++) { split(entries[i], pair, ":"); row[pair[1]] = pair[2] }
}
function exists(path,    line, found) { found = (getline line <path) >= 0; close(path); return found }
function refuse(why) { print FILENAME ":" FNR ": " why; n_refused++ }
FNR == 1 {
    n_files++
    split(FILENAME, path, "/")
    top = path[1]
    folder = top == "src" ? path[2] : ""
    here = FILENAME
    sub(/\/[^\/]*$/, "", here)
    if (top == "src" && !(folder in row)) refuse("src/" folder " has no row in the table of layers (tests/house/layers.sh)")
}
/^[ \t]*#[ \t]*include[ \t]*["<]/ {
    name = $0
    sub(/^[ \t]*#[ \t]*include[ \t]*/, "", name)
    quoted = substr(name, 1, 1) == "\""
    name = substr(name, 2)
    sub(/[">].*/, "", name)
    other = name ~ /\// ? substr(name, 1, index(name, "/") - 1) : ""
    if (name ~ /\.\./) refuse("\"" name "\" climbs out of its folder; name it from src/")
    else if (top == "include") { if (quoted || other in row) refuse("a public header may include only <tutti/...> and the system, not \"" name "\"") }
    else if (other == "tutti") next
    else if (top == "bindings") {
        if (other in row) refuse("a binding may use only <tutti/...>, not \"" name "\"")
        else if (quoted && !exists(here "/" name)) refuse("\"" name "\" is not in " here)
        else if (name ~ /^(cuda|hip|sycl|level_zero|c10\/(cuda|hip|xpu)|ATen\/(cuda|hip|xpu))[\/_]/)
            refuse("<" name "> is of one kind of device: use c10, which knows them all")
    }
    else if (top == "examples") { if (other in row) refuse("an example may use only <tutti/...>, not \"" name "\"") }
    else if (other in row) {
        if (other != folder && row[other] >= row[folder])
            refuse("src/" folder " (row " row[folder] ") may not include \"" name "\" (row " row[other] ")")
    }
    else if (quoted && other == "" && !(name in helper) && !exists(here "/" name))
        refuse("\"" name "\" is neither in " here " nor in tests/")
}
END {
    if (n_files == 0) { print "layers: no sources found"; exit 1 }
    printf "layers: %d files, %d refused\n", n_files, n_refused
    exit n_refused > 0
}'
