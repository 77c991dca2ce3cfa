/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans of MSCCL++ from anybody: they are refused with a sentence, or they are plans of ours. */
#include "fuzz.h"

#include "load/mscclpp.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct tutti_plan plan;
    char name[64], *text = n > 1 << 16 ? NULL : malloc(n + 1);
    if (!text) return 0;
    memcpy(text, bytes, n);
    text[n] = '\0';
    if (tutti_pp_load("fuzz", text, n, &plan, name) >= 0) {
        FUZZ_CHECK(plan.n_slots > 0 && name[0]);
        tutti_plan_fini(&plan);
    } else {
        FUZZ_CHECK(tutti_last_error()->text[0]);
    }
    free(text);
    return 0;
}
