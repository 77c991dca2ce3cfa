/* SPDX-License-Identifier: BSD-3-Clause */
/* The list of devices, and what is asked of all of them. */
#include "device/device.h"

#include <stdatomic.h>
#include <string.h>

#define DEVICE_OPS(name) &tutti_device_##name,
const struct tutti_device_ops *tutti_devices[TUTTI_N_DEVICES] = {TUTTI_DEVICES(DEVICE_OPS)};
#undef DEVICE_OPS

static const struct tutti_device_ops *_Atomic chosen; /* NULL: nobody has chosen */

const struct tutti_device_ops *tutti_device_kind(void)
{
    const struct tutti_device_ops *named = atomic_load_explicit(&chosen, memory_order_acquire);
    if (named) return named;
    for (size_t i = 0; i < TUTTI_N_DEVICES; i++)
        if (!tutti_devices[i]->on_host && !tutti_devices[i]->absence()) return tutti_devices[i];
    return tutti_devices[0];
}

const struct tutti_device_ops *tutti_device_named(const char *name)
{
    size_t i = 0;
    while (i < TUTTI_N_DEVICES && strcmp(tutti_devices[i]->name, name) != 0) i++;
    return i < TUTTI_N_DEVICES ? tutti_devices[i] : NULL;
}

static enum tutti_status no_such_kind(const char *name)
{
    return tutti_fail(TUTTI_ERR_ARGUMENT, "\"%.40s\" is no kind of devices; give one of: %s", name, TUTTI_DEVICE_NAMES);
}

/* The first one stays: memory and streams of two kinds could not be told apart. */
static enum tutti_status keep(const struct tutti_device_ops *ops)
{
    const struct tutti_device_ops *before = NULL;
    if (atomic_compare_exchange_strong(&chosen, &before, ops) || before == ops) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_UNSUPPORTED, "devices of %s can not be used: this process uses %s already", ops->name,
                      before->name);
}

enum tutti_status tutti_device_use(const char *name, const struct tutti_device_ops **out)
{
    *out = name ? tutti_device_named(name) : tutti_device_kind();
    if (!*out) return no_such_kind(name);
    if (!name) {
        if ((*out)->absence()) *out = &tutti_device_cpu;
        return (*out)->on_host ? TUTTI_OK : keep(*out);
    }
    const char *absence = (*out)->absence();
    if (absence) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s", absence);
    return (*out)->on_host ? TUTTI_OK : keep(*out);
}

/* Whether memory may be of such devices; a driver that nobody uses is not opened to find out. */
static bool may_be_used(const struct tutti_device_ops *ops)
{
    const struct tutti_device_ops *named = atomic_load_explicit(&chosen, memory_order_acquire);
    return !ops->on_host && (!named || named == ops);
}

static int32_t owner_of(const void *pointer)
{
    int32_t owner = -1;
    for (size_t i = 0; i < TUTTI_N_DEVICES && owner == -1; i++)
        if (may_be_used(tutti_devices[i])) owner = tutti_devices[i]->of(pointer);
    return owner;
}

int32_t tutti_device_of(const void *pointer)
{
    const int32_t owner = owner_of(pointer);
    return owner < 0 ? -1 : owner;
}

bool tutti_device_pins(const void *pointer)
{
    return owner_of(pointer) == TUTTI_DEVICE_PINNED;
}

int32_t tutti_device_current(void)
{
    int32_t ordinal = -1;
    for (size_t i = 0; i < TUTTI_N_DEVICES && ordinal < 0; i++)
        if (may_be_used(tutti_devices[i])) ordinal = tutti_devices[i]->current();
    return ordinal;
}

bool tutti_device_in_use(void)
{
    for (size_t i = 0; i < TUTTI_N_DEVICES; i++)
        if (may_be_used(tutti_devices[i]) && tutti_devices[i]->in_use()) return true;
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
