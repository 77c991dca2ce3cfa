/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TOOLS_HTTP_H
#define TUTTI_TOOLS_HTTP_H

/* Pages of a lighthouse by HTTP/1.1, for subcommands that look at one. */

#include <stdbool.h>
#include <stdint.h>

struct tutti_http_where {
    char host[256], port[6], job[65];
};
/* "http://JOB@host:port", as clients have it, up to a comma; job: "default" unless named. False: it is no address. */
bool tutti_http_where(const char *address, struct tutti_http_where *where);
/* The whole answer, its head included, freed by free(). token "": none is shown. NULL: no answer, when nothing came for
 * patience_ms, or it did not come whole; errno may say why. */
char *tutti_http_get(const struct tutti_http_where *where, const char *path, const char *token, uint32_t patience_ms);
bool tutti_http_is_ok(const char *answer);       /* status 200 */
const char *tutti_http_body(const char *answer); /* NULL: it has none */

#endif
