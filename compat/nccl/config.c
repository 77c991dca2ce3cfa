/* SPDX-License-Identifier: BSD-3-Clause */
/* ncclConfig_t, by the size and the version of the program that fills it: what is wrong is refused, what has a meaning
 * here is kept, and the rest is passed over. */
#include "shim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Fields in the order of their versions, and what they may be. Two came into what had been padding, so the size alone
 * does not tell whether a field is there. */
static const struct field {
    const char *name;
    size_t at;
    uint32_t since; /* version */
    int least, most;
} fields[] = {
#define FIELD(member, name, since, least, most)                                                                        \
    {                                                                                                                  \
        name, offsetof(struct nccl_config, member), since, least, most                                                 \
    }
    FIELD(blocking, "blocking", 21400, 0, 1),
    FIELD(cluster, "cgaClusterSize", 21700, 0, INT32_MAX),
    FIELD(min_ctas, "minCTAs", 21700, 1, INT32_MAX),
    FIELD(max_ctas, "maxCTAs", 21700, 1, INT32_MAX),
    FIELD(split_share, "splitShare", 21800, 0, 1),
    FIELD(traffic_class, "trafficClass", 22600, NCCL_UNDEFINED, INT32_MAX),
    FIELD(collnet, "collnetEnable", 22700, 0, 1),
    FIELD(cta_policy, "CTAPolicy", 22700, 0, 3),
    FIELD(shrink_share, "shrinkShare", 22700, 0, 1),
    FIELD(nvls_ctas, "nvlsCTAs", 22700, 1, INT32_MAX),
    FIELD(channels_per_peer, "nChannelsPerNetPeer", 22800, NCCL_UNDEFINED, INT32_MAX),
    FIELD(nvlink_centric, "nvlinkCentricSched", 22800, NCCL_UNDEFINED, INT32_MAX),
    FIELD(graph_usage, "graphUsageMode", 22900, 0, 2),
    FIELD(n_rma_contexts, "numRmaCtx", 22900, NCCL_UNDEFINED, INT32_MAX),
    FIELD(max_p2p_peers, "maxP2pPeers", 23003, 1, INT32_MAX),
    FIELD(graph_stream_ordering, "graphStreamOrdering", 23005, NCCL_UNDEFINED, INT32_MAX),
#undef FIELD
};

#define SMALLEST offsetof(struct nccl_config, cluster) /* 2.14 */

static int *field_of(struct nccl_config *config, const struct field *field)
{
    return (int *)(void *)((char *)config + field->at);
}

/* A network that NCCL does not have itself would come from a plug-in; it refuses one that it does not find. */
static int network_check(const char *call, const char *name)
{
    if (!name || !*name || strcasecmp(name, "Socket") == 0 || strcasecmp(name, "IB") == 0) return NCCL_SUCCESS;
    return nccl_fail(
        NCCL_INVALID_USAGE,
        "%s: config.netName is \"%s\": tutti loads no plug-ins of NCCL, and chooses among networks of its own", call,
        name);
}

/* What the program gave, fields that it does not have undefined. */
static int config_read(const char *call, const struct nccl_config *given, struct nccl_config *out)
{
    if (given->magic != NCCL_CONFIG_MAGIC)
        return nccl_fail(NCCL_INVALID_ARGUMENT, "%s: config was not initialised by NCCL_CONFIG_INITIALIZER", call);
    if (given->size < SMALLEST || given->size > 4096)
        return nccl_fail(NCCL_INVALID_ARGUMENT, "%s: config.size is %zu", call, given->size);
    memset(out, 0, sizeof *out);
    memcpy(out, given, given->size < sizeof *out ? given->size : sizeof *out);
    for (size_t i = 0; i < NCCL_COUNT(fields); i++) {
        const struct field *field = &fields[i];
        int *value = field_of(out, field);
        const bool there = given->version >= field->since && field->at + sizeof(int) <= given->size;
        if (!there) *value = NCCL_UNDEFINED;
        if (*value != NCCL_UNDEFINED && (*value < field->least || *value > field->most))
            return nccl_fail(NCCL_INVALID_ARGUMENT, "%s: config.%s is %d", call, field->name, *value);
    }
    if (given->version < 21700 || given->size < offsetof(struct nccl_config, split_share)) out->net_name = NULL;
    if (given->version < 22700 || given->size < offsetof(struct nccl_config, collnet)) out->comm_name = NULL;
    NCCL_TRY(network_check(call, out->net_name));
    if (out->min_ctas != NCCL_UNDEFINED && out->max_ctas != NCCL_UNDEFINED && out->min_ctas > out->max_ctas)
        return nccl_fail(NCCL_INVALID_ARGUMENT, "%s: config.minCTAs is %d but maxCTAs is %d", call, out->min_ctas,
                         out->max_ctas);
    return NCCL_SUCCESS;
}

