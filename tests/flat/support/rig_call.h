/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_FLAT_RIG_CALL_H
#define TUTTI_TESTS_FLAT_RIG_CALL_H

#include "backend/backend.h"
#include "marks.h"

/* The call of a plan on rank `me`, with the buffers and tables of its sheet. */
void rig_call_make(const struct mark_plan *p, uint32_t me, struct mark_sheet *s, struct tutti_backend_call *call);

#endif
