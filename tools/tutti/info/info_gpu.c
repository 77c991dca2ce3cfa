/* SPDX-License-Identifier: BSD-3-Clause */

/* GPUs of every maker: the driver, the kernels that were built in, the devices and which of them reach one another; and
 * what is missing, tried and not guessed: each device is opened. Then NCCL and oneCCL. */

#include "info.h"

#include "backend/library/nccl.h"
#include "backend/library/oneccl.h"
#include "device/device.h"
#include "tools/tutti/cmd.h"
#include "tools/tutti/prove/prove_points.h"

#include <limits.h>
#include <string.h>

#define DEVICES_SHOWN 16

static const char *const names[DEVICES_SHOWN] = {
    "device_0", "device_1", "device_2",  "device_3",  "device_4",  "device_5",  "device_6",  "device_7",
    "device_8", "device_9", "device_10", "device_11", "device_12", "device_13", "device_14", "device_15",
};

static void uuid_format(const char *prefix, const unsigned char uuid[16], char out[48])
{
    snprintf(out, 48, "%s", prefix);
    for (size_t i = 0; i < 16; i++)
        tutti_append(out, 48, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
}

static void device_gather(struct info *info, const struct tutti_device_ops *kind, int32_t ordinal)
{
    struct tutti_device_facts facts;
    struct tutti_device *device;
    char uuid[48], units[64], reached[64] = "";
    if (kind->facts(ordinal, &facts) < 0) {
        info_text(info, kind->name, names[ordinal], NULL, "%s", tutti_last_error()->text);
        return;
    }
    uuid_format(kind->about->uuid_prefix, facts.uuid, uuid);
    kind->about->say_units(&facts, units, sizeof units);
    for (int32_t other = 0; other < (int32_t)kind->count() && other < DEVICES_SHOWN; other++)
        if (other != ordinal && kind->reaches(ordinal, other)) tutti_append(reached, sizeof reached, " %d", (int)other);
    info_text(info, kind->name, names[ordinal], NULL, "%s, %s, %s, %.1f GiB; reaches the memory of%s", facts.name, uuid,
              units, (double)facts.memory_bytes / (double)(UINT64_C(1) << 30), reached[0] ? reached : " no other");
    if (kind->open(ordinal, &device) == TUTTI_OK)
        kind->close(device);
    else
        info_lack(info, names[ordinal], tutti_last_error()->text, kind->about->get_open);
}

/* Nobody has had an Intel GPU: the points of `tutti prove`, each by its name where there is one to try it on. */
static void unproved_gather(struct info *info, bool all)
{
    static const char kind[] = "xpu";
    uint32_t n = 0;
    for (size_t i = 0; i < prove_n_points; i++) n += prove_point_is_of(&prove_points[i], kind);
    info_text(info, kind, "not_proved", NULL, "%u points, which `tutti prove xpu` tries on Intel GPUs%s", n,
              all ? "" : "; --verbose lists them");
    for (size_t i = 0; all && i < prove_n_points; i++)
        if (prove_point_is_of(&prove_points[i], kind))
            info_text(info, "not_proved_of_xpu", prove_points[i].name, NULL, "%s", prove_points[i].what);
}

static void lacks_gather(struct info *info, const struct tutti_device_ops *kind)
{
    const struct tutti_device_about *about = kind->about;
    char what[64], text[320];
    if (kind->absence()) {
        snprintf(what, sizeof what, "calls take no memory of %s GPUs", about->maker);
        snprintf(text, sizeof text, "where there is one, %s", about->get_driver);
        info_lack(info, about->interface, what, text);
    }
    if (*kind->built_for()) return;
    snprintf(what, sizeof what, "kernels for %s GPUs", about->maker);
    snprintf(text, sizeof text, "install %s, then build again", about->get_kernels);
    info_lack(info, what, about->without_kernels, text);
}

static void kind_gather(struct info *info, const struct tutti_device_ops *kind, bool verbose)
{
    const char *absence = kind->absence(), *built_for = kind->built_for();
    const uint32_t n = kind->count();
    char version[64];
    kind->about->say_version(kind->driver_version(), version, sizeof version);
    info_text(info, kind->name, "driver", NULL, "%s%s", absence ? "none: " : "", absence ? absence : version);
    info_text(info, kind->name, "kernels", "what they were built for", "%s", *built_for ? built_for : "none");
    info_number(info, kind->name, "devices", NULL, n);
    for (uint32_t i = 0; i < n && i < DEVICES_SHOWN; i++) device_gather(info, kind, (int32_t)i);
    lacks_gather(info, kind);
    if (kind == &tutti_device_xpu) unproved_gather(info, verbose || n > 0);
}

void info_gpus_gather(struct info *info, bool verbose)
{
    for (size_t i = 0; i < TUTTI_N_DEVICES; i++)
        if (tutti_devices[i]->about) kind_gather(info, tutti_devices[i], verbose);
}

/* NCCL: which one is here. */

void info_nccl_gather(struct info *info)
{
    static const char section[] = "nccl";
    const struct nccl_library *nccl = nccl_library(info->config ? info->config->text[TUTTI_OPT_nccl_library] : NULL);
    char own[PATH_MAX];
    info_text(info, section, "in_its_place", "tutti run --as-nccl", "%s",
              tutti_nccl_file(own, sizeof own) ? own : "none: lib/tutti/nccl/libnccl.so.2 is not beside this command");
    if (nccl)
        info_text(info, section, "library", "option nccl_library", "%d.%d.%d", nccl->version / 10000,
                  nccl->version / 100 % 100, nccl->version % 100);
    else
        info_text(info, section, "library", "option nccl_library", "none: %s", tutti_last_error()->text);
    if (!nccl && tutti_device_cuda.count() > 0)
        info_lack(info, "NCCL", "there is no back end nccl; cuda needs none",
                  "install libnccl2 2.18 or later, or name the file of another with TUTTI_NCCL_LIBRARY");
}

/* oneCCL: which one is here, what the back end serves with it, and what is left to tutti's own ways, with the reason.
 */

void info_oneccl_gather(struct info *info)
{
    static const char section[] = "oneccl";
    struct oneccl_left left[ONECCL_LEFT_MOST];
    char served[256];
    const struct oneccl_library *library = info->config ? oneccl_library(info->config, false) : NULL;
    if (!library) {
        info_text(info, section, "library", "option oneccl_library", "none%s%s", info->config ? ": " : "",
                  info->config ? tutti_last_error()->text : "");
        return;
    }
    info_text(info, section, "library", "option oneccl_library", "%d.%d", library->version / 10000,
              library->version / 100 % 100);
    oneccl_say_served(library, served, sizeof served);
    info_text(info, section, "serves", "on host memory, where option backends names it", "%s", served);
    const size_t n = oneccl_list_left(library, left, ONECCL_LEFT_MOST);
    for (size_t i = 0; i < n; i++)
        info_text(info, section, left[i].what, "left to tutti's own ways", "%s", left[i].why);
}
