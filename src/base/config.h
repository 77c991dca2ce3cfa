/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BASE_CONFIG_H
#define TUTTI_BASE_CONFIG_H

/* Every option of the library is one row of one table: name, type, default, range, what it does. Values come from a
 * file (TUTTI_CONFIG), the environment (TUTTI_<NAME>) and the API, the last one wins. docs/options.md is made from
 * the table (`tutti info --options`). */

#include "base/base.h"

#include <tutti/comm.h>

#define TUTTI_SECRET_MAX 4096 /* bytes of the job's secret */

/* X(section, name, type, default, minimum, maximum, agreed, help)
 * type: size (bytes, with K M G), u32, time (ns; "30m", "5s", "20ms"), flag (0/1/on/off), text, ports
 * ("20000-20100"). agreed: 1 if all ranks of a communicator must have the same value (hashed at creation). */
#define TUTTI_OPTIONS_OF_USERS(X)                                                                                      \
    X(JOB, store, text, "", 0, 0, 0, "where ranks meet: tcp://host:port or file:///path")                              \
    X(JOB, job, text, "", 0, 0, 0, "name of the job, so that jobs of one user do not meet")                            \
    X(JOB, secret, text, "", 0, 0, 0, "the job's secret, for HMAC; never printed")                                     \
    X(JOB, secret_file, text, "", 0, 0, 0, "file that holds the secret")                                               \
    X(JOB, tls_ca, text, "", 0, 0, 0,                                                                                  \
      "file of the job's CA (PEM): processes prove themselves by certificates of it, in place of a secret")            \
    X(JOB, tls_cert, text, "", 0, 0, 0, "file of this process's certificate, and of those between it and the CA")      \
    X(JOB, tls_key, text, "", 0, 0, 0, "file of the key of this certificate, without a pass phrase")                   \
    X(JOB, tls_name, text, "", 0, 0, 0,                                                                                \
      "name that all certificates of the job bear (subjectAltName; empty: any of the CA is good)")                     \
    X(JOB, transport, text, "auto", 0, 0, 1, "auto, or a name that tutti info lists")                                  \
    X(JOB, timeout_create, time, "5m", 1, UINT64_MAX, 0,                                                               \
      "deadline of creating a communicator, where no other is given")                                                  \
    X(JOB, ft_timeout, time, "60s", 1000000, UINT64_MAX, 0,                                                            \
      "fault tolerance: the longest that a call, a vote or a recovery of a step may take; all else follows")           \
    X(NETWORK, interface, text, "", 0, 0, 0,                                                                           \
      "name, address or network (10.0.0.0/8) of the interface that ranks of other hosts are reached by (empty: any "   \
      "that reaches them); several, by commas, the quickest first: large messages use all of them")                    \
    X(NETWORK, port_range, ports, "", 0, UINT64_MAX, 0,                                                                \
      "ports to listen at, as 20000-20100, where a firewall lets through no others (empty: whichever is free)")        \
    X(NETWORK, sockets, u32, "0", 0, 16, 1,                                                                            \
      "sockets of each interface to a peer, for large messages (0: 1, from 25 Gbit/s on 2, from 100 Gbit/s on 4)")     \
    X(NETWORK, trust_network, flag, "0", 0, 1, 0,                                                                      \
      "talk to other hosts without a secret: only trusted machines listen")                                            \
    X(NETWORK, host, text, "", 0, 0, 0,                                                                                \
      "name of this host: ranks with different ones share no memory (empty: as the kernel says)")                      \
    X(NETWORK, host_timeout, time, "5s", 100000000, UINT64_MAX, 1, "a host that is silent for so long is told dead")   \
    X(NETWORK, encrypt, flag, "0", 0, 1, 1,                                                                            \
      "data between hosts is encrypted, as control is wherever there is a secret; needs one")                          \
    X(NETWORK, congestion, text, "auto", 0, 0, 0,                                                                      \
      "congestion control of TCP: auto (cubic where there is any), system, or a name")                                 \
    X(NETWORK, network, text, "tcp", 0, 0, 1, "what carries packets between hosts: tcp, or ofi (libfabric)")           \
    X(NETWORK, ofi_provider, text, "auto", 0, 0, 1,                                                                    \
      "network ofi: provider as fi_info names it (tcp;ofi_rxm, efa, ...), or auto")                                    \
    X(NETWORK, ofi_domain, text, "", 0, 0, 0,                                                                          \
      "network ofi: domain of the provider (empty: its first); several, by commas, are rails")                         \
    X(NETWORK, ofi_rendezvous, text, "auto", 0, 0, 1,                                                                  \
      "network ofi: large payloads by write (RMA), by tagged, or auto")                                                \
    X(CALLS, algorithm, text, "", 0, 0, 1, "override by kind: all_reduce=ring,broadcast=tree:4")                       \
    X(CALLS, algorithms, text, "", 0, 0, 1,                                                                            \
      "files of algorithms to load (.c, .so, .py), with commas between them: docs/write_a_collective.md")              \
    X(CALLS, cc, text, "cc", 0, 0, 0, "compiler of algorithms in C")                                                   \
    X(CALLS, python, text, "python3", 0, 0, 0, "interpreter of algorithms in Python")                                  \
    X(CALLS, prover, text, "", 0, 0, 0,                                                                                \
      "the command tutti, which proves loaded algorithms (empty: the one beside the library, else of the PATH)")       \
    X(CALLS, backends, text, "auto", 0, 0, 1,                                                                          \
      "back ends for host memory: auto, off (the engine does all), or names, asked in turn: oneccl,flat")              \
    X(CALLS, levels, text, "", 0, 0, 1, "sizes of the groups of ranks, levels separated by a semicolon: 8,8,7,8;2,2")  \
    X(CALLS, reproducible, flag, "0", 0, 1, 1,                                                                         \
      "results do not depend on the algorithm: operands are folded in rank order")                                     \
    X(CALLS, survives, flag, "0", 0, 1, 1,                                                                             \
      "the process goes on after a failed call: no rank ever writes into a peer's buffer")                             \
    X(CALLS, arbiter, flag, "0", 0, 1, 1,                                                                              \
      "of the sides of a cut, the one goes on that reaches the store first, not the majority")                         \
    X(CALLS, quorum, flag, "0", 0, 1, 1,                                                                               \
      "shrink lets one side of a cut go on: the majority, or with option arbiter as that says")                        \
    X(CALLS, tuning, text, "auto", 0, 0, 0,                                                                            \
      "constants that `tutti tune` measured: auto (this host's file, else rank 0 measures copies), off, or a file")    \
    X(CALLS, timeout, time, "30m", 1, UINT64_MAX, 0, "default deadline of every call")                                 \
    X(CALLS, compare_after, time, "5s", 1, UINT64_MAX, 0,                                                              \
      "waiting ranks compare their calls after this, or half the deadline")                                            \
    X(MEMORY, heap, size, "64G", 1 << 20, UINT64_C(1) << 40, 1,                                                        \
      "address space of a rank's tutti_mem_alloc heap (not memory)")                                                   \
    X(MEMORY, staging, size, "4M", 65536, UINT64_C(1) << 30, 1, "bytes of staging of one rank, over all its peers")    \
    X(MEMORY, slice, size, "128K", 4096, UINT64_C(1) << 30, 1,                                                         \
      "bytes of a chunk that travel as one message, for pipelining")                                                   \
    X(MEMORY, net_slice, size, "512K", 4096, UINT64_C(1) << 30, 1,                                                     \
      "the same of communicators on several hosts of one rank")                                                        \
    X(MEMORY, eager, size, "64K", 64, 65536, 1, "messages up to this size are sent before the receiver asks")          \
    X(MEMORY, zero_copy, size, "16K", 0, UINT64_MAX, 0,                                                                \
      "messages from mapped memory of at least this size are read in place")                                           \
    X(WAIT, spin, time, "20us", 0, UINT64_C(1000000000), 0,                                                            \
      "how long a waiting rank spins before it sleeps (0 when oversubscribed)")                                        \
    X(WAIT, simd, text, "auto", 0, 0, 0, "reduction kernels: auto, scalar, avx2, avx512, neon")                        \
    X(DEVICE, gpu, text, "auto", 0, 0, 1,                                                                              \
      "way of calls on device memory: auto, cuda, xpu, nccl, oneccl, host (through its memory), off (no devices)")     \
    X(DEVICE, devices, text, "auto", 0, 0, 0,                                                                          \
      "kind of devices that this process works with: auto (the first that is here), cuda, xpu")                        \
    X(DEVICE, gpu_method, text, "", 0, 0, 1, "method that tutti's kernels use where it fits: see docs/gpu.md")         \
    X(DEVICE, nccl_library, text, "", 0, 0, 0,                                                                         \
      "file of NCCL; empty: the one that the process has loaded, else libnccl.so.2")                                   \
    X(DEVICE, oneccl_library, text, "", 0, 0, 0,                                                                       \
      "file of oneCCL; empty: the one that is loaded, else libccl.so.2 in $CCL_ROOT/lib or the system's")              \
    X(DEVICE, gpu_scratch, size, "64M", UINT64_C(1) << 20, UINT64_C(1) << 40, 1,                                       \
      "device memory that a communicator may take for its own use")                                                    \
    X(DEVICE, gpu_blocks, u32, "0", 0, 128, 1,                                                                         \
      "most blocks of a launch on a GPU, each on an SM, 4 or more (0: as is fastest): fewer for computation beside")   \
    X(DEVICE, gpu_overlap_blocks, u32, "32", 1, 128, 0,                                                                \
      "most blocks of a large call on a GPU that says that computation runs beside it (asynchronous ones of PyTorch)") \
    X(DEVICE, gpu_map, flag, "1", 0, 1, 1,                                                                             \
      "large calls go straight between GPU buffers of ranks, which map one another's memory (1), or do not (0)")       \
    X(DEVICE, gpu_piece, size, "4M", 4096, UINT64_C(1) << 40, 0,                                                       \
      "bytes of a call through the host that are copied while others travel")                                          \
    X(DEVICE, gpu_tuning, text, "auto", 0, 0, 0,                                                                       \
      "constants that were measured of GPUs: auto (the file of these, if there is one), off, or a file")               \
    X(NCCL, nccl_timeout, time, "0", 0, UINT64_MAX, 0,                                                                 \
      "libnccl.so.2 of tutti: deadline of every call and creation (0: none, as in NCCL)")                              \
    X(NCCL, nccl_version, text, "2.30.7", 0, 0, 0, "libnccl.so.2 of tutti: the version that ncclGetVersion says")      \
    X(LOG, log, text, "warn", 0, 0, 0, "error, warn, info, debug or trace")                                            \
    X(LOG, log_file, text, "", 0, 0, 0, "where the log goes; %r is the rank, %p the process id")
