/* SPDX-License-Identifier: BSD-3-Clause */
/* The objects of libfabric that transport ofi uses, and the card between them. All of it has one lock. */
#include "fabric_standin.h"

#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define N_ENTRIES 8192
#define N_PARTS 8
#define LATER 3 /* looks at the queue before a write or read happens */

struct region {
    struct fid_mr mr; /* first */
    struct region *next;
    char *base;
    size_t bytes;
    uint64_t access;
    int pin, users; /* users 0: kept by its address */
    bool device;
};
struct queue {
    struct fid_cq cq; /* first */
    struct endpoint *ep;
    struct fi_cq_tagged_entry entries[N_ENTRIES];
    int errors[N_ENTRIES]; /* 0, or FI_E... */
    size_t n_in, n_out;
    int event;
};
struct parts {
    struct iovec at[N_PARTS];
    struct region *regions[N_PARTS];
    size_t n, bytes;
};
struct posted { /* a receive, or a write or read to come */
    struct posted *next;
    struct parts parts;
    void *context;
    uint64_t tag, address, key, flags, data;
    fi_addr_t peer;
    int looks;
    bool read;
};
struct endpoint {
    struct fid_ep ep; /* first */
    struct endpoint *next;
    uint64_t name;
    struct queue *queue;
    struct posted *receives, **receives_end, *later, **later_end;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct endpoint *endpoints;
static struct region *regions;
static struct fabric_standin_counts counts;
static uint64_t last_name, last_key;

static int nothing_to_close(struct fid *fid)
{
    free(fid);
    return 0;
}

/* ---- queues ---- */

static void push(struct queue *queue, const struct fi_cq_tagged_entry *entry, int error)
{
    const uint64_t one = 1;
    if (queue->n_in - queue->n_out == N_ENTRIES) abort(); /* nobody asks for so much */
    queue->entries[queue->n_in % N_ENTRIES] = *entry;
    queue->errors[queue->n_in++ % N_ENTRIES] = error;
    if (write(queue->event, &one, sizeof(one)) < 0) abort();
}

static void ended(struct endpoint *ep, void *context, size_t bytes, uint64_t tag, int error)
{
    push(ep->queue, &(struct fi_cq_tagged_entry){.op_context = context, .len = bytes, .tag = tag}, error);
}

static void carry_out_later(struct endpoint *ep);

static ssize_t queue_read(struct fid_cq *cq, void *buffer, size_t n)
{
    struct queue *queue = (struct queue *)(void *)cq;
    size_t i = 0;
    pthread_mutex_lock(&lock);
    if (queue->ep) carry_out_later(queue->ep);
    for (; i < n && queue->n_out != queue->n_in && !queue->errors[queue->n_out % N_ENTRIES]; i++)
        ((struct fi_cq_tagged_entry *)buffer)[i] = queue->entries[queue->n_out++ % N_ENTRIES];
    const bool failed = i == 0 && queue->n_out != queue->n_in;
    pthread_mutex_unlock(&lock);
    return i ? (ssize_t)i : failed ? -FI_EAVAIL : -FI_EAGAIN;
}

static ssize_t queue_readerr(struct fid_cq *cq, struct fi_cq_err_entry *out, uint64_t flags)
{
    struct queue *queue = (struct queue *)(void *)cq;
    (void)flags;
    pthread_mutex_lock(&lock);
    const bool there = queue->n_out != queue->n_in && queue->errors[queue->n_out % N_ENTRIES];
    if (there) {
        out->op_context = queue->entries[queue->n_out % N_ENTRIES].op_context;
        out->err = queue->errors[queue->n_out++ % N_ENTRIES];
    }
    pthread_mutex_unlock(&lock);
    return there ? 1 : -FI_EAGAIN;
}

static int queue_control(struct fid *fid, int command, void *arg)
{
    if (command != FI_GETWAIT) return -FI_ENOSYS;
    *(int *)arg = ((struct queue *)(void *)fid)->event;
    return 0;
}

static int queue_close(struct fid *fid)
{
    struct queue *queue = (struct queue *)(void *)fid;
    close(queue->event);
    free(queue);
    return 0;
}

static int queue_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **out, void *context)
{
    static struct fi_ops fid_ops = {.size = sizeof(fid_ops), .close = queue_close, .control = queue_control};
    static struct fi_ops_cq ops = {.size = sizeof(ops), .read = queue_read, .readerr = queue_readerr};
    struct queue *queue = calloc(1, sizeof(*queue));
    (void)domain, (void)attr, (void)context;
    if (!queue) return -FI_ENOMEM;
    queue->cq = (struct fid_cq){.fid = {.fclass = FI_CLASS_CQ, .ops = &fid_ops}, .ops = &ops};
    queue->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    *out = &queue->cq;
    return 0;
}

