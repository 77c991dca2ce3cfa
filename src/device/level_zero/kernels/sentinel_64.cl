/* SPDX-License-Identifier: BSD-3-Clause */
#define XPU_DOUBLE
#define BODY "oneshot_body.clh"
#define PROTOCOL sentinel
#define WIRE WIRE_ONES8
#include "each_64.clh"
