/* SPDX-License-Identifier: BSD-3-Clause */
/* `tutti ft status --follow`: a line for each group that is not heard any more. */
#include "ft.h"

#include "ft/serve/text.h"

#include <tutti/ft.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define PATIENCE_NS (10 * TUTTI_NS_PER_S)

static void print(const char *replica_id)
{
    const time_t now = time(NULL);
    struct tm local;
    char text[64];

    strftime(text, sizeof text, "%F %T", localtime_r(&now, &local));
    printf("%s  ", text);
    serve_text_put(stdout, replica_id);
    printf(" is not heard any more\n");
    fflush(stdout);
}

/* Until it is told no more; the record says why. */
static void follow(struct tutti_ft_failures *failures)
{
    char *replica_id;

    for (;;) {
        const enum tutti_status status = tutti_ft_failures_next(failures, PATIENCE_NS, &replica_id);
        if (status < 0 && status != TUTTI_ERR_TIMEOUT) return;
        if (status < 0) continue;
        print(replica_id);
        free(replica_id);
    }
}

int ft_follow(const char *address)
{
    struct tutti_ft_lighthouse_client *client = NULL;
    struct tutti_ft_failures *failures = NULL;

    fflush(stdout);
    if (tutti_ft_lighthouse_client_open(address, PATIENCE_NS, &client) >= 0 &&
        tutti_ft_failures_open(client, &failures) >= 0)
        follow(failures);
    fprintf(stderr, "tutti ft status: %s\n", tutti_last_error()->text);
    tutti_ft_failures_close(failures);
    tutti_ft_lighthouse_client_close(client);
    return TUTTI_EXIT_WRONG;
}
