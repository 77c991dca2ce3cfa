/* SPDX-License-Identifier: BSD-3-Clause */

/* The text form of schedules: what parses prints as text that parses and prints the same. */

#include "fuzz.h"
#include "sched/sched.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct tutti_schedule *first = NULL, *second = NULL;
    char *text = NULL, *again = NULL;
    if (tutti_schedule_parse((const char *)bytes, n, &first) != TUTTI_OK) {
        FUZZ_CHECK(first == NULL); /* out-parameters are written only on success */
        FUZZ_CHECK(tutti_last_error()->text[0] != '\0');
        return 0;
    }
    FUZZ_CHECK(tutti_schedule_print(first, &text) == TUTTI_OK);
    FUZZ_CHECK(tutti_schedule_parse(text, strlen(text), &second) == TUTTI_OK);
    FUZZ_CHECK(tutti_schedule_print(second, &again) == TUTTI_OK);
    FUZZ_CHECK(strcmp(text, again) == 0);
    tutti_schedule_destroy(first);
    tutti_schedule_destroy(second);
    tutti_free(text);
    tutti_free(again);
    return 0;
}
