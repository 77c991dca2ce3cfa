/* SPDX-License-Identifier: BSD-3-Clause */
/* An endpoint on one domain; memory that must be registered; completions.
 *
 * Nothing of the caller's memory stays registered: where it must be, it is registered for one payload and given back
 * with it. Only what this transport allocated itself is registered for long, and what the caller registers, who says
 * when it ends. So no registration outlives its memory, and no cache must hear of what others free. */

#include "transport/ofi/state.h"

#include "base/config.h"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define QUEUE_SIZE 4096
#define TRUE_MEMORY (FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY) /* a card reaches registered memory alone */

#define CALL(what, call)                                                                                               \
    do {                                                                                                               \
        const int rc_ = (int)(call);                                                                                   \
        if (rc_ < 0)                                                                                                   \
            return tutti_fail(TUTTI_ERR_SYSTEM, "transport ofi: %s of provider %s: %s", what,                          \
                              rail->info->fabric_attr->prov_name, tutti_ofi_says(rc_));                                \
    } while (0)

static enum tutti_status open_queue(struct tutti_ofi_rail *rail, int epoll)
{
    struct fi_cq_attr attr = {.size = QUEUE_SIZE, .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_FD};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = rail};
    rail->fd = -1;
    if (fi_cq_open(rail->domain, &attr, &rail->cq, NULL) < 0) {
        attr.wait_obj = FI_WAIT_NONE;
        CALL("fi_cq_open", fi_cq_open(rail->domain, &attr, &rail->cq, NULL));
        return TUTTI_OK;
    }
    if (fi_control(&rail->cq->fid, FI_GETWAIT, &rail->fd) < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, rail->fd, &event) < 0)
        rail->fd = -1;
    return TUTTI_OK;
}

/* Whether the provider's address has a port. */
static bool has_port(const struct fi_info *info)
{
    const struct sockaddr *at = info->src_addr;
    return at && (at->sa_family == AF_INET || at->sa_family == AF_INET6) &&
           (info->addr_format == FI_SOCKADDR || info->addr_format == FI_SOCKADDR_IN ||
            info->addr_format == FI_SOCKADDR_IN6);
}

/* A socket at this address; -1: it is in use. */
static int address_bind(const struct sockaddr *at, socklen_t n, int type)
{
    const bool listens = type == SOCK_STREAM;
    const int on = 1, fd = socket(at->sa_family, type | SOCK_CLOEXEC, 0);
    if (fd < 0) return fd;
    if (listens) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on); /* over what is left of the last job */
    if (bind(fd, at, n) == 0 && (!listens || listen(fd, 1) == 0)) return fd;
    close(fd);
    return -1;
}

/* Writes a port of the range that is free into the provider's address. It is tried first by a socket of ours, since
 * some providers fall over a port that is in use, and held against other ranks that try by one of the other protocol,
 * which is closed when the provider listens. -1: none is free. */
static int port_hold(const struct tutti_ofi_rail *rail)
{
    struct sockaddr_in6 *six = rail->info->src_addr; /* IPv4 has its port at the same place */
    const struct sockaddr *at = rail->info->src_addr;
    const socklen_t n = at->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof *six;
    const bool udp = strstr(rail->info->fabric_attr->prov_name, "udp") != NULL;
    for (uint32_t i = 0; i < tutti_ports_n(rail->ports); i++) {
        six->sin6_port = htons(tutti_ports_try(rail->ports, i));
        const int held = address_bind(at, n, udp ? SOCK_STREAM : SOCK_DGRAM);
        const int tried = held < 0 ? -1 : address_bind(at, n, udp ? SOCK_DGRAM : SOCK_STREAM);
        if (tried >= 0) close(tried);
        if (tried >= 0) return held;
        if (held >= 0) close(held);
    }
    return -1;
}

