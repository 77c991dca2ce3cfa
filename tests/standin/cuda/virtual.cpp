/* SPDX-License-Identifier: BSD-3-Clause */
/* The virtual memory API of the stand-in: allocations are memfds, which are the descriptors, too; addresses are
 * reserved without access, and stay without until a device is given some. Stricter than the driver where that tells
 * mistakes: what is unmapped is gone at once, whatever is enqueued. */

#include "driver.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace standin
{
static const size_t unit = (size_t)2 << 20, filled = 64 << 10;
enum { pinned = 1, on_device = 1, by_descriptor = 1, read_only = 1, read_write = 3 };

struct location { /* CUmemLocation; then CUmemAllocationProp, CUmemAccessDesc */
    int type, id;
};
struct properties {
    int type, handle_types;
    location where;
    void *unused;
    unsigned char compression, rdma;
    unsigned short usage;
    unsigned char reserved[4];
};
struct permission {
    location where;
    int flags;
};

physical::~physical()
{
    close(fd);
    if (counts_for >= 0) all().bytes_used[(size_t)counts_for] -= bytes;
}

const reservation *reservation_of(uintptr_t pointer, uintptr_t *base)
{
    auto found = all().reservations.upper_bound(pointer);
    if (found == all().reservations.begin()) return nullptr;
    --found;
    if (pointer - found->first >= found->second.bytes) return nullptr;
    *base = found->first;
    return &found->second;
}

static bool is_usual(const properties *what)
{
    return what && what->type == pinned && what->where.type == on_device && what->where.id >= 0 &&
           (size_t)what->where.id < all().devices.size() && !what->unused && !(what->handle_types & ~by_descriptor);
}

static bool in_units(uintptr_t value)
{
    return value % unit == 0;
}

uint64_t handle_to(const physical_pointer &what)
{
    const uint64_t handle = (uint64_t)(uintptr_t)what.get();
    what->n_handles++;
    all().handles[handle] = what;
    return handle;
}

static bool reaches(int device, const physical &memory)
{
    return may_reach(device, memory.device);
}

/* All of the mappings in the range: none begins before or ends behind it, none is missing. */
static std::vector<region *> mappings(uintptr_t pointer, size_t bytes)
{
    std::vector<region *> found;
    for (uintptr_t at = pointer; at < pointer + bytes;) {
        region *in = region_of(at);
        if (!in || in->kind != virtual_memory || (uintptr_t)in->base != at) return {};
        found.push_back(in);
        at += in->bytes;
        if (at > pointer + bytes) return {};
    }
    return found;
}

static bool is_mapped_in(uintptr_t base, size_t bytes)
{
    const auto next = all().regions.lower_bound(base);
    return region_of(base) || (next != all().regions.end() && next->first < base + bytes);
}

/* Back to reserved addresses. */
static bool clear(void *base, size_t bytes)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    return mmap(base, bytes, PROT_NONE, flags, -1, 0) != MAP_FAILED;
}

static bool map_at(void *at, size_t bytes, const physical &what)
{
    return mmap(at, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, what.fd, 0) != MAP_FAILED;
}
static bool protect(const region *one)
{
    const int may = one->allowed.empty() ? PROT_NONE : PROT_READ | PROT_WRITE;
    return mprotect(one->base, one->bytes, may) == 0;
}

static int create(uint64_t *out, size_t bytes, const properties *what)
{
    const size_t limit = (size_t)from_environment("TUTTI_STANDIN_MEMORY", 8192) << 20;
    size_t &used = all().bytes_used[(size_t)what->where.id];
    if (bytes > limit - used) return out_of_memory;
    char name[32];
    const int device = all().devices[(size_t)what->where.id];
    snprintf(name, sizeof name, "standin-%d-%d", device, what->handle_types);
    const int fd = memfd_create(name, MFD_CLOEXEC);
    void *memory = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0)
        memory = mmap(nullptr, filled, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        if (fd >= 0) close(fd);
        return out_of_memory;
    }
    memset(memory, 0xcd, filled);
    munmap(memory, filled);
    used += bytes;
    *out = handle_to(physical_pointer(new physical{fd, device, what->handle_types, bytes, what->where.id}));
    return success;
}
} // namespace standin
using namespace standin;

/* ---- allocations ---- */
STANDIN_API int cuMemGetAllocationGranularity(size_t *out, const properties *what, int option)
{
    return called([=] {
        if (!out || !is_usual(what) || option < 0 || option > 1) return (int)invalid_value;
        *out = unit;
        return (int)success;
    });
}

STANDIN_API int cuMemCreate(uint64_t *out, size_t bytes, const properties *what, unsigned long long flags)
{
    return called([=] {
        if (!is_usual(what) || flags || bytes == 0 || !in_units(bytes)) return (int)invalid_value;
        const bool fds = from_environment("TUTTI_STANDIN_FDS", 1) != 0;
        return what->handle_types && !fds ? (int)not_supported : create(out, bytes, what);
    });
}

STANDIN_API int cuMemRelease(uint64_t handle)
{
    return called([=] {
        const auto found = all().handles.find(handle);
        if (found == all().handles.end()) return (int)invalid_value;
        if (--found->second->n_handles == 0) all().handles.erase(found);
        return (int)success;
    });
}

STANDIN_API int cuMemRetainAllocationHandle(uint64_t *out, void *pointer)
{
    return called([=] {
        const region *in = region_of((uintptr_t)pointer);
        if (!in || in->kind != virtual_memory) return (int)invalid_value;
        *out = handle_to(in->backing);
        return (int)success;
    });
}

