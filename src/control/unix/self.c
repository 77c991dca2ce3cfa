/* SPDX-License-Identifier: BSD-3-Clause */

/* What this rank is, and on which host. */

#include "control/unix/meeting.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* 0 when it can not be told. */
static uint64_t namespace_id(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 ? (uint64_t)info.st_ino : 0;
}

static uint64_t boot_id(void)
{
    char boot[40] = {0};
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (!f || !fgets(boot, sizeof boot, f)) gethostname(boot, sizeof boot - 1);
    if (f) fclose(f);
    return tutti_hash64(boot, sizeof boot, 0);
}

uint64_t tutti_host_id(const char *named)
{
    const uint64_t spaces[] = {boot_id(), namespace_id("/proc/self/ns/net"), namespace_id("/proc/self/ns/pid")};
    if (named && named[0]) return tutti_hash64(named, strlen(named), spaces[0]);
    return tutti_hash64(spaces, sizeof spaces, 0);
}

void tutti_host_name(const char *named, char *out, size_t capacity)
{
    char host[256] = "?";
    gethostname(host, sizeof host - 1);
    snprintf(out, capacity, "%s", named && named[0] ? named : host);
}

/* What this rank may use and where that is. Without the host's topology it is nowhere in particular. */
static enum tutti_status place_fill(struct tutti_card_record *record)
{
    const struct tutti_topo *host;
    struct tutti_cpu_set cpus;
    if (!tutti_cpus_affinity(&cpus)) tutti_log(TUTTI_LOG_INFO, "the kernel does not say where this rank may run");
    memcpy(record->cpu_words, cpus.words, sizeof record->cpu_words);
    record->quota = tutti_cpus_quota(&record->payer);
    const enum tutti_status status = tutti_topo_host(&host);
    if (status == TUTTI_ERR_MEMORY) return status;
    if (status < 0) tutti_log(TUTTI_LOG_INFO, "%s", tutti_last_error()->text);
    const struct tutti_topo unknown = {.n_cpus = 0};
    const struct tutti_cpu_place place = tutti_topo_place(status < 0 ? &unknown : host, &cpus);
    memcpy(record->group, place.group, sizeof record->group);
    return TUTTI_OK;
}

enum tutti_status tutti_card_fill(const struct tutti_card_self *self, const struct tutti_config *config,
                                  struct tutti_card_record *out)
{
    memset(out, 0, sizeof *out);
    out->pid = (int32_t)getpid();
    out->uid = (uint32_t)geteuid();
    out->cpus = tutti_cpus_allowed();
    out->start = tutti_meeting_started(NULL, out->pid);
    out->build = self->build, out->host = self->host, out->boot = boot_id(), out->port = self->port;
    out->config_hash = tutti_config_hash(config);
    out->crowded = self->crowded;
    out->decorated = config->text[TUTTI_OPT_decorators][0] != '\0';
    out->device = self->device;
    snprintf(out->version, sizeof out->version, "%s", self->version);
    tutti_host_name(config->text[TUTTI_OPT_host], out->host_name, sizeof out->host_name);
    memcpy(out->machine, self->machine ? self->machine : &tutti_machine_default, sizeof out->machine);
    tutti_config_agreed_text(config, out->agreed, sizeof out->agreed);
    return place_fill(out);
}
