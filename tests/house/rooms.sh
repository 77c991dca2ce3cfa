#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# rooms.sh ROOT: refuses an #include that the table src/rooms.txt does not allow. A file of src/ may include its own room,
# the rooms that its row names, and <tutti/...>; a test beside it also its whole folder. Public headers include only one
# another; examples, bindings, compat, the measurements in bench/ and tests of PyTorch see only public headers, and their own;
# tests see everything. Files of bindings/ and tools/ whose folders have rows are held to them, too. src/ has 40 rooms at most;
# among the folders of bindings/ no circles of includes are allowed: circles.sh sees only symbols of C.
set -eu
root=${1:?usage: rooms.sh ROOT}
cd "$root"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

find src include examples bindings compat bench tools tests \( -name '*.[ch]' -o -name '*.[ch]pp' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cl' -o -name '*.clh' \) 2>/dev/null |
    LC_ALL=C sort | xargs awk -v edges="$work/edges" '
BEGIN {
    while ((getline line <"src/rooms.txt") > 0) {
        if (line !~ /^[0-9]+ \|/) continue
        split(line, cell, / *\| */)
        room = cell[2]
        row[room] = cell[1]
        if (house_of(room) != "") houses[house_of(room)] = 1
        n = split(cell[3], names, " ")
        for (i = 1; i <= n; i++) {
            if (beside(room, names[i]) in row) names[i] = beside(room, names[i])
            uses[room, names[i]] = 1
            if (!(names[i] in row) && names[i] !~ "^" folder_of(room) "/") bad[room] = names[i]
            else if (names[i] in row && names[i] !~ "/" && names[i] != folder_of(room) && row[names[i]] >= row[room])
                bad[room] = names[i]
        }
    }
    for (room in row) if (row[room] < 10 && ++n_rooms == 41) refuse_at("src/rooms.txt", 0, "more than 40 rooms in src/: put together what is used together")
    for (room in bad) refuse_at("src/rooms.txt", 0, room " may not use " bad[room] ", which is not below it")
    split("examples bindings compat bench", public, " ")
    for (i in public) sees_public[public[i]] = 1
}
function folder_of(room) { sub(/\/.*/, "", room); return room }
# The room of a path below src/, "" where the table has none: the longest that fits.
function room_of(path) {
    while (sub(/\/[^\/]*$/, "", path)) if (path in row) return path
    return ""
}
# A room of bindings/ names the rooms beside it by their last word.
function house_of(room) { return room ~ /^(bindings|tools)\// && sub(/[^\/]*$/, "", room) ? room : "" }
function beside(room, name) { return (room ~ /^bindings\// ? house_of(room) : "") name }
function in_house(path,    house) { for (house in houses) if (index(path, house) == 1) return 1; return 0 }
function may(room, other,    whole) {
    if (room == other || (room SUBSEP other) in uses) return 1
    whole = folder_of(other)
    return whole != folder_of(room) && (room SUBSEP whole) in uses
}
function exists(path,    line, found) { found = (getline line <path) >= 0; close(path); return found }
function refuse_at(file, line, why) { print file ":" line ": " why; n_refused++ }
function refuse(why) { refuse_at(FILENAME, FNR, why) }
FNR == 1 {
    n_files++
    split(FILENAME, path, "/")
    top = path[1]
    here = FILENAME
    sub(/\/[^\/]*$/, "", here)
    room = top == "src" ? room_of(substr(FILENAME, 5)) : room_of(FILENAME)
    roomy = in_house(FILENAME) # it is held to a row of bindings/ or tools/
    is_test = FILENAME ~ /_test\.[ch]$/
    if (top == "src" && room == "") refuse(here " has no row in the table of rooms (src/rooms.txt)")
    else if (top == "src" ? here != "src/" room : roomy && here != room) refuse(here " is a folder without a row in src/rooms.txt")
}
/^[ \t]*#[ \t]*include[ \t]*["<]/ {
    name = $0
    sub(/^[ \t]*#[ \t]*include[ \t]*/, "", name)
    quoted = substr(name, 1, 1) == "\""
    name = substr(name, 2)
    sub(/[">].*/, "", name)
    other = room_of(name)
    if (roomy && quoted) {
        found = exists(beside(room, name)) ? beside(room, name) : exists(here "/" name) ? here "/" name : name
        if (in_house(found)) {
            if (top == "bindings" && room_of(found) != room) print room, room_of(found) >edges
            if (!may(room, room_of(found))) refuse(room " may not include \"" name "\"")
            next
        }
    }
    if (name ~ /\.\./) refuse("\"" name "\" climbs out of its folder; name it from src/")
    else if (top == "include") { if (quoted || other != "") refuse("a public header may include only <tutti/...> and the system, not \"" name "\"") }
    else if (name ~ /^tutti\//) next
    else if (top in sees_public) {
        if (other != "") refuse((top == "bindings" ? "a binding" : "a program in " top) " may use only <tutti/...>, not \"" name "\"")
        else if (quoted && !exists(here "/" name) && !exists(top "/torch/csrc/" name) && !(is_test && exists("tests/" name))) refuse("\"" name "\" is not in " here)
        else if (top == "bindings" && name ~ /^(cuda|hip|sycl|level_zero|c10\/(cuda|hip|xpu)|ATen\/(cuda|hip|xpu))[\/_]/)
            refuse("<" name "> is of one kind of device: use c10, which knows them all")
    }
    else if (top == "tools" || top == "tests") {
        if (roomy && !is_test && other != "" && !may(room, other)) refuse(room " may not include \"" name "\"")
        if (quoted && other == "" && !exists(name) && !exists(here "/" name) && !exists("tests/" name))
            refuse("\"" name "\" is neither in " here " nor in tests/, and not named from the root")
    }
    else if (other != "") {
        if (is_test ? folder_of(other) != folder_of(room) && row[folder_of(other)] >= row[folder_of(room)] : !may(room, other))
            refuse("src/" room " (row " row[room] ") may not include \"" name "\"" (other in row ? " (row " row[other] ")" : ""))
    }
    else if (quoted && !(name !~ /\// && is_test && exists("tests/" name)) && !(name !~ /\// && exists(here "/" name)))
        refuse("\"" name "\" is neither in " here " nor, for tests, in tests/")
}
END {
    if (n_files == 0) { print "rooms: no sources found"; exit 1 }
    printf "rooms: %d files, %d refused\n", n_files, n_refused
    exit n_refused > 0
}' || exit 1
: >>"$work/edges"
tsort "$work/edges" >/dev/null 2>"$work/loops" && exit 0
sed -n 's/^tsort: //p' "$work/loops" | grep -v 'input contains a loop' | sort -u | sed 's/^/rooms: in a circle of includes: /'
exit 1