STANDIN_API int cuMemGetAllocationPropertiesFromHandle(properties *out, uint64_t handle)
{
    return called([=] {
        const auto found = all().handles.find(handle);
        if (found == all().handles.end()) return (int)invalid_value;
        *out = {};
        out->type = pinned;
        out->handle_types = found->second->handle_types;
        out->where = {on_device, found->second->counts_for};
        return (int)success;
    });
}

/* ---- descriptors ---- */
STANDIN_API int cuMemExportToShareableHandle(void *out, uint64_t handle, int type, unsigned long long flags)
{
    return called([=] {
        const auto found = all().handles.find(handle);
        if (found == all().handles.end() || type != by_descriptor || flags) return (int)invalid_value;
        if (!(found->second->handle_types & type)) return (int)not_permitted;
        const int fd = dup(found->second->fd);
        if (fd < 0) return (int)out_of_memory;
        put<int>(out, fd);
        return (int)success;
    });
}

STANDIN_API int cuMemImportFromShareableHandle(uint64_t *out, void *descriptor, int type)
{
    return called([=] {
        const int fd = (int)(intptr_t)descriptor;
        char path[64], name[128];
        struct stat found;
        int device, handle_types;
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        const ssize_t n = readlink(path, name, sizeof name - 1);
        if (type != by_descriptor || n <= 0) return (int)invalid_value;
        name[n] = '\0';
        if (sscanf(name, "/memfd:standin-%d-%d", &device, &handle_types) != 2 || fstat(fd, &found))
            return (int)invalid_value;
        const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        if (own < 0) return (int)out_of_memory;
        *out = handle_to(physical_pointer(new physical{own, device, handle_types, (size_t)found.st_size, -1}));
        return (int)success;
    });
}

/* ---- addresses ---- */
STANDIN_API int cuMemAddressReserve(uint64_t *out, size_t bytes, size_t alignment, uint64_t, unsigned long long flags)
{
    return called([=] {
        if (bytes == 0 || !in_units(bytes) || (alignment & (alignment - 1)) || alignment > unit || flags)
            return (int)invalid_value;
        const int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        void *memory = mmap(nullptr, bytes + unit, PROT_NONE, how, -1, 0);
        if (memory == MAP_FAILED) return (int)out_of_memory;
        const uintptr_t start = (uintptr_t)memory, base = (start + unit - 1) / unit * unit;
        if (base > start) munmap(memory, base - start);
        if (start + unit > base) munmap((void *)(base + bytes), start + unit - base);
        all().reservations[base] = {bytes, ++all().n_ids};
        *out = base;
        return (int)success;
    });
}

STANDIN_API int cuMemAddressFree(uint64_t pointer, size_t bytes)
{
    return called([=] {
        const auto found = all().reservations.find(pointer);
        if (found == all().reservations.end() || found->second.bytes != bytes || is_mapped_in(pointer, bytes))
            return (int)invalid_value;
        munmap((void *)(uintptr_t)pointer, bytes);
        all().reservations.erase(found);
        return (int)success;
    });
}

STANDIN_API int cuMemMap(uint64_t pointer, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags)
{
    return called([=] {
        uintptr_t base = 0;
        const auto found = all().handles.find(handle);
        const reservation *in = reservation_of(pointer, &base);
        if (found == all().handles.end() || !in || bytes == 0 || offset || flags) return (int)invalid_value;
        const physical_pointer what = found->second;
        if (!in_units(pointer) || !in_units(bytes) || bytes > what->bytes || pointer + bytes > base + in->bytes ||
            is_mapped_in(pointer, bytes))
            return (int)invalid_value;
        void *at = (void *)(uintptr_t)pointer;
        if (!map_at(at, bytes, *what)) return (int)out_of_memory;
        const int device = what->counts_for >= 0 ? what->counts_for : current->device;
        all().regions[pointer] = {
            static_cast<char *>(at), bytes, bytes, virtual_memory, device, ++all().n_ids, -1, {}, 1, what, {}};
        return (int)success;
    });
}

STANDIN_API int cuMemUnmap(uint64_t pointer, size_t bytes)
{
    return called([=] {
        const auto gone = mappings(pointer, bytes);
        if (gone.empty() || !clear((void *)(uintptr_t)pointer, bytes)) return (int)invalid_value;
        for (const region *one : gone) all().regions.erase((uintptr_t)one->base);
        return (int)success;
    });
}

STANDIN_API int cuMemGetAccess(unsigned long long *flags, const location *where, uint64_t pointer)
{
    return called([=] {
        const region *one = region_of(pointer);
        if (!flags || !where || where->type != on_device || !one || !one->backing) return (int)invalid_value;
        *flags = one->allowed.count(where->id) ? read_write : 0;
        return (int)success;
    });
}

STANDIN_API int cuMemSetAccess(uint64_t pointer, size_t bytes, const permission *wanted, size_t n)
{
    return called([=] {
        const auto found = mappings(pointer, bytes);
        if (found.empty() || n == 0) return (int)invalid_value;
        for (size_t i = 0; i < n; i++) {
            const int device = wanted[i].where.id, flags = wanted[i].flags;
            if (wanted[i].where.type != on_device || (flags && flags != read_only && flags != read_write))
                return (int)invalid_value;
            if (device < 0 || (size_t)device >= all().devices.size()) return (int)invalid_device;
            for (region *one : found) {
                if (!reaches(all().devices[(size_t)device], *one->backing)) return (int)invalid_device;
                if (flags && one->allowed.count(device)) return (int)already_mapped; /* as some drivers do */
                if (flags)
                    one->allowed.insert(device);
                else
                    one->allowed.erase(device);
                if (!protect(one)) return (int)out_of_memory;
            }
        }
        return (int)success;
    });
}