/* What tests and measurements set: in no list of options and no manual, but read from the same places. */
#define TUTTI_OPTIONS_OF_TESTS(X)                                                                                      \
    X(HOOK, decorators, text, "", 0, 0, 0,                                                                             \
      "wrappers around the transport, outermost first, of those that tutti info lists")                                \
    X(HOOK, fault, text, "", 0, 0, 0, "faults to inject: seed=1,drop=0.01,duplicate=0.01,delay=0.01:2ms,kill=N")       \
    X(HOOK, delay, time, "0", 0, UINT64_C(60000000000), 0, "latency that the delay decorator adds to every packet")    \
    X(HOOK, flat, text, "", 0, 0, 1, "method that the back end flat uses where it can: line, stage, mapped, attach")   \
    X(HOOK, gpu_share, text, "auto", 0, 0, 0,                                                                          \
      "how processes share the library's device memory: auto, ipc (handles), fd (descriptors of virtual memory)")
#define TUTTI_OPTIONS(X)                                                                                               \
    TUTTI_OPTIONS_OF_USERS(X)                                                                                          \
    TUTTI_OPTIONS_OF_TESTS(X)

/* Sections of the list, in its order: X(section, title). */
#define TUTTI_OPTION_SECTIONS(X)                                                                                       \
    X(JOB, "How ranks meet")                                                                                           \
    X(NETWORK, "Other hosts")                                                                                          \
    X(CALLS, "How calls go")                                                                                           \
    X(MEMORY, "Memory and messages")                                                                                   \
    X(WAIT, "Waiting and CPUs")                                                                                        \
    X(DEVICE, "Devices")                                                                                               \
    X(NCCL, "In place of NCCL")                                                                                        \
    X(LOG, "The log")                                                                                                  \
    X(HOOK, "For tests")
