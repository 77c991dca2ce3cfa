/* SPDX-License-Identifier: BSD-3-Clause */
/* A build without nghttp2 or protobuf-c. */
#include "ft/serve/serve.h"

const char *tutti_serve_missing(void)
{
    return "this build has no nghttp2 or no protobuf-c: install libnghttp2-dev, libprotobuf-c-dev and "
           "protobuf-c-compiler, then build again";
}

const char *tutti_serve_page_missing(void)
{
    return tutti_serve_missing();
}

enum tutti_status tutti_serve_open(const struct tutti_serve_config *config, struct tutti_serve **out)
{
    (void)config, (void)out;
    return tutti_fail(TUTTI_ERR_UNSUPPORTED, "no lighthouse: %s", tutti_serve_missing());
}

enum tutti_status tutti_serve_token(const char *secret, char out[TUTTI_SERVE_TOKEN])
{
    (void)secret, (void)out;
    return tutti_fail(TUTTI_ERR_UNSUPPORTED, "no lighthouse: %s", tutti_serve_missing());
}

const char *tutti_serve_address(const struct tutti_serve *serve)
{
    (void)serve;
    return "";
}

void tutti_serve_close(struct tutti_serve *serve)
{
    (void)serve;
}
