/* SPDX-License-Identifier: BSD-3-Clause */
/* A build without libmicrohttpd: calls alone, and no page. */
#include "ft/serve/jobs.h"

#include <unistd.h>

const char *tutti_serve_page_missing(void)
{
    return "this build has no libmicrohttpd: install libmicrohttpd-dev, then build again";
}

enum tutti_status serve_http_open(struct tutti_serve *serve, struct serve_http **out)
{
    (void)serve;
    *out = NULL;
    return TUTTI_OK;
}

void serve_http_close(struct serve_http *http)
{
    (void)http;
}

void serve_http_take(void *arg, int fd)
{
    (void)arg;
    close(fd);
}
