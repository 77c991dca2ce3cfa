/* SPDX-License-Identifier: BSD-3-Clause */
/* The provider and its endpoint; memory that must be registered; completions.
 *
 * Nothing of the caller's memory stays registered: where the provider asks for it, it is registered for one payload and
 * given back with it. Only what this transport allocated itself is registered for long. So no registration outlives its
 * memory, and no cache must hear of what others free. */

#include "transport/ofi/state.h"

#include <string.h>
#include <sys/epoll.h>

#define CQ_SIZE 4096
#define CQ_BATCH 16
#define MR_MODE (FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT)

static const char *says(int error)
{
    return tutti_ofi_library()->strerror(error < 0 ? -error : error);
}

/* ---- the provider ---- */

/* What "auto" takes only where there is nothing else: within a host, datagrams made reliable, and the old emulation. */
static bool is_last_choice(const struct fi_info *info)
{
    const char *name = info->fabric_attr->prov_name;
    return strstr(name, "shm") || strstr(name, "ofi_rxd") || strcmp(name, "sockets") == 0;
}

static struct fi_info *hints_make(const struct tutti_ofi_library *lib, const struct tutti_ofi_config *config)
{
    struct fi_info *hints = lib->dupinfo(NULL);
    if (!hints) return NULL;
    hints->caps = FI_TAGGED;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = MR_MODE;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->av_type = FI_AV_UNSPEC;
    if (strcmp(config->provider, "auto") != 0) hints->fabric_attr->prov_name = strdup(config->provider);
    if (config->domain[0]) hints->domain_attr->name = strdup(config->domain); /* freeinfo frees both */
    return hints;
}

static enum tutti_status no_provider(const struct tutti_ofi_library *lib, uint32_t version,
                                     const struct tutti_ofi_config *config)
{
    const struct tutti_ofi_config any = {.provider = "auto", .domain = ""};
    struct fi_info *hints = hints_make(lib, &any), *list = NULL;
    char names[256] = "";
    if (hints) lib->getinfo(version, NULL, NULL, 0, hints, &list);
    for (const struct fi_info *i = list; i; i = i->next)
        if (!strstr(names, i->fabric_attr->prov_name) || !strstr(names, i->domain_attr->name))
            tutti_append(names, sizeof(names), "%s%s on %s", names[0] ? ", " : "", i->fabric_attr->prov_name,
                         i->domain_attr->name);
    lib->freeinfo(list);
    lib->freeinfo(hints);
    return tutti_fail(TUTTI_ERR_UNSUPPORTED,
                      "transport ofi: no provider '%s' with tagged messages, reliable and without connections%s%s; "
                      "there are: %s",
                      config->provider, config->domain[0] ? ", on domain " : "", config->domain,
                      names[0] ? names : "none");
}

static enum tutti_status choose(struct tutti_ofi *ofi, const struct tutti_ofi_config *config)
{
    const struct tutti_ofi_library *lib = tutti_ofi_library();
    if (!lib) return TUTTI_ERR_UNSUPPORTED;
    const uint32_t ours = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), theirs = lib->version();
    const uint32_t version = ours < theirs ? ours : theirs;
    struct fi_info *hints = hints_make(lib, config), *list = NULL;
    if (!hints) return tutti_fail(TUTTI_ERR_MEMORY, "transport ofi: no memory for the hints");
    int rc = -FI_ENODATA; /* where others reach this host, if the provider has such addresses */
    if (config->address[0]) rc = lib->getinfo(version, config->address, NULL, FI_SOURCE, hints, &list);
    if (rc < 0) rc = lib->getinfo(version, NULL, NULL, 0, hints, &list);
    lib->freeinfo(hints);
    if (rc < 0 || !list) return no_provider(lib, version, config);
    const struct fi_info *best = list;
    while (best && is_last_choice(best)) best = best->next;
    ofi->info = lib->dupinfo(best ? best : list);
    lib->freeinfo(list);
    return ofi->info ? TUTTI_OK : tutti_fail(TUTTI_ERR_MEMORY, "transport ofi: no memory for what it chose");
}

/* ---- the endpoint ---- */

#define CALL(what, call)                                                                                               \
    do {                                                                                                               \
        const int rc_ = (int)(call);                                                                                   \
        if (rc_ < 0)                                                                                                   \
            return tutti_fail(TUTTI_ERR_SYSTEM, "transport ofi: %s of provider %s: %s", what,                          \
                              ofi->info->fabric_attr->prov_name, says(rc_));                                           \
    } while (0)