static enum tutti_status endpoint_bind(struct tutti_ofi_rail *rail)
{
    CALL("fi_endpoint", fi_endpoint(rail->domain, rail->info, &rail->ep, NULL));
    CALL("fi_ep_bind", fi_ep_bind(rail->ep, &rail->av->fid, 0));
    CALL("fi_ep_bind", fi_ep_bind(rail->ep, &rail->cq->fid, FI_TRANSMIT | FI_RECV));
    CALL("fi_enable", fi_enable(rail->ep));
    return TUTTI_OK;
}

static enum tutti_status open_endpoint(struct tutti_ofi_rail *rail)
{
    if (!rail->ports || !has_port(rail->info)) return endpoint_bind(rail);
    const int fd = port_hold(rail);
    if (fd < 0) return tutti_ports_used_up(rail->ports);
    const enum tutti_status status = endpoint_bind(rail);
    close(fd);
    return status;
}

static enum tutti_status open_all(struct tutti_ofi_rail *rail, int epoll)
{
    struct fi_av_attr av = {.type = FI_AV_TABLE};
    CALL("fi_fabric", tutti_ofi_library()->fabric(rail->info->fabric_attr, &rail->fabric, NULL));
    CALL("fi_domain", fi_domain(rail->fabric, rail->info, &rail->domain, NULL));
    TUTTI_TRY(open_queue(rail, epoll));
    if (rail->info->domain_attr->av_type != FI_AV_UNSPEC) av.type = rail->info->domain_attr->av_type;
    CALL("fi_av_open", fi_av_open(rail->domain, &av, &rail->av, NULL));
    TUTTI_TRY(open_endpoint(rail));
    rail->name_bytes = sizeof(rail->name);
    CALL("fi_getname", fi_getname(&rail->ep->fid, rail->name, &rail->name_bytes));
    return TUTTI_OK;
}

enum tutti_status tutti_ofi_rail_open(struct tutti_ofi_rail *rail, int epoll, bool registers)
{
    rail->local = registers || (rail->info->domain_attr->mr_mode & FI_MR_LOCAL);
    rail->enforced = rail->info->domain_attr->mr_mode & TRUE_MEMORY;
    TUTTI_TRY(open_all(rail, epoll));
    tutti_log(TUTTI_LOG_DEBUG, "transport ofi: provider %s, domain %s%s%s", rail->info->fabric_attr->prov_name,
              rail->info->domain_attr->name, rail->local ? ", memory is registered" : "",
              rail->fd < 0 ? ", no descriptor to sleep on" : "");
    return TUTTI_OK;
}

void tutti_ofi_rail_close(struct tutti_ofi_rail *rail)
{
    if (rail->ep) fi_close(&rail->ep->fid);
    if (rail->cq) fi_close(&rail->cq->fid);
    if (rail->av) fi_close(&rail->av->fid);
    if (rail->domain) fi_close(&rail->domain->fid);
    if (rail->fabric) fi_close(&rail->fabric->fid);
    if (rail->info) tutti_ofi_library()->freeinfo(rail->info);
    *rail = (struct tutti_ofi_rail){.fd = -1};
}

bool tutti_ofi_rail_may_sleep(struct tutti_ofi_rail *rail)
{
    struct fid *queue = &rail->cq->fid;
    return rail->fd < 0 || fi_trywait(rail->fabric, &queue, 1) == 0;
}

/* ---- memory ---- */

static const enum fi_hmem_iface interfaces[] = {
    [TUTTI_MAKER_HOST] = FI_HMEM_SYSTEM, [TUTTI_MAKER_CUDA] = FI_HMEM_CUDA, [TUTTI_MAKER_XPU] = FI_HMEM_ZE};

