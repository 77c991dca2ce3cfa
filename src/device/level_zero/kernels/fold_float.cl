/* SPDX-License-Identifier: BSD-3-Clause */
#define BODY "fold_body.clh"
#include "each_float.clh"
