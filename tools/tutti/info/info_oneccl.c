/* SPDX-License-Identifier: BSD-3-Clause */
/* oneCCL: which one is here, what the back end serves with it, and what is left to tutti's own ways, with the reason.
 */
#include "info.h"

#include "backend/library/oneccl.h"

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
