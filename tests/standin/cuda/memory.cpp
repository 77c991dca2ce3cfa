/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of the stand-in. Each allocation of a device is a memfd of its own, mapped shared, so that another process can
 * map it through /proc: nothing has a name that could be left behind. What was allocated holds garbage, a page without
 * access follows it, and addresses are used again soon, as on a device. */

#include "driver.h"

#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace standin
{
static const size_t page = 4096, filled = 64 << 10; /* bytes of garbage at most: touching all would cost memory */

static int page_up(size_t bytes, size_t *out)
{
    if (bytes > (size_t)1 << 46) return out_of_memory;
    *out = (bytes + page - 1) / page * page;
    return success;
}

region *region_of(uintptr_t pointer)
{
    auto found = all().regions.upper_bound(pointer);
    if (found == all().regions.begin()) return nullptr;
    region *before = &(--found)->second;
    return pointer - (uintptr_t)before->base < before->bytes ? before : nullptr;
}

/* The memory of fd (-1: of nobody else) with a page behind it. */
static char *map(int fd, size_t bytes)
{
    void *base = mmap(nullptr, bytes + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return nullptr;
    const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    if (mmap(base, bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED | MAP_NORESERVE, fd, 0) == MAP_FAILED) {
        munmap(base, bytes + page);
        return nullptr;
    }
    return static_cast<char *>(base);
}

static region *add_region(char *base, size_t bytes, size_t mapped_bytes, memory_kind kind, int fd)
{
    const region made = {base, bytes, mapped_bytes, kind, current->device, ++all().n_ids, fd, {}, 1, nullptr, {}};
    return &(all().regions[(uintptr_t)base] = made);
}

static void unmap(region *gone)
{
    if (gone->kind != registered_memory) munmap(gone->base, gone->mapped_bytes + page);
    if (gone->fd >= 0) close(gone->fd);
    const bool of_device = gone->kind == device_memory || gone->kind == pool_memory || gone->kind == managed_memory;
    if (of_device) all().bytes_used[(size_t)gone->device] -= gone->mapped_bytes;
    all().regions.erase((uintptr_t)gone->base);
}

/* Memory of graphs that are gone, with the lock held or not; given back at the next allocation. */
static struct {
    std::mutex lock;
    std::set<uint64_t> ids;
} departed;

static void unmap_departed()
{
    const std::lock_guard<std::mutex> held(departed.lock);
    for (auto next = all().regions.begin(); next != all().regions.end() && !departed.ids.empty();) {
        region *one = &(next++)->second;
        if (departed.ids.erase(one->id)) unmap(one);
    }
    departed.ids.clear();
}

static int allocate(memory_kind kind, size_t bytes, void **out)
{
    if (bytes == 0) return invalid_value;
    unmap_departed();
    size_t mapped_bytes, limit;
    if (page_up(bytes, &mapped_bytes)) return out_of_memory;
    size_t &used = all().bytes_used[(size_t)current->device];
    limit = (size_t)from_environment("TUTTI_STANDIN_MEMORY", 8192) << 20;
    if (kind != host_memory && mapped_bytes > limit - used) return out_of_memory;
    int fd = -1;
    if (kind == device_memory) {
        fd = memfd_create("standin", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, (off_t)mapped_bytes)) {
            if (fd >= 0) close(fd);
            return out_of_memory;
        }
    }
    char *base = map(fd, mapped_bytes);
    if (!base) {
        if (fd >= 0) close(fd);
        return out_of_memory;
    }
    memset(base, 0xcd, mapped_bytes < filled ? mapped_bytes : filled);
    add_region(base, bytes, mapped_bytes, kind, fd);
    if (kind != host_memory) used += mapped_bytes;
    *out = base;
    return success;
}

static int allocate_now(memory_kind kind, size_t bytes, void **out)
{
    const int status = usable_in_context();
    if (status) return status;
    guard held(all().lock);
    const int forbidden = safe_call();
    return forbidden ? forbidden : allocate(kind, bytes, out);
}

/* Frees the region that begins there, once the devices do nothing more. */
static int free_now(void *pointer, bool (*kind)(memory_kind))
{
    const int status = usable_in_context();
    if (status || !pointer) return status;
    guard held(all().lock);
    const int forbidden = safe_call();
    if (forbidden) return forbidden;
    const auto found = all().regions.find((uintptr_t)pointer);
    if (found == all().regions.end() || !kind(found->second.kind)) return invalid_value;
    const auto marks = pending(all().contexts[(size_t)found->second.device].get());
    held.unlock();
    ++all().n_freeing;
    wait_for(marks);
    --all().n_freeing;
    held.lock();
    const auto again = all().regions.find((uintptr_t)pointer);
    if (again == all().regions.end()) return invalid_value;
    unmap(&again->second);
    return success;
}
} // namespace standin
using namespace standin;

