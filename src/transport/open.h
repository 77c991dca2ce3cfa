/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TRANSPORT_OPEN_H
#define TUTTI_TRANSPORT_OPEN_H

/* Transports and decorators by name: the two lists, and who opens them. */

#include "transport/transport.h"

struct tutti_segment; /* host/segment.h */

#define TUTTI_HOST_MAX_MEMBERS 4096 /* on one host: layout.h says why */

/* The transports of one host: X(name, spans, max_members, help). Each is one file, which defines
 * `enum tutti_status tutti_NAME_open(segment, me, out)`, and one line here; the first that fits is what "auto" means.
 * spans: members may be in several processes. */
#define TUTTI_HOST_TRANSPORTS(X)                                                                                       \
    X(self, false, TUTTI_HOST_MAX_MEMBERS, "threads of one process")                                                   \
    X(shm, true, TUTTI_HOST_MAX_MEMBERS, "processes of one host")
#define TUTTI_TRANSPORT_DECLARE(name, spans, max_members, help)                                                        \
    enum tutti_status tutti_##name##_open(struct tutti_segment *segment, uint32_t me, struct tutti_transport **out);
TUTTI_HOST_TRANSPORTS(TUTTI_TRANSPORT_DECLARE)
#undef TUTTI_TRANSPORT_DECLARE

/* The networks: X(name, max_members, help). Each is one folder with a header that says what opens it (addresses, who
 * dials, ...: they differ), and one line here. "auto" takes the first between hosts; named, a network also carries what
 * members of one host send. */
#define TUTTI_NETWORKS(X)                                                                                              \
    X(tcp, UINT32_MAX, "processes of any hosts, over TCP")                                                             \
    X(ofi, UINT32_MAX, "processes of any hosts, over a provider of libfabric")
bool tutti_transport_is_network(const char *name);

/* What carries packets within a host for `wanted` ("auto" or a name), for n members that are in several processes or
 * not; *name is static, *spans tells what it needs of the segment. ARGUMENT: there is none of that name, or it does not
 * take so many members; the sentence names the limit. CONFIG: it does not span processes. */
enum tutti_status tutti_transport_choose(const char *wanted, bool several_processes, uint32_t n, const char **name,
                                         bool *spans);
/* Opens a transport of one host for member `me` (takes over the caller's handle on success). ARGUMENT: there is none of
 * that name, or it is a network. */
enum tutti_status tutti_transport_open(const char *name, struct tutti_segment *segment, uint32_t me,
                                       struct tutti_transport **out);

/* The one list of decorators (decorate.c): X(name, help). A decorator is one file, which defines
 * `enum tutti_status tutti_NAME_open(inner, options, out)`, and one line here. It wraps `inner`, which it owns from
 * then on, but not when it fails. */
#define TUTTI_DECORATORS(X)                                                                                            \
    X(trace, "keeps the last packets for the log")                                                                     \
    X(fault, "injects what option fault says")                                                                         \
    X(delay, "adds the latency of option delay")
struct tutti_decorator_options {
    const char *fault; /* "seed=1,drop=0.01,duplicate=0.01,delay=0.01:2ms,kill=100" */
    uint64_t delay_ns;
    uint32_t trace_events; /* trace: the last n packets are kept; dumped to the log at close and on failure */
};
#define TUTTI_DECORATOR_DECLARE(name, help)                                                                            \
    enum tutti_status tutti_##name##_open(                                                                             \
        struct tutti_transport *inner, const struct tutti_decorator_options *options, struct tutti_transport **out);
TUTTI_DECORATORS(TUTTI_DECORATOR_DECLARE)
#undef TUTTI_DECORATOR_DECLARE
/* list: "trace,fault", outermost first; empty: inner itself. ARGUMENT with a sentence. */
enum tutti_status tutti_transport_decorate(struct tutti_transport *inner, const char *list,
                                           const struct tutti_decorator_options *options, struct tutti_transport **out);

#endif
