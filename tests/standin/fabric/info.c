/* SPDX-License-Identifier: BSD-3-Clause */
/* What the stand-in for libfabric says that there is. */
#include "fabric_standin.h"

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <string.h>

#define CAPS (FI_TAGGED | FI_RMA | FI_HMEM | FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)
#define MR_MODE (FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY)

API void fi_freeinfo(struct fi_info *info)
{
    for (struct fi_info *next; info; info = next) {
        next = info->next;
        if (info->fabric_attr) free(info->fabric_attr->prov_name), free(info->fabric_attr->name);
        if (info->domain_attr) free(info->domain_attr->name);
        free(info->tx_attr), free(info->rx_attr), free(info->ep_attr), free(info->domain_attr), free(info->fabric_attr);
        free(info);
    }
}

static char *copy(const char *text)
{
    return text ? strdup(text) : NULL;
}

API struct fi_info *fi_dupinfo(const struct fi_info *from)
{
    struct fi_info *info = calloc(1, sizeof(*info));
    if (!info) return NULL;
    if (from) *info = *from;
#define PART(member)                                                                                                   \
    if (!(info->member = calloc(1, sizeof(*info->member)))) abort();                                                   \
    if (from && from->member) *info->member = *from->member
    PART(tx_attr);
    PART(rx_attr);
    PART(ep_attr);
    PART(domain_attr);
    PART(fabric_attr);
#undef PART
    info->next = NULL;
    info->domain_attr->name = copy(info->domain_attr->name);
    info->fabric_attr->name = copy(info->fabric_attr->name);
    info->fabric_attr->prov_name = copy(info->fabric_attr->prov_name);
    return info;
}

API int fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints,
                   struct fi_info **out)
{
    const char *provider = hints->fabric_attr->prov_name, *domain = hints->domain_attr->name;
    (void)version, (void)node, (void)service, (void)flags;
    if ((hints->caps & ~CAPS) || (provider && strcmp(provider, "pinned") != 0)) return -FI_ENODATA;
    if ((domain && strncmp(domain, "card", 4) != 0) || (hints->domain_attr->mr_mode & MR_MODE) != MR_MODE)
        return -FI_ENODATA;
    if (getenv("FABRIC_STANDIN_ORDERS") && hints->tx_attr->op_flags & FI_DELIVERY_COMPLETE) return -FI_ENODATA;
    struct fi_info *info = fi_dupinfo(NULL);
    if (!info) return -FI_ENOMEM;
    info->caps = hints->caps ? hints->caps : CAPS;
    info->tx_attr->iov_limit = info->rx_attr->iov_limit = 4, info->tx_attr->rma_iov_limit = 1;
    info->tx_attr->msg_order = info->rx_attr->msg_order = hints->tx_attr->msg_order;
    info->tx_attr->op_flags = hints->tx_attr->op_flags;
    info->ep_attr->type = FI_EP_RDM, info->ep_attr->max_msg_size = PINS_STAGING;
    info->domain_attr->av_type = FI_AV_TABLE;
    info->domain_attr->mr_mode = MR_MODE | (hints->caps & FI_HMEM ? (int)FI_MR_HMEM : 0);
    info->domain_attr->mr_key_size = info->domain_attr->cq_data_size = 8;
    info->domain_attr->name = strdup(domain ? domain : "card0");
    info->fabric_attr->name = strdup("standin"), info->fabric_attr->prov_name = strdup("pinned");
    *out = info;
    return 0;
}

API const char *fi_strerror(int error)
{
    return error == FI_EACCES   ? "access denied"
           : error == FI_EINVAL ? "memory is not registered for this"
                                : strerror(error);
}

API uint32_t fi_version(void)
{
    return FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);
}
