# SPDX-License-Identifier: BSD-3-Clause
# For the scripts beside it. A script ends with `exit $failed`.
failed=0

# expect STATUS WORDS COMMAND...: the command's status, and an extended regular expression in its output.
expect() {
    local status=$1 words=$2 output got
    shift 2
    output=$("$@" 2>&1)
    got=$?
    if [ "$got" -ne "$status" ] || ! grep -qE -- "$words" <<<"$output"; then
        printf 'FAILED: %s\n  status %s, expected %s and "%s"; it said:\n%s\n' "$*" "$got" "$status" "$words" "$output"
        failed=1
    fi
}
