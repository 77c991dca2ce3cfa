/* SPDX-License-Identifier: BSD-3-Clause */

/* CUDA devices: the driver, what kernels were built in, the devices and who reaches whom, NCCL; and what is missing,
 * tried and not guessed: each device is opened. */

#include "info.h"

#include "backend/nccl/nccl.h"
#include "device/device.h"

#include <string.h>

#define DEVICES_SHOWN 16

static const char section[] = "cuda";
static const char *const names[DEVICES_SHOWN] = {
    "device_0", "device_1", "device_2",  "device_3",  "device_4",  "device_5",  "device_6",  "device_7",
    "device_8", "device_9", "device_10", "device_11", "device_12", "device_13", "device_14", "device_15",
};

/* As nvidia-smi writes it. */
static void uuid_format(const unsigned char uuid[16], char out[48])
{
    snprintf(out, 48, "GPU");
    for (size_t i = 0; i < 16; i++) {
        const bool dash = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
        tutti_append(out, 48, "%s%02x", dash ? "-" : "", uuid[i]);
    }
}

static void device_gather(struct info *info, int32_t ordinal)
{
    struct tutti_device_facts facts;
    char uuid[48], reached[64] = "";
    if (tutti_device_cuda.facts(ordinal, &facts) < 0) {
        info_text(info, section, names[ordinal], NULL, "%s", tutti_last_error()->text);
        return;
    }
    uuid_format(facts.uuid, uuid);
    for (int32_t other = 0; other < (int32_t)tutti_device_cuda.count() && other < DEVICES_SHOWN; other++) {
        if (other == ordinal || !tutti_device_cuda.reaches(ordinal, other)) continue;
        tutti_append(reached, sizeof reached, " %d", (int)other);
    }
    info_text(info, section, names[ordinal], NULL,
              "%s, %s, compute capability %u.%u, %u SMs, %.1f GiB; reaches the memory of%s", facts.name, uuid,
              facts.capability / 10, facts.capability % 10, facts.n_sms,
              (double)facts.memory_bytes / (double)(UINT64_C(1) << 30), reached[0] ? reached : " no other");
    struct tutti_device *gpu;
    if (tutti_device_cuda.open(ordinal, &gpu) == TUTTI_OK)
        gpu->ops->close(gpu);
    else
        info_lack(info, names[ordinal], tutti_last_error()->text,
                  "build with nvcc and -DTUTTI_CUDA_ARCHITECTURES that name the device's compute capability");
}

static void nccl_gather(struct info *info, bool wanted)
{
    const struct nccl_library *nccl = nccl_library(info->config ? info->config->text[TUTTI_OPT_nccl_library] : NULL);
    if (nccl)
        info_text(info, section, "nccl", "option nccl_library", "%d.%d.%d", nccl->version / 10000,
                  nccl->version / 100 % 100, nccl->version % 100);
    else
        info_text(info, section, "nccl", "option nccl_library", "none: %s", tutti_last_error()->text);
    if (!nccl && wanted)
        info_lack(info, "NCCL", "there is no back end nccl; cuda needs none",
                  "install libnccl2 2.18 or later, or name the file of another with TUTTI_NCCL_LIBRARY");
}

void info_cuda_gather(struct info *info)
{
    const char *absence = tutti_device_cuda.absence(), *built_for = tutti_device_cuda.built_for();
    const int version = tutti_device_cuda.driver_version();
    const uint32_t n = tutti_device_cuda.count();
    if (absence)
        info_text(info, section, "driver", NULL, "none: %s", absence);
    else
        info_text(info, section, "driver", NULL, "for CUDA %d.%d", version / 1000, version % 1000 / 10);
    info_text(info, section, "kernels", "compute capabilities that they were built for", "%s",
              *built_for ? built_for : "none");
    info_number(info, section, "devices", NULL, n);
    for (uint32_t i = 0; i < n && i < DEVICES_SHOWN; i++) device_gather(info, (int32_t)i);
    nccl_gather(info, n > 0);
    if (absence)
        info_lack(info, "CUDA", "calls take no memory of NVIDIA GPUs",
                  "where there is one, NVIDIA's driver for CUDA 12.0 or later");
    if (!*built_for)
        info_lack(info, "CUDA kernels", "memory of NVIDIA GPUs can not be used by this build",
                  "install nvcc (the CUDA toolkit, 12.0 or later), then build again");
}