static enum tutti_status reg(struct tutti_ofi_rail *rail, const struct tutti_range *memory, uint64_t access,
                             struct tutti_ofi_memory *out)
{
    const size_t key_bytes = rail->info->domain_attr->mr_key_size;
    const uint64_t key = key_bytes < 8 ? rail->next_key & ((UINT64_C(1) << 8 * key_bytes) - 1) : rail->next_key;
    const struct iovec what = {memory->base, memory->bytes};
    struct fi_mr_attr attr = {
        .mr_iov = &what, .iov_count = 1, .access = access, .requested_key = key, .iface = interfaces[memory->maker]};
    struct fid_mr *mr = NULL;
    if (memory->maker == TUTTI_MAKER_CUDA) attr.device.cuda = memory->device;
    if (memory->maker == TUTTI_MAKER_XPU) attr.device.ze = memory->device;
    rail->next_key++;
    int rc = memory->maker == TUTTI_MAKER_HOST
                 ? fi_mr_reg(rail->domain, memory->base, memory->bytes, access, 0, key, 0, &mr, NULL)
                 : fi_mr_regattr(rail->domain, &attr, 0, &mr);
    if (rc == 0 && (rail->info->domain_attr->mr_mode & FI_MR_ENDPOINT)) {
        rc = fi_mr_bind(mr, &rail->ep->fid, 0);
        if (rc == 0) rc = fi_mr_enable(mr);
        if (rc < 0) fi_close(&mr->fid);
    }
    if (rc == -FI_EAGAIN) return TUTTI_AGAIN;
    if (rc < 0)
        return tutti_fail(TUTTI_ERR_SYSTEM, "transport ofi: %zu bytes can not be registered: %s", memory->bytes,
                          tutti_ofi_says(rc));
    *out = (struct tutti_ofi_memory){mr, fi_mr_desc(mr)};
    return TUTTI_OK;
}

enum tutti_status tutti_ofi_register(struct tutti_ofi_rail *rail, const struct tutti_range *memory,
                                     struct tutti_ofi_memory *out)
{
    *out = (struct tutti_ofi_memory){NULL, NULL};
    if ((!rail->local && memory->maker == TUTTI_MAKER_HOST) || memory->bytes == 0) return TUTTI_OK;
    return reg(rail, memory, FI_SEND | FI_RECV | (rail->info->caps & FI_RMA ? FI_WRITE | FI_READ : 0), out);
}

enum tutti_status tutti_ofi_expose(struct tutti_ofi_rail *rail, const struct tutti_range *memory, bool reads,
                                   struct tutti_ofi_memory *out, uint64_t *address, uint64_t *key)
{
    *out = (struct tutti_ofi_memory){NULL, NULL};
    enum tutti_status status = reg(rail, memory, FI_REMOTE_WRITE | (reads ? FI_REMOTE_READ : 0), out);
    if (status != TUTTI_OK) return status;
    *address = rail->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uint64_t)(uintptr_t)memory->base : 0;
    *key = fi_mr_key(out->mr);
    return TUTTI_OK;
}

void tutti_ofi_unregister(struct tutti_ofi_memory *memory)
{
    if (memory->mr) fi_close(&memory->mr->fid);
    *memory = (struct tutti_ofi_memory){NULL, NULL};
}

/* ---- completions ---- */

static bool failed(struct tutti_ofi_rail *rail, struct tutti_ofi_completion *out)
{
    struct fi_cq_err_entry error = {.op_context = NULL};
    if (fi_cq_readerr(rail->cq, &error, 0) <= 0) return false;
    *out = (struct tutti_ofi_completion){.op = error.op_context, .error = error.err ? error.err : FI_EIO};
    return true;
}

bool tutti_ofi_rail_read(struct tutti_ofi_rail *rail, struct tutti_ofi_completion *out)
{
    if (rail->next_entry == rail->n_entries) {
        const ssize_t n = fi_cq_read(rail->cq, rail->entries, TUTTI_OFI_BATCH);
        if (n == -FI_EAVAIL) return failed(rail, out);
        if (n <= 0) return false;
        rail->n_entries = (uint32_t)n, rail->next_entry = 0;
    }
    const struct fi_cq_tagged_entry *entry = &rail->entries[rail->next_entry++];
    const bool written = entry->flags & FI_REMOTE_CQ_DATA; /* nobody else sends such data */
    *out = (struct tutti_ofi_completion){
        .op = written ? NULL : entry->op_context, .ticket = written ? entry->data : 0, .bytes = entry->len};
    return true;
}
