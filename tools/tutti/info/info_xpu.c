/* SPDX-License-Identifier: BSD-3-Clause */

/* Intel GPUs: the driver, the kernels that were built in, the devices and who reaches whom; and what is missing, tried
 * and not guessed: each device is opened. */

#include "info.h"

#include "device/device.h"
#include "tools/tutti/prove/prove_points.h"

#define DEVICES_SHOWN 8

static const char section[] = "xpu";
static const char *const names[DEVICES_SHOWN] = {"device_0", "device_1", "device_2", "device_3",
                                                 "device_4", "device_5", "device_6", "device_7"};

static void uuid_format(const unsigned char uuid[16], char out[40])
{
    out[0] = '\0';
    for (size_t i = 0; i < 16; i++)
        tutti_append(out, 40, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
}

static void device_gather(struct info *info, int32_t ordinal)
{
    struct tutti_device_facts facts;
    struct tutti_device *device;
    char uuid[40], reached[64] = "";
    if (tutti_device_xpu.facts(ordinal, &facts) < 0) {
        info_text(info, section, names[ordinal], NULL, "%s", tutti_last_error()->text);
        return;
    }
    uuid_format(facts.uuid, uuid);
    for (int32_t other = 0; other < (int32_t)tutti_device_xpu.count() && other < DEVICES_SHOWN; other++)
        if (other != ordinal && tutti_device_xpu.reaches(ordinal, other))
            tutti_append(reached, sizeof reached, " %d", (int)other);
    info_text(info, section, names[ordinal], NULL,
              "%s, %s, PCI device %04x, %u Xe cores, %.1f GiB; reaches the memory of%s", facts.name, uuid,
              facts.capability, facts.n_sms, (double)facts.memory_bytes / (double)(UINT64_C(1) << 30),
              reached[0] ? reached : " no other");
    if (tutti_device_xpu.open(ordinal, &device) == TUTTI_OK)
        device->ops->close(device);
    else
        info_lack(info, names[ordinal], tutti_last_error()->text,
                  "install a newer driver: intel-opencl-icd, libze-intel-gpu1");
}

/* Nobody has had an Intel GPU: the points of `tutti prove`, each by its name where there is one to try it on. */
static void unproved_gather(struct info *info, bool all)
{
    uint32_t n = 0;
    for (size_t i = 0; i < prove_n_points; i++) n += prove_point_is_of(&prove_points[i], section);
    info_text(info, section, "not_proved", NULL, "%u points, which `tutti prove xpu` tries on Intel GPUs%s", n,
              all ? "" : "; --verbose lists them");
    for (size_t i = 0; all && i < prove_n_points; i++)
        if (prove_point_is_of(&prove_points[i], section))
            info_text(info, "not_proved_of_xpu", prove_points[i].name, NULL, "%s", prove_points[i].what);
}

void info_xpu_gather(struct info *info, bool verbose)
{
    const char *absence = tutti_device_xpu.absence(), *built_for = tutti_device_xpu.built_for();
    const int version = tutti_device_xpu.driver_version();
    const uint32_t n = tutti_device_xpu.count();
    if (absence)
        info_text(info, section, "driver", NULL, "none: %s", absence);
    else
        info_text(info, section, "driver", NULL, "for Level Zero %d.%d", version / 1000, version % 1000);
    info_text(info, section, "kernels", NULL, "%s", *built_for ? built_for : "none");
    info_number(info, section, "devices", NULL, n);
    for (uint32_t i = 0; i < n && i < DEVICES_SHOWN; i++) device_gather(info, (int32_t)i);
    unproved_gather(info, verbose || n > 0);
    if (absence)
        info_lack(info, "Level Zero", "calls take no memory of Intel GPUs",
                  "where there is one, Level Zero's loader (libze1) and Intel's driver (intel-opencl-icd or "
                  "libze-intel-gpu1)");
    if (!*built_for)
        info_lack(info, "kernels for Intel GPUs", "calls on memory of Intel GPUs go through the host",
                  "install clang-15 and llvm-spirv-15, then build again");
}
