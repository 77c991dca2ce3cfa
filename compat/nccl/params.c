/* SPDX-License-Identifier: BSD-3-Clause */
/* The parameters of the library: the variables of the environment that it reads. */
#include "shim.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ncclParamHandle {
    const char *key, *fallback;
};
static struct ncclParamHandle parameters[] = {
    {"NCCL_COMM_BLOCKING", "1"}, {"NCCL_COMM_ID", ""},       {"NCCL_DEBUG", "NONE"},      {"NCCL_DEBUG_FILE", ""},
    {"NCCL_MAX_CTAS", "0"},      {"NCCL_SOCKET_IFNAME", ""}, {"TUTTI_NCCL_TIMEOUT", "0"}, {"TUTTI_NCCL_VERSION", ""},
};
static const char *keys[NCCL_COUNT(parameters)];

static const char *value_of(const struct ncclParamHandle *parameter)
{
    const char *value = getenv(parameter->key);
    return value && *value ? value : parameter->fallback;
}

NCCL_TWIN(ParamBind);
int pncclParamBind(struct ncclParamHandle **out, const char *key)
{
    if (!out || !key) return nccl_fail(NCCL_INVALID_ARGUMENT, "ncclParamBind: %s is NULL", out ? "key" : "out");
    for (size_t i = 0; i < NCCL_COUNT(parameters); i++) {
        if (strcmp(key, parameters[i].key) != 0) continue;
        *out = &parameters[i];
        return NCCL_SUCCESS;
    }
    return nccl_fail(NCCL_INVALID_ARGUMENT, "ncclParamBind: there is no parameter \"%s\"", key);
}

static int handle_check(const char *call, const struct ncclParamHandle *handle, const void *out)
{
    const bool known = handle >= parameters && handle < parameters + NCCL_COUNT(parameters);
    if (known && out) return NCCL_SUCCESS;
    return nccl_fail(NCCL_INVALID_ARGUMENT, "%s: %s", call, known ? "out is NULL" : "h is no parameter");
}

static int refuse(const char *call, const struct ncclParamHandle *handle)
{
    return nccl_fail(NCCL_INVALID_ARGUMENT, "%s: %s is \"%s\"", call, handle->key, value_of(handle));
}

static int signed_of(const char *call, const struct ncclParamHandle *handle, const void *out, long long least,
                     long long most, long long *value)
{
    char *end;
    NCCL_TRY(handle_check(call, handle, out));
    const char *text = value_of(handle);
    errno = 0;
    *value = strtoll(text, &end, 0);
    return errno || end == text || *end || *value < least || *value > most ? refuse(call, handle) : NCCL_SUCCESS;
}

static int unsigned_of(const char *call, const struct ncclParamHandle *handle, const void *out, unsigned long long most,
                       unsigned long long *value)
{
    char *end;
    NCCL_TRY(handle_check(call, handle, out));
    const char *text = value_of(handle);
    errno = 0;
    *value = strtoull(text, &end, 0);
    return errno || end == text || *end || strchr(text, '-') || *value > most ? refuse(call, handle) : NCCL_SUCCESS;
}

#define SIGNED(name, type, least, most)                                                                                \
    NCCL_TWIN(ParamGet##name);                                                                                         \
    int pncclParamGet##name(struct ncclParamHandle *handle, type *out)                                                 \
    {                                                                                                                  \
        long long value = 0;                                                                                           \
        NCCL_TRY(signed_of("ncclParamGet" #name, handle, out, least, most, &value));                                   \
        *out = (type)value;                                                                                            \
        return NCCL_SUCCESS;                                                                                           \
    }
#define UNSIGNED(name, type, most)                                                                                     \
    NCCL_TWIN(ParamGet##name);                                                                                         \
    int pncclParamGet##name(struct ncclParamHandle *handle, type *out)                                                 \
    {                                                                                                                  \
        unsigned long long value = 0;                                                                                  \
        NCCL_TRY(unsigned_of("ncclParamGet" #name, handle, out, most, &value));                                        \
        *out = (type)value;                                                                                            \
        return NCCL_SUCCESS;                                                                                           \
    }
SIGNED(I8, int8_t, INT8_MIN, INT8_MAX)
SIGNED(I16, int16_t, INT16_MIN, INT16_MAX)
SIGNED(I32, int32_t, INT32_MIN, INT32_MAX)
SIGNED(I64, int64_t, INT64_MIN, INT64_MAX)
UNSIGNED(U8, uint8_t, UINT8_MAX)
UNSIGNED(U16, uint16_t, UINT16_MAX)
UNSIGNED(U32, uint32_t, UINT32_MAX)
UNSIGNED(U64, uint64_t, UINT64_MAX)

NCCL_TWIN(ParamGetStr);
int pncclParamGetStr(struct ncclParamHandle *handle, const char **out)
{
    NCCL_TRY(handle_check("ncclParamGetStr", handle, out));
    *out = value_of(handle);
    return NCCL_SUCCESS;
}

/* As text, with its end. */
NCCL_TWIN(ParamGet);
int pncclParamGet(struct ncclParamHandle *handle, void *out, int capacity, int *length)
{
    NCCL_TRY(handle_check("ncclParamGet", handle, out));
    const char *value = value_of(handle);
    const size_t n = strlen(value) + 1;
    if (length) *length = (int)n;
    if (capacity < 0 || n > (size_t)capacity)
        return nccl_fail(NCCL_INVALID_ARGUMENT, "ncclParamGet: %s has %zu bytes, of %d that fit", handle->key, n,
                         capacity);
    memcpy(out, value, n);
    return NCCL_SUCCESS;
}

NCCL_TWIN(ParamGetParameter);
int pncclParamGetParameter(const char *key, const char **value, int *length)
{
    struct ncclParamHandle *handle = NULL;
    NCCL_TRY(pncclParamBind(&handle, key));
    NCCL_TRY(handle_check("ncclParamGetParameter", handle, value));
    *value = value_of(handle);
    if (length) *length = (int)strlen(*value);
    return NCCL_SUCCESS;
}

NCCL_TWIN(ParamGetAllParameterKeys);
int pncclParamGetAllParameterKeys(const char ***out, int *n)
{
    if (!out || !n)
        return nccl_fail(NCCL_INVALID_ARGUMENT, "ncclParamGetAllParameterKeys: %s is NULL", out ? "tableLen" : "table");
    for (size_t i = 0; i < NCCL_COUNT(parameters); i++) keys[i] = parameters[i].key;
    *out = keys;
    *n = (int)NCCL_COUNT(parameters);
    return NCCL_SUCCESS;
}

NCCL_TWIN(ParamDumpAll);
void pncclParamDumpAll(void)
{
    for (size_t i = 0; i < NCCL_COUNT(parameters); i++)
        fprintf(stderr, "%s=%s\n", parameters[i].key, value_of(&parameters[i]));
}