STANDIN_API int cuMemAlloc_v2(void **out, size_t bytes)
{
    return allocate_now(device_memory, bytes, out);
}
STANDIN_API int cuMemAllocManaged(void **out, size_t bytes, unsigned)
{
    return allocate_now(managed_memory, bytes, out);
}
STANDIN_API int cuMemFree_v2(void *pointer)
{
    return free_now(pointer, [](memory_kind kind) { return kind == device_memory || kind == managed_memory; });
}
STANDIN_API int cuMemHostAlloc(void **out, size_t bytes, unsigned)
{
    return allocate_now(host_memory, bytes, out);
}
STANDIN_API int cuMemFreeHost(void *pointer)
{
    return free_now(pointer, [](memory_kind kind) { return kind == host_memory; });
}
STANDIN_API int cuMemHostUnregister(void *pointer)
{
    return free_now(pointer, [](memory_kind kind) { return kind == registered_memory; });
}

STANDIN_API int cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned)
{
    const int status = usable_in_context();
    if (status) return status;
    if (!pointer || bytes == 0) return invalid_value;
    guard held(all().lock);
    if (region_of((uintptr_t)pointer)) return invalid_value;
    add_region(static_cast<char *>(pointer), bytes, 0, registered_memory, -1);
    return success;
}

/* A graph's memory: at its place as long as the graph is there, and to be touched from where it is allocated to where
 * it is given back, in each replay. */
static int hold_in_graph(stream *of, const region &made)
{
    char *base = made.base;
    const size_t bytes = made.mapped_bytes;
    const auto leave = [id = made.id](void *) {
        const std::lock_guard<std::mutex> held(departed.lock);
        departed.ids.insert(id);
    };
    of->captured->made->objects.emplace_back(base, leave);
    mprotect(base, bytes, PROT_NONE);
    return submit(of, [base, bytes] {
        mprotect(base, bytes, PROT_READ | PROT_WRITE);
        memset(base, 0xcd, bytes < filled ? bytes : filled);
    });
}

/* From a pool, in stream order: it can not be exported. Taken at once; given back when the stream comes to it. */
STANDIN_API int cuMemAllocAsync(void **out, size_t bytes, void *handle)
{
    int status = usable_in_context();
    if (status) return status;
    guard held(all().lock);
    stream *of = stream_of(handle);
    if (!of) return invalid_handle;
    if (of->captured && of->captured->invalid) return capture_invalidated;
    status = allocate(pool_memory, bytes, out);
    return status || !of->captured ? status : hold_in_graph(of, all().regions.at((uintptr_t)*out));
}

STANDIN_API int cuMemFreeAsync(void *pointer, void *handle)
{
    const int status = usable_in_context();
    if (status) return status;
    guard held(all().lock);
    stream *of = stream_of(handle);
    const auto found = all().regions.find((uintptr_t)pointer);
    if (!of) return invalid_handle;
    if (found == all().regions.end() || found->second.kind != pool_memory) return invalid_value;
    const size_t bytes = found->second.mapped_bytes;
    if (of->captured) return submit(of, [pointer, bytes] { mprotect(pointer, bytes, PROT_NONE); });
    return submit(of, [pointer] {
        guard again(all().lock);
        const auto gone = all().regions.find((uintptr_t)pointer);
        if (gone != all().regions.end()) unmap(&gone->second);
    });
}

/* ---- sets and copies ---- */
/* Whether the range begins in the region and stays where the device may go: mappings may follow one another. */
static bool holds(const region *in, uintptr_t pointer, size_t bytes, int device)
{
    const uintptr_t end = pointer + bytes;
    if (in->kind != virtual_memory) return end <= (uintptr_t)in->base + in->bytes;
    for (; in && in->kind == virtual_memory && in->allowed.count(device); in = region_of(pointer)) {
        pointer = (uintptr_t)in->base + in->bytes;
        if (end <= pointer) return true;
    }
    return false;
}

STANDIN_API int cuMemsetD8Async(void *pointer, unsigned char value, size_t bytes, void *handle)
{
    const int status = usable_in_context();
    if (status || bytes == 0) return status;
    guard held(all().lock);
    stream *of = stream_of(handle);
    if (!of) return invalid_handle;
    const region *in = region_of((uintptr_t)pointer);
    if (!in || !holds(in, (uintptr_t)pointer, bytes, of->owner->device)) return invalid_value;
    return submit(of, [pointer, value, bytes] { memset(pointer, value, bytes); });
}

static bool of_host(const region *in)
{
    return !in || in->kind == host_memory || in->kind == registered_memory;
}

