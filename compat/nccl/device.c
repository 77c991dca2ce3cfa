/* SPDX-License-Identifier: BSD-3-Clause */
/* What kernels that communicate by NCCL's own headers would ask for. Their inline functions read NVIDIA's structures in
 * device memory, which nothing here fills: properties say so, and what is asked for all the same is refused. Addresses
 * of peers' windows are there. */
#include "shim.h"

#include <string.h>

static int refuse(const char *call)
{
    return nccl_fail(NCCL_INVALID_USAGE,
                     "%s: tutti has no device communicators of NCCL (ncclCommQueryProperties says "
                     "deviceApiSupport false); its own are in tutti/device.cuh",
                     call);
}

NCCL_TWIN(CommQueryProperties);
int pncclCommQueryProperties(struct ncclComm *comm, struct nccl_properties *out)
{
    static const size_t since_2_29 = offsetof(struct nccl_properties, n_lsa_teams);
    NCCL_TRY(nccl_comm_ready("ncclCommQueryProperties", comm));
    if (!out || out->magic != NCCL_CONFIG_MAGIC || out->size < since_2_29)
        return nccl_fail(NCCL_INVALID_ARGUMENT, "ncclCommQueryProperties: props %s",
                         out ? "were not initialised by NCCL_COMM_PROPERTIES_INITIALIZER" : "is NULL");
    struct nccl_properties mine = *out;
    const size_t all = out->version < 22903 ? since_2_29 : sizeof mine;
    mine.rank = comm->rank;
    mine.n_ranks = comm->n_ranks;
    mine.device = mine.nvml_device = comm->family->device;
    mine.device_api = mine.multimem = false;
    mine.gin = mine.railed_gin = 0;
    mine.n_lsa_teams = comm->n_ranks;
    mine.host_rma = true;
    memcpy(out, &mine, out->size < all ? out->size : all);
    return NCCL_SUCCESS;
}

NCCL_TWIN(DevCommCreate);
int pncclDevCommCreate(struct ncclComm *comm, const void *requirements, void *out)
{
    (void)requirements, (void)out;
    NCCL_TRY(nccl_comm_check("ncclDevCommCreate", comm));
    return nccl_group_note(refuse("ncclDevCommCreate"));
}

NCCL_TWIN(DevCommDestroy);
int pncclDevCommDestroy(struct ncclComm *comm, const void *device_comm)
{
    NCCL_TRY(nccl_comm_check("ncclDevCommDestroy", comm));
    return device_comm ? refuse("ncclDevCommDestroy") : NCCL_SUCCESS;
}

/* ---- teams: the ranks whose memory kernels reach are none but the own ---- */

static struct nccl_team alone(void)
{
    return (struct nccl_team){.n_ranks = 1, .rank = 0, .stride = 1};
}

static struct nccl_team world(const char *call, const struct ncclComm *comm)
{
    if (nccl_comm_check(call, comm) != NCCL_SUCCESS) return alone();
    return (struct nccl_team){.n_ranks = comm->n_ranks, .rank = comm->rank, .stride = 1};
}

NCCL_TWIN(TeamWorld);
struct nccl_team pncclTeamWorld(struct ncclComm *comm)
{
    return world("ncclTeamWorld", comm);
}

NCCL_TWIN(TeamLsa);
struct nccl_team pncclTeamLsa(struct ncclComm *comm)
{
    (void)comm;
    return alone();
}

NCCL_TWIN(TeamRail);
struct nccl_team pncclTeamRail(struct ncclComm *comm)
{
    return world("ncclTeamRail", comm);
}

NCCL_TWIN(TeamRankToWorld);
int pncclTeamRankToWorld(struct ncclComm *comm, struct nccl_team team, int rank)
{
    if (nccl_comm_check("ncclTeamRankToWorld", comm) != NCCL_SUCCESS) return -1;
    return comm->rank + (rank - team.rank) * team.stride;
}

NCCL_TWIN(TeamRankToLsa);
int pncclTeamRankToLsa(struct ncclComm *comm, struct nccl_team team, int rank)
{
    (void)comm;
    return (rank - team.rank) * team.stride; /* the own rank is 0 */
}

/* ---- requirements of device communicators ---- */

