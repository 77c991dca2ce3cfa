/* SPDX-License-Identifier: BSD-3-Clause */
/* The list of devices, and what is asked of all of them. */
#include "device/device.h"

#include <string.h>

#define DEVICE_OPS(name) &tutti_device_##name,
const struct tutti_device_ops *tutti_devices[TUTTI_N_DEVICES] = {TUTTI_DEVICES(DEVICE_OPS)};
#undef DEVICE_OPS

const struct tutti_device_ops *tutti_device_kind(void)
{
    for (size_t i = 0; i < TUTTI_N_DEVICES; i++)
        if (!tutti_devices[i]->on_host && !tutti_devices[i]->absence()) return tutti_devices[i];
    return tutti_devices[0];
}

int32_t tutti_device_of(const void *pointer)
{
    int32_t ordinal = -1;
    for (size_t i = 0; i < TUTTI_N_DEVICES && ordinal < 0; i++)
        if (!tutti_devices[i]->on_host) ordinal = tutti_devices[i]->of(pointer);
    return ordinal;
}

int32_t tutti_device_current(void)
{
    int32_t ordinal = -1;
    for (size_t i = 0; i < TUTTI_N_DEVICES && ordinal < 0; i++)
        if (!tutti_devices[i]->on_host) ordinal = tutti_devices[i]->current();
    return ordinal;
}

bool tutti_device_in_use(void)
{
    for (size_t i = 0; i < TUTTI_N_DEVICES; i++)
        if (!tutti_devices[i]->on_host && tutti_devices[i]->in_use()) return true;
    return false;
}

bool tutti_device_share_named(const char *name, enum tutti_device_share *out)
{
    static const char *const names[] = {
        [TUTTI_DEVICE_SHARE_AUTO] = "auto", [TUTTI_DEVICE_SHARE_IPC] = "ipc", [TUTTI_DEVICE_SHARE_FD] = "fd"};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(names); i++) {
        if (strcmp(name, names[i]) != 0) continue;
        *out = (enum tutti_device_share)i;
        return true;
    }
    return false;
}