/* Where all streams have one queue each way, a copy waits for the one ahead of it, whatever that waits for. */
static int submit_copy(stream *of, const region *to, const region *from, work run)
{
    if (of->captured || of_host(to) == of_host(from) || !has_few_queues()) return submit(of, std::move(run));
    mark_pointer &last = of->owner->copies[of_host(to)];
    const int submitted = submit(of, [ahead = last, run = std::move(run)] {
        if (ahead) ahead->wait();
        run();
    });
    if (!submitted) last = of->last;
    return submitted;
}

/* As the driver: pageable memory is read before the call returns, and written by then. */
STANDIN_API int cuMemcpyAsync(void *dst, const void *src, size_t bytes, void *handle)
{
    const int status = usable_in_context();
    if (status || bytes == 0) return status;
    guard held(all().lock);
    stream *of = stream_of(handle);
    if (!of) return invalid_handle;
    const region *to = region_of((uintptr_t)dst), *from = region_of((uintptr_t)src);
    if (to && !holds(to, (uintptr_t)dst, bytes, of->owner->device)) return invalid_value;
    if (from && !holds(from, (uintptr_t)src, bytes, of->owner->device)) return invalid_value;
    if (from || of->captured) {
        const int submitted = submit_copy(of, to, from, [dst, src, bytes] { memmove(dst, src, bytes); });
        if (submitted || to || of->captured) return submitted;
    } else {
        const auto staged = std::make_shared<std::vector<char>>((const char *)src, (const char *)src + bytes);
        const int submitted = submit_copy(of, to, from, [dst, staged] { memcpy(dst, staged->data(), staged->size()); });
        if (submitted || to) return submitted;
    }
    const mark_pointer last = of->last;
    held.unlock();
    last->wait();
    return success;
}

/* ---- what pointers are ---- */
/* The range of virtual memory is what was reserved, and the mapping what was mapped there at once. */
static void attribute_of(const region *in, int attribute, void *value)
{
    uintptr_t base = (uintptr_t)in->base;
    const reservation *reserved = in->kind == virtual_memory ? reservation_of(base, &base) : nullptr;
    const bool host = in->kind == host_memory || in->kind == registered_memory;
    switch (attribute) {
    case 1:
        return put<void *>(value, all().contexts[(size_t)in->device].get());
    case 2:
        return put<unsigned>(value, host ? 1 : 2);
    case 7:
        return put<uint64_t>(value, reserved ? reserved->id : in->id);
    case 8:
        return put<uint32_t>(value, in->kind == managed_memory);
    case 9:
        return put<int>(value, in->device);
    case 10:
        return put<bool>(value, in->kind == device_memory || in->kind == imported_memory);
    case 11:
        return put<uintptr_t>(value, base);
    case 12:
        return put<size_t>(value, reserved ? reserved->bytes : in->bytes);
    case 13:
        return put<bool>(value, true);
    case 18:
        return put<size_t>(value, in->bytes);
    case 19:
        return put<void *>(value, in->base);
    }
}
/* What is not known has these; their sizes differ. */
static bool clear_attribute(int attribute, void *value)
{
    switch (attribute) {
    case 1:
    case 11:
    case 19:
        put<void *>(value, nullptr);
        return true;
    case 2:
    case 8:
        put<uint32_t>(value, 0);
        return true;
    case 7:
        put<uint64_t>(value, 0);
        return true;
    case 9:
        put<int>(value, -2);
        return true;
    case 10:
    case 13:
        put<bool>(value, false);
        return true;
    case 12:
    case 18:
        put<size_t>(value, 0);
        return true;
    default:
        return false;
    }
}

STANDIN_API int cuPointerGetAttribute(void *value, int attribute, uint64_t pointer)
{
    const int status = usable();
    if (status) return status;
    guard held(all().lock);
    const region *in = region_of(pointer);
    if (!in || !clear_attribute(attribute, value)) return invalid_value;
    attribute_of(in, attribute, value);
    return success;
}

STANDIN_API int cuPointerGetAttributes(unsigned n, const int *attributes, void **values, uint64_t pointer)
{
    const int status = usable();
    if (status) return status;
    guard held(all().lock);
    const region *in = region_of(pointer);
    for (unsigned i = 0; i < n; i++) {
        if (!clear_attribute(attributes[i], values[i])) return invalid_value;
        if (in) attribute_of(in, attributes[i], values[i]);
    }
    return success;
}

STANDIN_API int cuMemGetAddressRange_v2(void **base, size_t *bytes, uint64_t pointer)
{
    const int status = usable_in_context();
    if (status) return status;
    guard held(all().lock);
    const region *in = region_of(pointer);
    if (!in) return not_found;
    if (base) *base = in->base;
    if (bytes) *bytes = in->bytes;
    return success;
}