enum tutti_option_section {
#define TUTTI_SECTION_ID(section, title) TUTTI_SECTION_##section,
    TUTTI_OPTION_SECTIONS(TUTTI_SECTION_ID)
#undef TUTTI_SECTION_ID
        TUTTI_N_SECTIONS
};

enum tutti_option_id {
#define TUTTI_OPTION_ID(section, name, type, def, min, max, agreed, help) TUTTI_OPT_##name,
    TUTTI_OPTIONS(TUTTI_OPTION_ID)
#undef TUTTI_OPTION_ID
        TUTTI_N_OPTIONS
};
enum tutti_option_origin { TUTTI_FROM_DEFAULT, TUTTI_FROM_FILE, TUTTI_FROM_ENVIRONMENT, TUTTI_FROM_CALL };

struct tutti_config {
    char *text[TUTTI_N_OPTIONS];      /* owned */
    uint64_t number[TUTTI_N_OPTIONS]; /* size, u32, time, flag, ports */
    enum tutti_option_origin origin[TUTTI_N_OPTIONS];
};
struct tutti_option_info {
    enum tutti_option_section section;
    const char *name, *type, *fallback, *help;
    uint64_t minimum, maximum;
    bool agreed;
};

/* Reads file, environment, options; the text of secret_file becomes secret. ARGUMENT: a sentence with the nearest known
 * name or the range. */