static enum tutti_status open_queue(struct tutti_ofi *ofi)
{
    struct fi_cq_attr attr = {.size = CQ_SIZE, .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_FD};
    ofi->cq_fd = -1;
    if (fi_cq_open(ofi->domain, &attr, &ofi->cq, NULL) == 0) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = ofi};
        if (fi_control(&ofi->cq->fid, FI_GETWAIT, &ofi->cq_fd) == 0 &&
            epoll_ctl(ofi->epoll, EPOLL_CTL_ADD, ofi->cq_fd, &event) == 0)
            return TUTTI_OK;
        ofi->cq_fd = -1;
        return TUTTI_OK;
    }
    attr.wait_obj = FI_WAIT_NONE;
    CALL("fi_cq_open", fi_cq_open(ofi->domain, &attr, &ofi->cq, NULL));
    return TUTTI_OK;
}

static enum tutti_status open_all(struct tutti_ofi *ofi)
{
    struct fi_av_attr av = {.type = FI_AV_TABLE};
    CALL("fi_fabric", tutti_ofi_library()->fabric(ofi->info->fabric_attr, &ofi->fabric, NULL));
    CALL("fi_domain", fi_domain(ofi->fabric, ofi->info, &ofi->domain, NULL));
    TUTTI_TRY(open_queue(ofi));
    if (ofi->info->domain_attr->av_type != FI_AV_UNSPEC) av.type = ofi->info->domain_attr->av_type;
    CALL("fi_av_open", fi_av_open(ofi->domain, &av, &ofi->av, NULL));
    CALL("fi_endpoint", fi_endpoint(ofi->domain, ofi->info, &ofi->ep, NULL));
    CALL("fi_ep_bind", fi_ep_bind(ofi->ep, &ofi->av->fid, 0));
    CALL("fi_ep_bind", fi_ep_bind(ofi->ep, &ofi->cq->fid, FI_TRANSMIT | FI_RECV));
    CALL("fi_enable", fi_enable(ofi->ep));
    ofi->name_bytes = sizeof(ofi->name);
    CALL("fi_getname", fi_getname(&ofi->ep->fid, ofi->name, &ofi->name_bytes));
    return TUTTI_OK;
}

enum tutti_status tutti_ofi_endpoint_open(struct tutti_ofi *ofi, const struct tutti_ofi_config *config)
{
    TUTTI_TRY(choose(ofi, config));
    ofi->local = config->registers || (ofi->info->domain_attr->mr_mode & FI_MR_LOCAL);
    enum tutti_status status = open_all(ofi);
    if (status < 0) tutti_ofi_endpoint_close(ofi);
    if (status == TUTTI_OK)
        tutti_log(TUTTI_LOG_DEBUG, "transport ofi: provider %s, domain %s%s%s", ofi->info->fabric_attr->prov_name,
                  ofi->info->domain_attr->name, ofi->local ? ", memory is registered" : "",
                  ofi->cq_fd < 0 ? ", no descriptor to sleep on" : "");
    return status;
}

void tutti_ofi_endpoint_close(struct tutti_ofi *ofi)
{
    if (ofi->ep) fi_close(&ofi->ep->fid);
    if (ofi->cq) fi_close(&ofi->cq->fid);
    if (ofi->av) fi_close(&ofi->av->fid);
    if (ofi->domain) fi_close(&ofi->domain->fid);
    if (ofi->fabric) fi_close(&ofi->fabric->fid);
    if (ofi->info) tutti_ofi_library()->freeinfo(ofi->info);
    ofi->ep = NULL, ofi->cq = NULL, ofi->av = NULL, ofi->domain = NULL, ofi->fabric = NULL, ofi->info = NULL;
}

void tutti_ofi_break(struct tutti_ofi *ofi, const char *why)
{
    if (!ofi->ep) return;
    if (why) tutti_log(TUTTI_LOG_WARN, "transport ofi: member %u closes its endpoint: %s", ofi->base.me, why);
    fi_close(&ofi->ep->fid);
    ofi->ep = NULL;
    for (struct tutti_ofi_peer *peer = ofi->peers; peer; peer = peer->next) {
        if (peer == ofi->self) continue;
        tutti_ofi_peer_end(ofi, peer, TUTTI_ERR_PEER_DEAD);
        for (uint32_t i = 0; i < TUTTI_OFI_LARGE; i++) {
            if (peer->out[i].stage == TUTTI_OFI_FLIES) tutti_ofi_large_done(ofi, &peer->out[i], TUTTI_ERR_PEER_DEAD);
            if (peer->in[i].stage == TUTTI_OFI_FLIES) tutti_ofi_large_done(ofi, &peer->in[i], TUTTI_ERR_PEER_DEAD);
        }
    }
    ofi->n_flying = 0;
}

/* ---- memory ---- */