/* *value stays when the variable is not set. */
static int variable_read(const char *call, const char *variable, long most, long *value)
{
    const char *text = getenv(variable);
    char *end;
    if (!text || !*text) return NCCL_SUCCESS;
    const long number = strtol(text, &end, 10);
    if (*end || number < 0 || number > most)
        return nccl_fail(NCCL_INVALID_USAGE, "%s: the variable %s is \"%.40s\", and should be a number from 0 to %ld",
                         call, variable, text, most);
    *value = number;
    return NCCL_SUCCESS;
}

/* tutti's limits of a launch. */
static uint32_t blocks_of(long ctas)
{
    return ctas <= 0 ? 0 : ctas < 4 ? 4 : ctas > 128 ? 128 : (uint32_t)ctas;
}

int nccl_settings_read(const char *call, const struct nccl_config *config, const struct nccl_settings *parent,
                       struct nccl_settings *out)
{
    struct nccl_config given;
    struct nccl_settings settings = {.blocking = true};
    if (parent) settings = *parent;
    if (config) {
        NCCL_TRY(config_read(call, config, &given));
        settings.blocking = given.blocking != 0; /* undefined: blocking */
        settings.gpu_blocks = given.max_ctas == NCCL_UNDEFINED ? 0 : blocks_of(given.max_ctas);
        settings.efficient = given.cta_policy != NCCL_UNDEFINED && given.cta_policy != 0;
        settings.name[0] = '\0';
        if (given.comm_name) snprintf(settings.name, sizeof settings.name, "%s", given.comm_name);
    }
    /* NCCL's variables go before what the program says. */
    long ctas = (long)settings.gpu_blocks, blocking = settings.blocking, policy = settings.efficient;
    NCCL_TRY(variable_read(call, "NCCL_MAX_CTAS", INT32_MAX, &ctas));
    NCCL_TRY(variable_read(call, "NCCL_COMM_BLOCKING", 1, &blocking));
    NCCL_TRY(variable_read(call, "NCCL_CTA_POLICY", 3, &policy));
    settings.gpu_blocks = blocks_of(ctas);
    settings.blocking = blocking != 0;
    settings.efficient = policy != 0;
    *out = settings;
    return NCCL_SUCCESS;
}

void nccl_plugins_tell(void)
{
    static const char *const variables[] = {"NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN", "NCCL_PROFILER_PLUGIN",
                                            "NCCL_GIN_PLUGIN", "NCCL_RMA_PLUGIN",   "NCCL_ENV_PLUGIN"};
    for (size_t i = 0; i < NCCL_COUNT(variables); i++) {
        const char *name = getenv(variables[i]);
        if (name && *name && strcasecmp(name, "none") != 0)
            nccl_fail(NCCL_SUCCESS, "%s=%s: tutti loads no plug-ins of NCCL", variables[i], name);
    }
}

uint64_t nccl_timeout_ns(void)
{
    char text[64];
    uint64_t ns = 0;
    if (tutti_option_get("nccl_timeout", text, sizeof text, &ns) < 0 || ns == 0) return UINT64_MAX;
    return ns;
}