enum tutti_status tutti_config_init(struct tutti_config *config, const struct tutti_option *options, size_t n);
void tutti_config_fini(struct tutti_config *config);
struct stat;
bool tutti_is_open_to_others(const struct stat *info); /* a file that holds a secret */
const struct tutti_option_info *tutti_option_info(enum tutti_option_id id);
const char *tutti_section_title(enum tutti_option_section section);
uint64_t tutti_config_hash(const struct tutti_config *config); /* over the agreed options */
/* Writes "name=value name=value" of the agreed options that are not default, for error sentences. */
void tutti_config_agreed_text(const struct tutti_config *config, char *out, size_t capacity);
/* ---- ports: the option port_range as a number; 0: whichever is free ---- */
uint32_t tutti_ports_n(uint64_t range); /* how many to try, at least one */
/* The one to try after i others: of a range the processes of a host begin at different ones. 0: any. */
uint16_t tutti_ports_try(uint64_t range, uint32_t i);
/* SYSTEM, errno EADDRINUSE: all of them are in use. */
enum tutti_status tutti_ports_used_up(uint64_t range);

/* Parsers, used by the tools too: false when text is not of the form. */
bool tutti_parse_size(const char *text, uint64_t *out);
bool tutti_parse_time(const char *text, uint64_t *out_ns); /* TUTTI_NEVER where it does not fit (584 years) */
bool tutti_parse_decimal(const char *text, double *out);   /* "12", "0.045": at most 15 digits, whatever the locale */
/* Nearest of the n names to text ("did you mean"), NULL if none is near. */
const char *tutti_nearest(const char *text, const char *const *names, size_t n);

#endif
