/* SPDX-License-Identifier: BSD-3-Clause */
#define BODY "oneshot_body.clh"
#define PROTOCOL sentinel
#define WIRE WIRE_ONES
#include "each_integer.clh"