static int try_wait(struct fid_fabric *fabric, struct fid **fids, int n)
{
    bool quiet = true;
    uint64_t word;
    (void)fabric;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n; i++) {
        struct queue *queue = (struct queue *)(void *)fids[i];
        quiet &= queue->n_in == queue->n_out && !(queue->ep && queue->ep->later);
        if (read(queue->event, &word, sizeof(word)) < 0) continue;
    }
    pthread_mutex_unlock(&lock);
    return quiet ? 0 : -FI_EAGAIN;
}

/* ---- memory ---- */

static int region_close(struct fid *fid)
{
    struct region *region = (struct region *)(void *)fid, **at = &regions;
    const char *stale = getenv("FABRIC_STANDIN_STALE");
    pthread_mutex_lock(&lock);
    counts.open--;
    if (--region->users == 0 && !(stale && strtoull(stale, NULL, 10) == region->bytes)) {
        while (*at != region) at = &(*at)->next;
        *at = region->next;
        pins_remove(region->pin);
        free(region);
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

static struct region *region_make(char *base, size_t bytes, uint64_t access, bool device)
{
    static struct fi_ops ops = {.size = sizeof(ops), .close = region_close};
    struct region *region = regions;
    while (region && (region->users || region->base != base || region->bytes != bytes)) region = region->next;
    if (!region) {
        region = calloc(1, sizeof(*region));
        if (!region) return NULL;
        region->pin = pins_add(base, bytes);
        if (region->pin == PINS_NONE) {
            free(region);
            return NULL;
        }
        region->mr =
            (struct fid_mr){.fid = {.fclass = FI_CLASS_MR, .ops = &ops}, .mem_desc = region, .key = ++last_key};
        region->base = base, region->bytes = bytes, region->device = device;
        region->next = regions, regions = region;
    }
    region->access = access, region->users = 1;
    counts.registered++, counts.open++;
    if (device) counts.devices++;
    return region;
}

static int memory_register_attr(struct fid *fid, const struct fi_mr_attr *attr, uint64_t flags, struct fid_mr **out)
{
    const struct iovec *what = attr->mr_iov;
    (void)fid, (void)flags;
    if (attr->iov_count != 1 || what->iov_len == 0) return -FI_EINVAL;
    pthread_mutex_lock(&lock);
    struct region *region = region_make(what->iov_base, what->iov_len, attr->access, attr->iface != FI_HMEM_SYSTEM);
    pthread_mutex_unlock(&lock);
    *out = region ? &region->mr : NULL;
    return region ? 0 : -FI_ENOMEM;
}

static int memory_register(struct fid *fid, const void *base, size_t bytes, uint64_t access, uint64_t offset,
                           uint64_t key, uint64_t flags, struct fid_mr **out, void *context)
{
    const struct iovec what = {(void *)(uintptr_t)base, bytes};
    const struct fi_mr_attr attr = {.mr_iov = &what, .iov_count = 1, .access = access};
    (void)offset, (void)key, (void)context;
    return memory_register_attr(fid, &attr, flags, out);
}

/* ---- the card ---- */

static bool holds(const struct region *region, const void *address, size_t bytes, uint64_t access)
{
    const uintptr_t at = (uintptr_t)address, base = (uintptr_t)region->base;
    return region->users && (region->access & access) && at >= base && at - base <= region->bytes &&
           bytes <= region->bytes - (at - base);
}

/* False: some of it is not registered, or not for this. */
static bool parts_take(const struct iovec *iov, void **desc, size_t n, uint64_t access, struct parts *out)
{
    *out = (struct parts){.n = n};
    for (size_t i = 0; i < n && i < N_PARTS; i++) {
        struct region *region = regions;
        while (region && (!desc || region != desc[i])) region = region->next; /* descriptors are not believed */
        if (!region || !holds(region, iov[i].iov_base, iov[i].iov_len, access)) {
            counts.refused++;
            return false;
        }
        out->at[i] = iov[i], out->regions[i] = region, out->bytes += iov[i].iov_len;
    }
    return n <= N_PARTS;
}

static bool move(const struct parts *parts, size_t bytes, bool out)
{
    size_t done = 0;
    for (size_t i = 0; i < parts->n && done < bytes; i++) {
        const size_t n = bytes - done < parts->at[i].iov_len ? bytes - done : parts->at[i].iov_len;
        struct region *region = parts->regions[i];
        if (!(out ? pins_out(region->pin, parts->at[i].iov_base, n, done)
                  : pins_in(region->pin, parts->at[i].iov_base, n, done)))
            return false;
        if (region->device) counts.device_bytes += n;
        done += n;
    }
    return true;
}

static struct endpoint *find(uint64_t name)
{
    struct endpoint *ep = endpoints;
    while (ep && ep->name != name) ep = ep->next;
    return ep;
}

static ssize_t send_parts(struct endpoint *ep, const struct fi_msg_tagged *message)
{
    struct endpoint *to = find(message->addr);
    struct parts parts;
    if (!to) {
        ended(ep, message->context, 0, 0, FI_EHOSTUNREACH);
        return 0;
    }
    struct posted **at = &to->receives, *into;
    while (*at && (*at)->tag != message->tag) at = &(*at)->next;
    if (!(into = *at)) return -FI_EAGAIN;
    if (!parts_take(message->msg_iov, message->desc, message->iov_count, FI_SEND, &parts)) return -FI_EINVAL;
    *at = into->next;
    if (!*at) to->receives_end = at;
    const bool fits = parts.bytes <= into->parts.bytes;
    const bool there = fits && move(&parts, parts.bytes, true) && move(&into->parts, parts.bytes, false);
    ended(to, into->context, parts.bytes, message->tag, there ? 0 : fits ? FI_EFAULT : FI_ETRUNC);
    ended(ep, message->context, parts.bytes, message->tag, there ? 0 : FI_EFAULT);
    counts.sends += there;
    free(into);
    return 0;
}

static ssize_t post(struct posted ***end, const struct posted *what)
{
    struct posted *made = malloc(sizeof(*made));
    if (!made) return -FI_ENOMEM;
    *made = *what, made->next = NULL;
    **end = made, *end = &made->next;
    return 0;
}

static int write_or_read(const struct endpoint *ep, const struct posted *what)
{
    const struct endpoint *to = find(what->peer);
    struct region *region = regions;
    if (!to) return FI_EHOSTUNREACH;
    while (region && fi_mr_key(&region->mr) != what->key) region = region->next;
    void *address = (void *)(uintptr_t)what->address;
    const size_t bytes = what->parts.bytes;
    if (!region || !holds(region, address, bytes, what->read ? FI_REMOTE_READ : FI_REMOTE_WRITE)) {
        counts.refused++;
        return FI_EACCES;
    }
    const struct parts there = {{{address, bytes}}, {region}, 1, bytes};
    (void)ep;
    if (!move(what->read ? &there : &what->parts, bytes, true)) return FI_EFAULT;
    if (!move(what->read ? &what->parts : &there, bytes, false)) return FI_EFAULT;
    *(what->read ? &counts.bytes_read : &counts.bytes_written) += bytes;
    *(what->read ? &counts.reads : &counts.writes) += 1;
    if (what->flags & FI_REMOTE_CQ_DATA)
        push(to->queue, &(struct fi_cq_tagged_entry){.flags = FI_REMOTE_CQ_DATA | FI_RMA, .data = what->data}, 0);
    return 0;
}

static void carry_out_later(struct endpoint *ep)
{
    for (struct posted *what; (what = ep->later) && ++what->looks > LATER;) {
        ep->later = what->next;
        if (!ep->later) ep->later_end = &ep->later;
        ended(ep, what->context, what->parts.bytes, 0, write_or_read(ep, what));
        free(what);
    }
}

/* ---- calls of endpoints ---- */

static ssize_t ep_send_message(struct fid_ep *fid, const struct fi_msg_tagged *message, uint64_t flags)
{
    (void)flags;
    pthread_mutex_lock(&lock);
    const ssize_t rc = send_parts((struct endpoint *)(void *)fid, message);
    pthread_mutex_unlock(&lock);
    return rc;
}

static ssize_t ep_receive_message(struct fid_ep *fid, const struct fi_msg_tagged *message, uint64_t flags)
{
    struct endpoint *ep = (struct endpoint *)(void *)fid;
    struct posted what = {.context = message->context, .tag = message->tag};
    (void)flags;
    pthread_mutex_lock(&lock);
    ssize_t rc = -FI_EINVAL;
    if (parts_take(message->msg_iov, message->desc, message->iov_count, FI_RECV, &what.parts))
        rc = post(&ep->receives_end, &what);
    pthread_mutex_unlock(&lock);
    return rc;
}

static ssize_t ep_send(struct fid_ep *ep, const void *buffer, size_t bytes, void *desc, fi_addr_t to, uint64_t tag,
                       void *context)
{
    const struct iovec iov = {(void *)(uintptr_t)buffer, bytes};
    return ep_send_message(ep, &(struct fi_msg_tagged){&iov, &desc, 1, to, tag, 0, context, 0}, 0);
}

static ssize_t ep_receive(struct fid_ep *ep, void *buffer, size_t bytes, void *desc, fi_addr_t from, uint64_t tag,
                          uint64_t ignore, void *context)
{
    const struct iovec iov = {buffer, bytes};
    return ep_receive_message(ep, &(struct fi_msg_tagged){&iov, &desc, 1, from, tag, ignore, context, 0}, 0);
}

static ssize_t access_message(struct fid_ep *fid, const struct fi_msg_rma *message, uint64_t flags, bool read)
{
    struct endpoint *ep = (struct endpoint *)(void *)fid;
    struct posted what = {.context = message->context,
                          .peer = message->addr,
                          .flags = flags,
                          .data = message->data,
                          .address = message->rma_iov->addr,
                          .key = message->rma_iov->key,
                          .read = read};
    pthread_mutex_lock(&lock);
    ssize_t rc = -FI_EINVAL;
    if (parts_take(message->msg_iov, message->desc, message->iov_count, read ? FI_READ : FI_WRITE, &what.parts))
        rc = post(&ep->later_end, &what);
    pthread_mutex_unlock(&lock);
    return rc;
}

static ssize_t ep_write(struct fid_ep *ep, const struct fi_msg_rma *message, uint64_t flags)
{
    return access_message(ep, message, flags, false);
}

static ssize_t ep_read(struct fid_ep *ep, const struct fi_msg_rma *message, uint64_t flags)
{
    return access_message(ep, message, flags, true);
}

static ssize_t ep_cancel(fid_t fid, void *context)
{
    struct endpoint *ep = (struct endpoint *)(void *)fid;
    pthread_mutex_lock(&lock);
    struct posted **at = &ep->receives, *gone;
    while (*at && (*at)->context != context) at = &(*at)->next;
    if ((gone = *at)) {
        *at = gone->next;
        if (!*at) ep->receives_end = at;
        ended(ep, context, 0, gone->tag, FI_ECANCELED);
        free(gone);
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

static int ep_bind(struct fid *fid, struct fid *what, uint64_t flags)
{
    struct endpoint *ep = (struct endpoint *)(void *)fid;
    (void)flags;
    if (what->fclass == FI_CLASS_CQ) ep->queue = (struct queue *)(void *)what, ep->queue->ep = ep;
    return 0;
}

static int ep_control(struct fid *fid, int command, void *arg)
{
    (void)fid, (void)arg;
    return command == FI_ENABLE ? 0 : -FI_ENOSYS;
}

static int ep_name(fid_t fid, void *name, size_t *bytes)
{
    const struct endpoint *ep = (const struct endpoint *)(void *)fid;
    memcpy(name, &ep->name, sizeof(ep->name));
    *bytes = sizeof(ep->name);
    return 0;
}

static void drop(struct posted *list)
{
    for (struct posted *next; list; list = next) next = list->next, free(list);
}

static int ep_close(struct fid *fid)
{
    struct endpoint *ep = (struct endpoint *)(void *)fid, **at = &endpoints;
    pthread_mutex_lock(&lock);
    while (*at != ep) at = &(*at)->next;
    *at = ep->next;
    ep->queue->ep = NULL;
    drop(ep->receives), drop(ep->later);
    pthread_mutex_unlock(&lock);
    free(ep);
    return 0;
}

static int ep_open(struct fid_domain *domain, struct fi_info *info, struct fid_ep **out, void *context)
{
    static struct fi_ops fid_ops = {.size = sizeof(fid_ops), .close = ep_close, .bind = ep_bind, .control = ep_control};
    static struct fi_ops_ep ops = {.size = sizeof(ops), .cancel = ep_cancel};
    static struct fi_ops_cm cm = {.size = sizeof(cm), .getname = ep_name};
    static struct fi_ops_rma rma = {.size = sizeof(rma), .writemsg = ep_write, .readmsg = ep_read};
    static struct fi_ops_tagged tagged = {.size = sizeof(tagged),
                                          .recv = ep_receive,
                                          .recvmsg = ep_receive_message,
                                          .send = ep_send,
                                          .sendmsg = ep_send_message};
    struct endpoint *ep = calloc(1, sizeof(*ep));
    (void)domain, (void)info, (void)context;
    if (!ep) return -FI_ENOMEM;
    ep->ep = (struct fid_ep){
        .fid = {.fclass = FI_CLASS_EP, .ops = &fid_ops}, .ops = &ops, .cm = &cm, .rma = &rma, .tagged = &tagged};
    ep->receives_end = &ep->receives, ep->later_end = &ep->later;
    pthread_mutex_lock(&lock);
    ep->name = ++last_name;
    ep->next = endpoints, endpoints = ep;
    pthread_mutex_unlock(&lock);
    *out = &ep->ep;
    return 0;
}

/* ---- addresses, domain, fabric ---- */

static int av_insert(struct fid_av *av, const void *names, size_t n, fi_addr_t *out, uint64_t flags, void *context)
{
    (void)av, (void)flags, (void)context;
    memcpy(out, names, n * sizeof(*out));
    return (int)n;
}

static int av_open(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **out, void *context)
{
    static struct fi_ops fid_ops = {.size = sizeof(fid_ops), .close = nothing_to_close};
    static struct fi_ops_av ops = {.size = sizeof(ops), .insert = av_insert};
    (void)domain, (void)attr, (void)context;
    if (!(*out = calloc(1, sizeof(**out)))) return -FI_ENOMEM;
    **out = (struct fid_av){.fid = {.fclass = FI_CLASS_AV, .ops = &fid_ops}, .ops = &ops};
    return 0;
}

static int domain_open(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **out, void *context)
{
    static struct fi_ops fid_ops = {.size = sizeof(fid_ops), .close = nothing_to_close};
    static struct fi_ops_domain ops = {
        .size = sizeof(ops), .av_open = av_open, .cq_open = queue_open, .endpoint = ep_open};
    static struct fi_ops_mr mr = {.size = sizeof(mr), .reg = memory_register, .regattr = memory_register_attr};
    (void)fabric, (void)info, (void)context;
    if (!(*out = calloc(1, sizeof(**out)))) return -FI_ENOMEM;
    **out = (struct fid_domain){.fid = {.fclass = FI_CLASS_DOMAIN, .ops = &fid_ops}, .ops = &ops, .mr = &mr};
    return 0;
}

API int fi_fabric(struct fi_fabric_attr *attr, struct fid_fabric **out, void *context)
{
    static struct fi_ops fid_ops = {.size = sizeof(fid_ops), .close = nothing_to_close};
    static struct fi_ops_fabric ops = {.size = sizeof(ops), .domain = domain_open, .trywait = try_wait};
    (void)attr, (void)context;
    if (!(*out = calloc(1, sizeof(**out)))) return -FI_ENOMEM;
    **out = (struct fid_fabric){.fid = {.fclass = FI_CLASS_FABRIC, .ops = &fid_ops}, .ops = &ops};
    return 0;
}

API void fabric_standin_counts(struct fabric_standin_counts *out)
{
    pthread_mutex_lock(&lock);
    *out = counts;
    out->real = pins_are_real();
    pthread_mutex_unlock(&lock);
}
