/* SPDX-License-Identifier: BSD-3-Clause */
/* NCCL: which one is here. */
#include "info.h"

#include "backend/library/nccl.h"
#include "device/device.h"

void info_nccl_gather(struct info *info)
{
    static const char section[] = "nccl";
    const struct nccl_library *nccl = nccl_library(info->config ? info->config->text[TUTTI_OPT_nccl_library] : NULL);
    if (nccl)
        info_text(info, section, "library", "option nccl_library", "%d.%d.%d", nccl->version / 10000,
                  nccl->version / 100 % 100, nccl->version % 100);
    else
        info_text(info, section, "library", "option nccl_library", "none: %s", tutti_last_error()->text);
    if (!nccl && tutti_device_cuda.count() > 0)
        info_lack(info, "NCCL", "there is no back end nccl; cuda needs none",
                  "install libnccl2 2.18 or later, or name the file of another with TUTTI_NCCL_LIBRARY");
}
