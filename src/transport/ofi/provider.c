/* SPDX-License-Identifier: BSD-3-Clause */

/* libfabric: its library, opened at run time, and the provider that fits. */

#include "base/symbols.h"

#include "transport/ofi/state.h"

#include <dlfcn.h>
#include <string.h>
#include <strings.h>

/* ---- the library ---- */

static struct tutti_ofi_library library;
static bool there;
static char why[200];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    void *handle = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!handle) handle = dlopen("libfabric.so.2", RTLD_NOW | RTLD_LOCAL);
#define ROW(member)                                                                                                    \
    {                                                                                                                  \
        "fi_" #member, offsetof(struct tutti_ofi_library, member), true                                                \
    }
    static const struct tutti_symbol calls[] = {ROW(getinfo), ROW(freeinfo), ROW(dupinfo),
                                                ROW(fabric),  ROW(strerror), ROW(version)};
#undef ROW
    if (!handle) {
        tutti_append(why, sizeof(why), "%s (apt-get install libfabric1)", dlerror());
        return;
    }
    const char *missing = tutti_symbols_find(handle, calls, TUTTI_ARRAY_LEN(calls), &library);
    if (missing) {
        tutti_append(why, sizeof(why), "libfabric has no %s", missing);
        return;
    }
    there = true;
}

const struct tutti_ofi_library *tutti_ofi_library(void)
{
    pthread_once(&once, load);
    if (there) return &library;
    tutti_fail(TUTTI_ERR_UNSUPPORTED, "transport ofi: %s", why);
    return NULL;
}

const char *tutti_ofi_says(ssize_t error)
{
    return library.strerror((int)(error < 0 ? -error : error));
}

const char *tutti_ofi_lacks(void)
{
    return tutti_ofi_library() ? NULL : "library";
}

/* ---- providers ---- */

#define MR_MODE (FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT)
/* A queue for so many operations: some providers allocate for each one. More wait their turn. */
#define QUEUE_SIZE 256

/* Within a host alone, and a send to a peer that has just left it ends the process. */
static bool is_refused(const char *name)
{
    return strstr(name, "shm") || strstr(name, "sm2");
}

/* What "auto" takes only where there is nothing else: datagrams made reliable, and the old emulation. */
static bool is_last_choice(const char *name)
{
    return strstr(name, "ofi_rxd") || strcmp(name, "sockets") == 0;
}

static uint32_t version(const struct tutti_ofi_library *lib)
{
    const uint32_t ours = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), theirs = lib->version();
    return ours < theirs ? ours : theirs;
}

/* The list for these capabilities and this order of operations. NULL: there is none. */
static struct fi_info *ask(const char *provider, const char *domain, const char *address, uint64_t caps, uint64_t order)
{
    const struct tutti_ofi_library *lib = tutti_ofi_library();
    struct fi_info *hints = lib ? lib->dupinfo(NULL) : NULL, *list = NULL;
    if (!hints) return NULL;
    hints->caps = caps;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = MR_MODE | (caps & FI_HMEM ? (int)FI_MR_HMEM : 0);
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->av_type = FI_AV_UNSPEC;
    hints->tx_attr->msg_order = hints->rx_attr->msg_order = order;
    hints->tx_attr->size = hints->rx_attr->size = QUEUE_SIZE;
    if (strcmp(provider, "auto") != 0) hints->fabric_attr->prov_name = strdup(provider); /* freeinfo frees both */
    if (domain[0]) hints->domain_attr->name = strdup(domain);
    int rc = -FI_ENODATA; /* where others reach this host, if the provider has such addresses */
    if (address[0]) rc = lib->getinfo(version(lib), address, NULL, FI_SOURCE, hints, &list);
    if (rc < 0) rc = lib->getinfo(version(lib), NULL, NULL, 0, hints, &list);
    lib->freeinfo(hints);
    return rc < 0 ? NULL : list;
}

/* Whether a list, up to `end`, has the provider and domain of this info. */
static bool has(const struct fi_info *list, const struct fi_info *end, const struct fi_info *info)
{
    for (; list && list != end; list = list->next)
        if (strcmp(list->fabric_attr->prov_name, info->fabric_attr->prov_name) == 0 &&
            strcmp(list->domain_attr->name, info->domain_attr->name) == 0)
            return true;
    return false;
}

size_t tutti_ofi_providers(char *out, size_t bytes)
{
    const struct tutti_ofi_library *lib = tutti_ofi_library();
    struct fi_info *list = ask("auto", "", "", FI_TAGGED, 0);
    struct fi_info *rma = ask("auto", "", "", FI_TAGGED | FI_RMA, 0);
    struct fi_info *devices = ask("auto", "", "", FI_TAGGED | FI_HMEM, 0);
    size_t n = 0;
    out[0] = '\0';
    for (const struct fi_info *i = list; i; i = i->next) {
        if (has(list, i, i) || is_refused(i->fabric_attr->prov_name)) continue;
        tutti_append(out, bytes, "%s%s on %s%s%s", n++ ? ", " : "", i->fabric_attr->prov_name, i->domain_attr->name,
                     has(rma, NULL, i) ? "" : " without RMA", has(devices, NULL, i) ? " with device memory" : "");
    }
    if (lib) lib->freeinfo(list), lib->freeinfo(rma), lib->freeinfo(devices);
    return n;
}

