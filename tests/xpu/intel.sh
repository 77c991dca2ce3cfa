#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# usage: intel.sh FOLDER FAMILY PROGRAM. Runs the program by Intel's driver of Level Zero without hardware, in the mode in
# which it writes down what it would do, for a family of GPUs (pvc, tgllp, dg2), with its caches in the current folder.
set -eu
libraries=$(dirname "$(find "$1" -name 'libze_loader.so.1' | head -1)")
family=$2 program=$3
declare -A shape=([pvc]=1x4x8 [tgllp]=1x6x16 [dg2]=8x4x16)
export LD_LIBRARY_PATH=$libraries:$libraries/intel-opencl ZE_ENABLE_ALT_DRIVERS=$libraries/libze_intel_gpu.so.1
export NEOReadDebugKeys=1 SetCommandStreamReceiver=1 CreateMultipleRootDevices=2
export ProductFamilyOverride=$family HardwareInfoOverride=${shape[$family]}
[ "$family" != dg2 ] || export OverrideMaxWorkgroupSize=1024
export ZE_ENABLE_VALIDATION_LAYER=1 ZE_ENABLE_PARAMETER_VALIDATION=1 ZE_ENABLE_HANDLE_LIFETIME=1
export TUTTI_LEVEL_ZERO_LIBRARY=$libraries/libze_loader.so.1 XDG_CACHE_HOME=$PWD/cache
[ -e "$libraries/libze_validation_layer.so.1" ] || { echo "there is no validation layer in $libraries"; exit 1; }
rm -rf cache *.aub
for turn in compiled cached; do # the second time no kernel is compiled
    "$program" || { echo "FAILED: $turn, $family"; exit 1; }
    [ -n "$(ls cache/tutti/level_zero/*.bin)" ]
done
rm -f *.aub