NCCL_TWIN(LsaBarrierCreateRequirement);
int pncclLsaBarrierCreateRequirement(struct nccl_team team, int n, void *handle, void *requirements)
{
    (void)team, (void)n, (void)handle, (void)requirements;
    return refuse("ncclLsaBarrierCreateRequirement");
}

NCCL_TWIN(GinBarrierCreateRequirement);
int pncclGinBarrierCreateRequirement(struct ncclComm *comm, struct nccl_team team, int n, void *handle,
                                     void *requirements)
{
    (void)comm, (void)team, (void)n, (void)handle, (void)requirements;
    return refuse("ncclGinBarrierCreateRequirement");
}

NCCL_TWIN(GinOutboxCreateRequirement);
int pncclGinOutboxCreateRequirement(int n_blocks, int size_log2, void *handle, void *requirements)
{
    (void)n_blocks, (void)size_log2, (void)handle, (void)requirements;
    return refuse("ncclGinOutboxCreateRequirement");
}

NCCL_TWIN(GinInboxA2ACreateRequirement);
int pncclGinInboxA2ACreateRequirement(struct nccl_team peers, int n_blocks, int size_log2, void *handle,
                                      void *requirements)
{
    (void)peers, (void)n_blocks, (void)size_log2, (void)handle, (void)requirements;
    return refuse("ncclGinInboxA2ACreateRequirement");
}

NCCL_TWIN(LLA2ACalcSlots);
int pncclLLA2ACalcSlots(int n_elements, int element_bytes)
{
    (void)n_elements, (void)element_bytes;
    refuse("ncclLLA2ACalcSlots");
    return 0;
}

NCCL_TWIN(LLA2ACreateRequirement);
int pncclLLA2ACreateRequirement(int n_blocks, int n_slots, void *handle, void *requirements)
{
    (void)n_blocks, (void)n_slots, (void)handle, (void)requirements;
    return refuse("ncclLLA2ACreateRequirement");
}

/* ---- addresses in windows ---- */

static int pointer(const char *call, const struct ncclWindow *window, size_t offset, int rank, void **out)
{
    size_t bytes = 0;
    NCCL_TRY(nccl_window_check(call, window));
    if (!out || rank < 0 || rank >= window->comm->n_ranks)
        return nccl_fail(NCCL_INVALID_ARGUMENT, "%s: outPtr is %s and peer is %d", call, out ? "given" : "NULL", rank);
    char *base = tutti_window_peer(window->window, rank, &bytes);
    if (offset > bytes)
        return nccl_fail(NCCL_INVALID_ARGUMENT, "%s: offset is %zu but rank %d's part has %zu bytes", call, offset,
                         rank, bytes);
    *out = base ? base + offset : NULL; /* NULL: it is not mapped here */
    return NCCL_SUCCESS;
}

NCCL_TWIN(GetPeerDevicePointer);
int pncclGetPeerDevicePointer(struct ncclWindow *window, size_t offset, int peer, void **out)
{
    return pointer("ncclGetPeerDevicePointer", window, offset, peer, out);
}

NCCL_TWIN(GetLsaDevicePointer);
int pncclGetLsaDevicePointer(struct ncclWindow *window, size_t offset, int rank, void **out)
{
    static const char name[] = "ncclGetLsaDevicePointer";
    NCCL_TRY(nccl_window_check(name, window));
    if (rank != 0) return nccl_fail(NCCL_INVALID_ARGUMENT, "%s: rank is %d of a team of one", name, rank);
    return pointer(name, window, offset, window->comm->rank, out);
}

NCCL_TWIN(GetLsaMultimemDevicePointer);
int pncclGetLsaMultimemDevicePointer(struct ncclWindow *window, size_t offset, void **out)
{
    (void)window, (void)offset, (void)out;
    return refuse("ncclGetLsaMultimemDevicePointer");
}

NCCL_TWIN(GetMultimemDevicePointer);
int pncclGetMultimemDevicePointer(struct ncclWindow *window, size_t offset, struct nccl_multimem multimem, void **out)
{
    (void)window, (void)offset, (void)multimem, (void)out;
    return refuse("ncclGetMultimemDevicePointer");
}
