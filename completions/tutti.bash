# SPDX-License-Identifier: BSD-3-Clause
# bash completion for tutti. What can be said is asked of the command itself, so that this never lags behind it.

_tutti_options() { # command words... -> its options
    "$@" --help 2>/dev/null | grep -oE '(^|[ ,])--?[a-z][a-z-]*' | tr -d ' ,'
}

_tutti() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} tutti=${COMP_WORDS[0]}
    local verb=${COMP_WORDS[1]:-} words=
    local operations="all_reduce reduce broadcast all_gather gather scatter reduce_scatter all_to_all barrier scan exscan"
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        words="$("$tutti" --help 2>/dev/null | sed -nE 's/^  ([a-z]+) .*/\1/p') --help --version"
    elif [[ $verb == sched ]] && ((COMP_CWORD == 2)); then
        words="list show check new sim job export startup --help"
    elif [[ $previous == --algorithm || ($verb == sched && $previous =~ ^(show|check|sim|export)$) ]]; then
        words=$("$tutti" sched list 2>/dev/null | awk '/^[a-z_]/ {print $1}')
    elif [[ $previous == --types ]]; then
        words="float32 float64 float16 bfloat16 float8_e4m3fn float8_e5m2 int8 uint8 int16 uint16 int32 uint32 int64 uint64
            bool complex64 complex128 all"
    elif [[ $previous == --ops ]]; then
        words="sum prod min max avg premul_sum band bor bxor all"
    elif [[ $previous == --plot || $previous == --svg || $previous == --dump || $previous == --output || $previous == -- ]] || [[ " ${COMP_WORDS[*]:2:COMP_CWORD-2} " == *" -- "* ]]; then
        COMPREPLY=($(compgen -f -- "$current"))
        return
    elif [[ $current == -* ]]; then
        if [[ $verb == sched ]]; then words=$(_tutti_options "$tutti" sched "${COMP_WORDS[2]:-}"); else
            words=$(_tutti_options "$tutti" "$verb")
        fi
    elif [[ $verb == bench ]]; then
        words="$operations put get put_signal fetch_add"
    elif [[ $verb == doctor || ($verb == sched && ${COMP_WORDS[2]:-} == job) ]]; then
        COMPREPLY=($(compgen -f -- "$current"))
        return
    fi
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    [[ ${#COMPREPLY[@]} -gt 0 || ! $verb =~ ^(run|chaos)$ ]] || COMPREPLY=($(compgen -c -- "$current"))
}

complete -o filenames -F _tutti tutti