static enum tutti_status no_provider(const struct tutti_ofi_config *config, const char *domain)
{
    char names[256];
    tutti_ofi_providers(names, sizeof(names));
    if (is_refused(config->provider))
        return tutti_fail(
            TUTTI_ERR_UNSUPPORTED,
            "transport ofi: provider '%s' carries within a host alone, where transport shm does, and ends "
            "a process whose peer leaves; there are: %s",
            config->provider, names[0] ? names : "none");
    return tutti_fail(TUTTI_ERR_UNSUPPORTED,
                      "transport ofi: no provider '%s' with tagged messages, reliable and without connections%s%s%s; "
                      "there are: %s",
                      config->provider, config->writes > 0 ? ", with RMA" : "", domain[0] ? ", on domain " : "", domain,
                      names[0] ? names : "none");
}

/* The first one; of a last choice, where there is no other. NULL: none. Providers of Ethernet list all interfaces,
 * whatever domain was asked for. */
static const struct fi_info *best_of(const struct fi_info *list, const char *domain)
{
    const struct fi_info *last = NULL;
    for (; list; list = list->next) {
        const char *name = list->fabric_attr->prov_name;
        if (is_refused(name) || (domain[0] && strcasecmp(list->domain_attr->name, domain) != 0)) continue;
        if (!is_last_choice(name)) return list;
        if (!last) last = list;
    }
    return last;
}

bool tutti_ofi_delivers(const struct fi_info *info)
{
    const struct tutti_ofi_library *lib = tutti_ofi_library();
    struct fi_info *hints = lib->dupinfo(info), *list = NULL;
    if (!hints) return false;
    hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
    hints->handle = NULL;
    const bool does = lib->getinfo(version(lib), NULL, NULL, 0, hints, &list) == 0;
    if (list) lib->freeinfo(list);
    lib->freeinfo(hints);
    return does;
}

/* The same provider and domain with more capabilities and an order; NULL: it can not. */
static struct fi_info *again(const struct tutti_ofi_config *config, const struct fi_info *info, uint64_t caps,
                             uint64_t order)
{
    const uint64_t least = FI_TAGGED | (info->caps & FI_RMA ? FI_RMA : 0);
    const char *address = config->domain[0] ? "" : config->address;
    struct fi_info *list = ask(info->fabric_attr->prov_name, info->domain_attr->name, address, least | caps, order);
    const struct fi_info *best = best_of(list, info->domain_attr->name);
    const bool same = best && strcmp(best->fabric_attr->prov_name, info->fabric_attr->prov_name) == 0;
    struct fi_info *found = same ? tutti_ofi_library()->dupinfo(best) : NULL;
    if (list) tutti_ofi_library()->freeinfo(list);
    return found;
}

/* What it can besides: memory of devices; reads that do not overtake writes, where it does not tell of those when their
 * bytes are there. NULL: nothing. */
static struct fi_info *better_of(const struct tutti_ofi_config *config, const struct fi_info *info)
{
    const uint64_t devices = config->devices ? FI_HMEM : 0;
    const uint64_t order = (info->caps & FI_RMA) && !tutti_ofi_delivers(info) ? FI_ORDER_RAW : 0;
    struct fi_info *better = devices && order ? again(config, info, devices, order) : NULL;
    if (!better && order) better = again(config, info, 0, order);
    if (!better && devices) better = again(config, info, devices, 0);
    return better;
}

/* What was asked for least is given up first. */
static enum tutti_status choose_one(const struct tutti_ofi_config *config, const char *domain, struct fi_info **out)
{
    const struct tutti_ofi_library *lib = tutti_ofi_library();
    const uint64_t least = FI_TAGGED | (config->writes > 0 ? FI_RMA : 0);
    const uint64_t wishes[] = {FI_TAGGED | FI_RMA, least};
    struct fi_info *list = NULL;
    if (!lib) return TUTTI_ERR_UNSUPPORTED;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(wishes) && !list && !is_refused(config->provider); i++)
        list = ask(config->provider, domain, domain[0] ? "" : config->address, wishes[i], 0);
    const struct fi_info *best = best_of(list, domain);
    struct fi_info *better = best ? better_of(config, best) : NULL;
    if (best) *out = lib->dupinfo(better ? better : best);
    if (better) lib->freeinfo(better);
    if (list) lib->freeinfo(list);
    if (!best) return no_provider(config, domain);
    return *out ? TUTTI_OK : tutti_fail(TUTTI_ERR_MEMORY, "transport ofi: no memory for what it chose");
}

enum tutti_status tutti_ofi_choose(const struct tutti_ofi_config *config, struct fi_info *infos[TUTTI_OFI_RAILS],
                                   uint32_t *n)
{
    char domains[256], *next = domains;
    enum tutti_status status = TUTTI_OK;
    if (strlen(config->domain) >= sizeof(domains))
        return tutti_fail(TUTTI_ERR_ARGUMENT, "option ofi_domain: '%s' is too long", config->domain);
    strcpy(domains, config->domain);
    *n = 0;
    do {
        const char *domain = strsep(&next, ",");
        if (*n == TUTTI_OFI_RAILS)
            status = tutti_fail(TUTTI_ERR_ARGUMENT, "option ofi_domain: '%s' are more than %u rails", config->domain,
                                TUTTI_OFI_RAILS);
        else
            status = choose_one(config, domain, &infos[*n]);
        if (status == TUTTI_OK) ++*n;
    } while (next && status == TUTTI_OK);
    for (; status < 0 && *n > 0; --*n) tutti_ofi_library()->freeinfo(infos[*n - 1]);
    return status;
}
