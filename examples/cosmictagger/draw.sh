#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# draw.sh [TUTTI]: the table and the picture of README.md, in some two minutes.
tutti=$(command -v "${1:-tutti}") && tutti=$(realpath "$tutti") || { echo "draw.sh: there is no ${1:-tutti}" >&2; exit 1; }
cd "$(dirname "$0")" || exit 1
both="noise=gaussian:0.53%,spikes:0.0067%:10ms"
"$tutti" sched job a21.job --set steps=1000 --svg efficiency.svg --with "noise=gaussian:0.53%" --with "$both" \
    --with "$both;drop=0.02%" --with "noise=gaussian:2.11%" --with "noise=exponential:0.816ms" \
    --with "algorithm=two_level;overlap=no"