STANDIN_API int cuMemHostGetDevicePointer_v2(void **out, void *pointer, unsigned)
{
    const int status = usable_in_context();
    if (status) return status;
    guard held(all().lock);
    if (!region_of((uintptr_t)pointer)) return invalid_value;
    *out = pointer;
    return success;
}

STANDIN_API int cuMemGetInfo_v2(size_t *free_bytes, size_t *bytes)
{
    const int status = usable_in_context();
    if (status) return status;
    guard held(all().lock);
    *bytes = (size_t)from_environment("TUTTI_STANDIN_MEMORY", 8192) << 20;
    *free_bytes = *bytes - all().bytes_used[(size_t)current->device];
    return success;
}

/* ---- memory of other processes ---- */
namespace
{
struct handle_bytes { /* CUipcMemHandle */
    char bytes[64];
};
struct handle_content {
    uint64_t magic, inode, bytes, base;
    int32_t pid, fd, device; /* the machine's */
};
const uint64_t handle_magic = 0x7475747469697063ull;

/* Whether the process has, or had, what is behind both handles at the same addresses. */
bool overlap(const std::string &known, const handle_content &content)
{
    handle_content other;
    memcpy(&other, known.data(), sizeof other);
    return other.pid == content.pid && other.base < content.base + content.bytes &&
           content.base < other.base + other.bytes;
}

/* The file behind the handle, if it is still the one. */
int open_handle(const handle_content &content)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", content.pid, content.fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    struct stat found;
    if (fd >= 0 && (fstat(fd, &found) || (uint64_t)found.st_ino != content.inode)) {
        close(fd);
        return -1;
    }
    return fd;
}
} // namespace

STANDIN_API int cuIpcGetMemHandle(handle_bytes *handle, uint64_t pointer)
{
    const int status = usable_in_context();
    if (status) return status;
    if (from_environment("TUTTI_STANDIN_IPC", 1) == 0) return not_supported;
    guard held(all().lock);
    const region *in = region_of(pointer);
    struct stat found;
    if (!in || in->kind != device_memory || fstat(in->fd, &found)) return invalid_value;
    handle_content content = {};
    content.magic = handle_magic;
    content.inode = (uint64_t)found.st_ino;
    content.bytes = in->bytes;
    content.base = (uintptr_t)in->base;
    content.pid = getpid();
    content.fd = in->fd;
    content.device = all().devices[(size_t)in->device];
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &content, sizeof content);
    return success;
}

STANDIN_API int cuIpcOpenMemHandle_v2(void **out, handle_bytes handle, unsigned flags)
{
    const int status = usable_in_context();
    if (status) return status;
    if (flags > 1) return invalid_value;
    if (from_environment("TUTTI_STANDIN_IPC", 1) == 0) return not_supported;
    handle_content content;
    memcpy(&content, handle.bytes, sizeof content);
    if (content.magic != handle_magic) return invalid_value;
    if (content.pid == getpid()) return invalid_context;
    guard held(all().lock);
    if (!may_reach(all().devices[(size_t)current->device], content.device)) return peer_access_unsupported;
    const std::string name(handle.bytes, sizeof handle.bytes);
    const bool once = from_environment("TUTTI_STANDIN_ONCE", 0) != 0; /* some drivers map an address once */
    for (auto &known : all().regions) {
        region *one = &known.second;
        if (one->kind != imported_memory || one->device != current->device) continue;
        if (one->handle != name && once && overlap(one->handle, content)) return already_mapped;
        if (one->handle != name) continue;
        one->n_uses++;
        *out = one->base;
        return success;
    }
    const int fd = open_handle(content);
    size_t mapped_bytes = 0;
    char *base = fd >= 0 && !page_up(content.bytes, &mapped_bytes) ? map(fd, mapped_bytes) : nullptr;
    if (fd >= 0) close(fd);
    if (!base) return map_failed;
    add_region(base, content.bytes, mapped_bytes, imported_memory, -1)->handle = name;
    *out = base;
    return success;
}

STANDIN_API int cuIpcCloseMemHandle(void *pointer)
{
    const int status = usable_in_context();
    if (status) return status;
    guard held(all().lock);
    const auto found = all().regions.find((uintptr_t)pointer);
    if (found == all().regions.end() || found->second.kind != imported_memory) return invalid_value;
    if (--found->second.n_uses > 0) return success;
    const auto marks = pending(all().contexts[(size_t)found->second.device].get());
    held.unlock();
    wait_for(marks);
    held.lock();
    unmap(&all().regions.at((uintptr_t)pointer));
    return success;
}
