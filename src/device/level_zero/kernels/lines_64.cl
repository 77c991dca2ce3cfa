/* SPDX-License-Identifier: BSD-3-Clause */
#define XPU_DOUBLE
#define BODY "oneshot_body.clh"
#define PROTOCOL lines
#define WIRE WIRE_LINES
#include "each_64.clh"
