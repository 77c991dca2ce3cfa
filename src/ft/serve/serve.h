/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_FT_SERVE_SERVE_H
#define TUTTI_FT_SERVE_SERVE_H

/* The lighthouse as a server: machines of ft/lighthouse behind torchft's protocol (torchft.proto), and a page for
 * people on the same port. It runs on a thread of its own until it is closed. Begin with serve.c, its life; calls.c has
 * the protocol, jobs.c what is remembered, show.c and http.c what people see. Where this build has no nghttp2 or
 * protobuf-c, none.c is compiled for this folder; without libmicrohttpd http_none.c for the page.
 *
 * Thread: any, all calls. */

#include "ft/rules/lighthouse.h"

struct tutti_serve;
struct tutti_serve_word {
    const char *name, *value;
};
#define TUTTI_SERVE_RATE 10000u
#define TUTTI_SERVE_GROUPS 65536u /* usual for max_groups */
#define TUTTI_SERVE_FORGET_NS (3600 * TUTTI_NS_PER_S)
struct tutti_serve_config {
    const char *bind; /* "host:port"; NULL: port 29510, with a secret or certificate of all addresses, else of this host
                         alone */
    struct tutti_lighthouse_options options;
    const char *secret; /* the job's, borrowed until it is closed; NULL: nobody may kill by the page, and */
    struct tutti_certificate *certificate; /* this proves the lighthouse; NULL: all callers are believed */
    const struct tutti_serve_word *words;  /* what GetConfig tells, borrowed until it is closed */
    size_t n_words;
    /* The folder where the numbers of quorums are kept, so that they only grow; NULL: they are not, and it is alone. */
    const char *state;
    /* The addresses of all lighthouses that stand for one another, "http://a:1,http://b:1,http://c:1", the same list at
     * each; NULL: it is alone. Which of them this one is. */
    const char *peers;
    uint32_t number;
    uint32_t rate; /* TUTTI_SERVE_RATE is usual: what one address may ask for in a second (rpc.h); 0: anything */
};
/* The token that a kill takes, and the page from another host: made of the secret, which it does not reveal. */
#define TUTTI_SERVE_TOKEN 33
enum tutti_status tutti_serve_token(const char *secret, char out[TUTTI_SERVE_TOKEN]);
/* "": it can be; else what this build lacks, and how to get it. */
const char *tutti_serve_missing(void);
const char *tutti_serve_page_missing(void); /* the same of its page */
/* UNSUPPORTED: this build can not. ARGUMENT, SYSTEM: the sentence names the option or the address. */
enum tutti_status tutti_serve_open(const struct tutti_serve_config *config, struct tutti_serve **out);
/* "http://HOST:PORT", with this host's name, as torchft's servers say it. */
const char *tutti_serve_address(const struct tutti_serve *serve);
void tutti_serve_close(struct tutti_serve *serve);

#endif
