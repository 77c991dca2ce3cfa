/* SPDX-License-Identifier: BSD-3-Clause */

/* Names of statuses, element types and operations: a table each, so that a value and its name can not drift apart. */

#include "base/base.h"

struct status_row {
    enum tutti_status status;
    enum tutti_scope scope;
    const char *name, *text;
};

#define STATUS(id, scope, text)                                                                                        \
    {                                                                                                                  \
        TUTTI_##id, TUTTI_SCOPE_##scope, "TUTTI_" #id, text                                                            \
    }
static const struct status_row status_table[] = {
    STATUS(OK, NONE, "success"),
    STATUS(AGAIN, NONE, "nothing there or no room now; call again"),
    STATUS(PENDING, NONE, "started, not complete"),
    STATUS(ERR_ARGUMENT, CALL, "an argument is wrong"),
    STATUS(ERR_UNSUPPORTED, CALL, "not defined, or not built"),
    STATUS(ERR_MEMORY, CALL, "out of memory"),
    STATUS(ERR_SYSTEM, CALL, "a system call failed"),
    STATUS(ERR_CANCELLED, CALL, "the call was withdrawn before it completed"),
    STATUS(ERR_TRUNCATED, CALL, "a message is longer than its buffer"),
    STATUS(ERR_PEER_DEAD, PEER, "a peer's process died"),
    STATUS(ERR_PEER_LEFT, PEER, "a peer destroyed its communicator while others wait"),
    STATUS(ERR_TIMEOUT, COMM, "the deadline passed"),
    STATUS(ERR_MISMATCH, COMM, "ranks made different calls"),
    STATUS(ERR_ABORTED, COMM, "the communicator was aborted"),
    STATUS(ERR_PROTOCOL, COMM, "a message that can not be"),
    STATUS(ERR_CONFIG, CONTEXT, "ranks have different configurations or versions"),
    STATUS(ERR_AUTH, CONTEXT, "a peer does not know the job's secret, or has another uid"),
    STATUS(ERR_BOOTSTRAP, CONTEXT, "ranks did not find one another"),
    STATUS(ERR_INTERNAL, CONTEXT, "a defect in tutti"),
};
#undef STATUS

static const struct status_row *status_find(enum tutti_status status)
{
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(status_table); i++)
        if (status_table[i].status == status) return &status_table[i];
    return NULL;
}

const char *tutti_status_name(enum tutti_status status)
{
    const struct status_row *row = status_find(status);
    return row ? row->name : "TUTTI_?";
}

const char *tutti_status_text(enum tutti_status status)
{
    const struct status_row *row = status_find(status);
    return row ? row->text : "unknown status";
}

enum tutti_scope tutti_status_scope(enum tutti_status status)
{
    const struct status_row *row = status_find(status);
    return row ? row->scope : TUTTI_SCOPE_CONTEXT;
}

#define DTYPE(id, name, class, bits, mantissa, bias, infinity, torch)                                                  \
    {#name, TUTTI_##class, (bits) / 8 * (TUTTI_##class == TUTTI_COMPLEX ? 2 : 1), mantissa, bias, infinity},
const struct tutti_dtype_info tutti_dtypes[] = {TUTTI_DTYPES(DTYPE)};
#undef DTYPE

const char *tutti_dtype_name(enum tutti_dtype dtype)
{
    return tutti_dtype_is(dtype) ? tutti_dtypes[dtype].name : "?";
}

size_t tutti_dtype_bytes(enum tutti_dtype dtype)
{
    return tutti_dtype_is(dtype) ? tutti_dtypes[dtype].bytes : 0;
}

static const char *const op_table[TUTTI_N_OPS] = {
    [TUTTI_SUM] = "sum",   [TUTTI_PROD] = "prod", [TUTTI_MIN] = "min",
    [TUTTI_MAX] = "max",   [TUTTI_AVG] = "avg",   [TUTTI_PREMUL_SUM] = "premul_sum",
    [TUTTI_BAND] = "band", [TUTTI_BOR] = "bor",   [TUTTI_BXOR] = "bxor",
};

static const char *const wire_table[TUTTI_N_WIRES] = {
    [TUTTI_WIRE_NONE] = "none",
    [TUTTI_WIRE_BFLOAT16] = "bfloat16",
    [TUTTI_WIRE_FLOAT8_E4M3] = "float8_e4m3",
    [TUTTI_WIRE_FLOAT8_E5M2] = "float8_e5m2",
    [TUTTI_WIRE_INT8] = "int8",
};

const char *tutti_wire_name(enum tutti_wire wire)
{
    return (unsigned)wire < TUTTI_N_WIRES ? wire_table[wire] : "?";
}

const char *tutti_op_name(enum tutti_op op)
{
    return (unsigned)op < TUTTI_N_OPS ? op_table[op] : "user";
}