enum tutti_status tutti_ofi_register(struct tutti_ofi *ofi, void *base, size_t bytes, struct fid_mr **mr, void **desc)
{
    *mr = NULL, *desc = NULL;
    if (!ofi->local || bytes == 0) return TUTTI_OK;
    int rc = fi_mr_reg(ofi->domain, base, bytes, FI_SEND | FI_RECV, 0, ofi->next_key++, 0, mr, NULL);
    if (rc == 0 && (ofi->info->domain_attr->mr_mode & FI_MR_ENDPOINT)) {
        rc = fi_mr_bind(*mr, &ofi->ep->fid, 0);
        if (rc == 0) rc = fi_mr_enable(*mr);
        if (rc < 0) fi_close(&(*mr)->fid), *mr = NULL;
    }
    if (rc == -FI_EAGAIN) return TUTTI_AGAIN;
    if (rc < 0)
        return tutti_fail(TUTTI_ERR_SYSTEM, "transport ofi: %zu bytes can not be registered: %s", bytes, says(rc));
    *desc = fi_mr_desc(*mr);
    return TUTTI_OK;
}

/* ---- completions ---- */

static void completed(struct tutti_ofi *ofi, const struct fi_cq_tagged_entry *entry)
{
    struct tutti_ofi_op *op = entry->op_context;
    struct tutti_ofi_large *large = (struct tutti_ofi_large *)(void *)op;
    if (!op) return;
    switch (op->kind) {
    case TUTTI_OFI_RECEIVE:
        tutti_ofi_frame_came(ofi, (struct tutti_ofi_rx *)(void *)op, entry->len);
        break;
    case TUTTI_OFI_FRAME:
    case TUTTI_OFI_CONTROL:
        tutti_ofi_frame_sent(ofi, (struct tutti_ofi_tx *)(void *)op);
        break;
    case TUTTI_OFI_LARGE_OUT:
        tutti_ofi_large_done(ofi, large, TUTTI_OK);
        break;
    case TUTTI_OFI_LARGE_IN:
        tutti_ofi_large_done(ofi, large, entry->len == large->bytes ? TUTTI_OK : TUTTI_ERR_PROTOCOL);
        break;
    }
}

static void failed(struct tutti_ofi *ofi)
{
    struct fi_cq_err_entry error = {.op_context = NULL};
    if (fi_cq_readerr(ofi->cq, &error, 0) < 0 || !error.op_context) return;
    struct tutti_ofi_op *op = error.op_context;
    if (error.err != FI_ECANCELED)
        tutti_log(TUTTI_LOG_DEBUG, "transport ofi: with member %u: %s", op->peer ? op->peer->member : ofi->base.me,
                  says(error.err));
    switch (op->kind) {
    case TUTTI_OFI_RECEIVE:
        tutti_ofi_post(ofi, (struct tutti_ofi_rx *)(void *)op);
        return;
    case TUTTI_OFI_FRAME:
    case TUTTI_OFI_CONTROL:
        tutti_ofi_frame_sent(ofi, (struct tutti_ofi_tx *)(void *)op);
        break;
    case TUTTI_OFI_LARGE_OUT:
    case TUTTI_OFI_LARGE_IN:
        if (error.err == FI_ECANCELED && tutti_ofi_large_again(ofi, (struct tutti_ofi_large *)(void *)op)) return;
        tutti_ofi_large_done(ofi, (struct tutti_ofi_large *)(void *)op, TUTTI_ERR_PEER_DEAD);
        if (error.err == FI_ECANCELED) return; /* we asked for it */
        break;
    }
    tutti_ofi_peer_ends(ofi, op->peer, TUTTI_ERR_PEER_DEAD);
}

static void submit_waiting(struct tutti_ofi *ofi)
{
    ofi->waits = false;
    struct tutti_ofi_rx *rx = ofi->unposted;
    ofi->unposted = NULL;
    while (rx) {
        struct tutti_ofi_rx *next = rx->next;
        tutti_ofi_post(ofi, rx);
        rx = next;
    }
    for (struct tutti_ofi_peer *peer = ofi->peers; peer; peer = peer->next) tutti_ofi_frames_submit(ofi, peer);
}

void tutti_ofi_progress(struct tutti_ofi *ofi)
{
    struct fi_cq_tagged_entry entries[CQ_BATCH];
    ssize_t n;
    if (!ofi->ep) return;
    do {
        n = fi_cq_read(ofi->cq, entries, CQ_BATCH);
        for (ssize_t i = 0; i < n; i++) completed(ofi, &entries[i]);
        if (n == -FI_EAVAIL) failed(ofi);
    } while ((n == CQ_BATCH || n == -FI_EAVAIL) && ofi->ep);
    if (ofi->waits && ofi->ep) submit_waiting(ofi);
}
