/* SPDX-License-Identifier: BSD-3-Clause */
/* Multicast objects of the stand-in. An object is a table in a memfd, which is its descriptor, too: the devices that
 * were added, and who bound which memory where. A thread that stores looks there, maps the memory of other processes
 * through /proc, and remembers the place until a mapping or a binding changes. What is bound stays there until it is
 * unbound, its process has no handle and no mapping of the object any more, or has ended. */

#include "driver.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace standin
{
static const size_t unit = (size_t)2 << 20;
static const uint32_t most_bindings = 4096;
static const int by_descriptor = 1;

struct multicast_properties { /* CUmulticastObjectProp */
    unsigned n_devices;
    size_t bytes;
    unsigned long long handle_types, flags;
};

struct binding {
    uint64_t id, inode;
    size_t at, memory_at, bytes;
    int pid, fd, device; /* fd: that process's; device: the machine's */
};
struct table { /* shared by processes */
    pthread_mutex_t lock;
    std::atomic<uint32_t> n_added;
    std::atomic<uint64_t> version; /* another after each change */
    size_t bytes;
    uint32_t n_devices, n_bindings;
    uint64_t n_ids;
    int handle_types, devices[cuda_standin_most_copies];
    binding bindings[most_bindings];
};

/* Who held it may have been killed; a binding that is there twice then does no harm. */
struct table_guard {
    explicit table_guard(table *which) : shared(which)
    {
        if (pthread_mutex_lock(&shared->lock) == EOWNERDEAD) pthread_mutex_consistent(&shared->lock);
    }
    ~table_guard() { pthread_mutex_unlock(&shared->lock); }
    table_guard(const table_guard &) = delete;
    table_guard &operator=(const table_guard &) = delete;
    table *shared;
};

struct window { /* to memory of others */
    void *base;
    size_t bytes;
};
struct multicast {
    table *shared;
    uint64_t inode;
    std::map<uint64_t, physical_pointer> bound = {}; /* by this process; by the binding's id, as windows */
    std::map<uint64_t, window> windows = {};

    multicast(table *the_table, uint64_t the_inode) : shared(the_table), inode(the_inode) {}
    ~multicast();
    multicast(const multicast &) = delete;
    multicast &operator=(const multicast &) = delete;
};

static bool in_units(size_t value)
{
    return value % unit == 0;
}

/* ---- the table; under its lock ---- */
template <class F> static void remove_bindings(table *from, F goes)
{
    binding *end = from->bindings + from->n_bindings;
    from->n_bindings = (uint32_t)(std::remove_if(from->bindings, end, goes) - from->bindings);
    from->version++;
}

/* NULL: none is that. */
template <class F> static const binding *find_binding(const table &in, F is)
{
    const binding *end = in.bindings + in.n_bindings, *found = std::find_if(in.bindings, end, is);
    return found == end ? nullptr : found;
}

/* No zombie, of which a user can not open anything. */
static bool is_running(int pid)
{
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file) return false;
    const size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    const char *name_end = strrchr(text, ')');
    return name_end && name_end[1] == ' ' && !strchr("ZXx", name_end[2]);
}

/* The memory's file; -1: its process has gone. */
static int open_memory(const binding &one)
{
    char path[64];
    struct stat found;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", one.pid, one.fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    const int why = errno;
    if (fd < 0 && why != ENOENT && why != ESRCH && is_running(one.pid))
        cuda_standin_fatal("multicast: %s: %s", path, strerror(why));
    if (fd < 0 || (fstat(fd, &found) == 0 && (uint64_t)found.st_ino == one.inode)) return fd;
    close(fd);
    return -1;
}

static bool has_gone(const binding &one)
{
    const int fd = open_memory(one);
    if (fd >= 0) close(fd);
    return fd < 0;
}

static bool meets(const binding &one, const binding &other)
{
    return one.device == other.device && one.at < other.at + other.bytes && other.at < one.at + one.bytes;
}

bool has_added(const multicast &of, int device)
{
    const int *end = of.shared->devices + of.shared->n_added.load(std::memory_order_acquire);
    return std::find<const int *>(of.shared->devices, end, device) != end;
}

static bool is_complete(const multicast &of)
{
    return of.shared->n_added.load(std::memory_order_acquire) == of.shared->n_devices;
}

/* ---- objects ---- */
multicast::~multicast()
{
    {
        const table_guard held(shared);
        remove_bindings(shared, [this](const binding &one) { return bound.count(one.id) > 0; });
    }
    for (const auto &one : windows) munmap(one.second.base, one.second.bytes);
    munmap(shared, sizeof *shared);
}

static multicast *multicast_of(uint64_t handle)
{
    const auto found = all().handles.find(handle);
    return found == all().handles.end() ? nullptr : found->second->cast.get();
}

static void prepare(table *made, const multicast_properties &what)
{
    pthread_mutexattr_t shared;
    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&made->lock, &shared);
    pthread_mutexattr_destroy(&shared);
    made->bytes = what.bytes;
    made->n_devices = what.n_devices;
    made->handle_types = (int)what.handle_types;
}

/* Takes the descriptor. `what` of a new object; NULL: it is there. */
static int open_multicast(uint64_t *out, int fd, const multicast_properties *what)
{
    struct stat found;
    void *memory = MAP_FAILED;
    if (fd >= 0 && fstat(fd, &found) == 0 && (size_t)found.st_size == sizeof(table))
        memory = mmap(nullptr, sizeof(table), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        if (fd >= 0) close(fd);
        return out_of_memory;
    }
    table *shared = static_cast<table *>(memory);
    if (what) prepare(shared, *what);
    const physical_pointer made(new physical{fd, -1, shared->handle_types, shared->bytes, -1});
    made->cast = std::make_shared<multicast>(shared, (uint64_t)found.st_ino);
    *out = handle_to(made);
    return success;
}

bool is_multicast(const char *file)
{
    return strncmp(file, "/memfd:standin-multicast", 24) == 0;
}

/* In a process there is an object once, so that any of its handles can unbind. */
int import_multicast(uint64_t *out, int fd)
{
    struct stat found;
    if (fstat(fd, &found)) return invalid_value;
    const auto is_it = [&found](const physical_pointer &one) {
        return one && one->cast && one->cast->inode == (uint64_t)found.st_ino;
    };
    physical_pointer known;
    for (const auto &one : all().handles)
        if (is_it(one.second)) known = one.second;
    for (const auto &one : all().regions)
        if (is_it(one.second.backing)) known = one.second.backing;
    if (!known) return open_multicast(out, fcntl(fd, F_DUPFD_CLOEXEC, 0), nullptr);
    *out = handle_to(known);
    return success;
}

int await_devices(uint64_t handle)
{
    for (size_t n_rounds = 1;; n_rounds++) {
        const int status = called([=] {
            const multicast *of = multicast_of(handle);
            return (int)(of && !is_complete(*of) ? not_ready : success);
        });
        if (status != not_ready) return status;
        cuda_standin_idle(n_rounds);
    }
}

/* ---- bindings ---- */
static int bind(multicast *of, binding wanted, const physical_pointer &memory)
{
    struct stat file;
    table *shared = of->shared;
    if (memory->cast || memory->counts_for < 0 || (shared->handle_types && !memory->handle_types)) return invalid_value;
    if (wanted.at > shared->bytes || wanted.bytes > shared->bytes - wanted.at) return invalid_value;
    if (wanted.memory_at > memory->bytes || wanted.bytes > memory->bytes - wanted.memory_at) return invalid_value;
    if (!has_added(*of, memory->device)) return invalid_device;
    if (fstat(memory->fd, &file)) return out_of_memory;
    wanted.inode = (uint64_t)file.st_ino;
    wanted.pid = getpid();
    wanted.fd = memory->fd;
    wanted.device = memory->device;
    const table_guard held(shared);
    remove_bindings(shared, [&wanted](const binding &one) { return meets(one, wanted) && has_gone(one); });
    if (find_binding(*shared, [&wanted](const binding &one) { return meets(one, wanted); })) return invalid_value;
    if (shared->n_bindings == most_bindings) return out_of_memory;
    wanted.id = ++shared->n_ids;
    shared->bindings[shared->n_bindings++] = wanted;
    shared->version++;
    of->bound[wanted.id] = memory;
    return success;
}

static int unbind(multicast *of, int device, size_t at, size_t bytes)
{
    const table_guard held(of->shared);
    const binding *found = find_binding(*of->shared, [=](const binding &one) {
        return one.device == device && one.at == at && one.bytes == bytes && of->bound.count(one.id);
    });
    if (!found) return invalid_value;
    const uint64_t id = found->id;
    remove_bindings(of->shared, [id](const binding &one) { return one.id == id; });
    of->bound.erase(id);
    return success;
}

/* ---- stores ---- */
/* What a thread has found: as long as neither number changes. */
struct found_copies {
    cuda_standin_copies copies;
    uint64_t mappings, version;
    const std::atomic<uint64_t> *version_now;
};
static thread_local found_copies recent[4];
static thread_local uint32_t n_looked_up;
static std::atomic<uint64_t> n_mappings_changed;

void mappings_changed()
{
    n_mappings_changed++;
}

/* Memory of this process where its device has it, so that the thread sanitizer sees both at one address. */
static char *mapped_at(const physical_pointer &memory, const binding &one)
{
    for (const auto &known : all().regions) {
        const region &in = known.second;
        if (in.backing == memory && in.allowed.count(memory->counts_for) && one.memory_at + one.bytes <= in.bytes)
            return in.base + one.memory_at;
    }
    return nullptr;
}

/* NULL: its process has gone. */
static char *memory_of(multicast *of, const binding &one)
{
    const auto own = of->bound.find(one.id);
    char *mapped = own == of->bound.end() ? nullptr : mapped_at(own->second, one);
    if (mapped) return mapped;
    const auto known = of->windows.find(one.id);
    if (known != of->windows.end()) return static_cast<char *>(known->second.base);
    const int fd = open_memory(one);
    if (fd < 0) return nullptr;
    void *base = mmap(nullptr, one.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)one.memory_at);
    close(fd);
    if (base == MAP_FAILED) cuda_standin_fatal("multicast: bound memory can not be mapped: %s", strerror(errno));
    of->windows[one.id] = {base, one.bytes};
    return static_cast<char *>(base);
}

static void close_windows(multicast *of)
{
    for (auto one = of->windows.begin(); one != of->windows.end();) {
        const uint64_t id = one->first;
        const auto gone = one++;
        if (find_binding(*of->shared, [id](const binding &is) { return is.id == id; })) continue;
        munmap(gone->second.base, gone->second.bytes);
        of->windows.erase(gone);
    }
}

/* Those of all devices at the offset; of a faulty machine but the last device's. Narrows the range to theirs. */
static std::vector<const binding *> bindings_at(const table &in, size_t at, size_t *begin, size_t *end)
{
    std::vector<const binding *> found;
    const bool faulty = from_environment("TUTTI_STANDIN_MULTICAST", 1) == 2;
    const int missed = faulty ? *std::max_element(in.devices, in.devices + in.n_devices) : -1;
    for (uint32_t i = 0; i < in.n_devices; i++) {
        const int device = in.devices[i];
        const binding *one = find_binding(
            in, [=](const binding &is) { return is.device == device && at >= is.at && at - is.at < is.bytes; });
        if (!one) cuda_standin_fatal("multicast: no memory of device %d is bound at offset %zu", device, at);
        *begin = std::max(*begin, one->at);
        *end = std::min(*end, one->at + one->bytes);
        if (device != missed) found.push_back(one);
    }
    return found;
}

static const cuda_standin_copies *look_up(const void *p)
{
    guard held(all().lock);
    const region *in = region_of((uintptr_t)p);
    if (!in || !in->backing || !in->backing->cast) cuda_standin_fatal("%p is no multicast address", p);
    if (in->allowed.empty()) cuda_standin_fatal("no device has access to the multicast address %p", p);
    multicast *of = in->backing->cast.get();
    const table_guard shared(of->shared);
    close_windows(of);
    size_t begin = 0, end = in->bytes;
    const auto found = bindings_at(*of->shared, (uintptr_t)p - (uintptr_t)in->base, &begin, &end);
    found_copies *out = &recent[n_looked_up++ % (sizeof recent / sizeof *recent)];
    out->mappings = n_mappings_changed;
    out->version_now = &of->shared->version;
    out->version = of->shared->version;
    out->copies.base = (uintptr_t)in->base + begin;
    out->copies.bytes = end - begin;
    out->copies.n = 0;
    for (const binding *one : found) {
        char *memory = memory_of(of, *one);
        if (memory) out->copies.at[out->copies.n++] = memory + (begin - one->at);
    }
    return &out->copies;
}
} // namespace standin
using namespace standin;

/* The table is there as long as no mapping has changed. */
const cuda_standin_copies *cuda_standin_copies_of(const void *p)
{
    const uint64_t mappings = n_mappings_changed.load(std::memory_order_acquire);
    for (const found_copies &one : recent) {
        if ((uintptr_t)p - one.copies.base < one.copies.bytes && one.mappings == mappings &&
            one.version == one.version_now->load(std::memory_order_acquire))
            return &one.copies;
    }
    return look_up(p);
}

static bool is_usual(const multicast_properties *what)
{
    return what && what->n_devices > 0 && what->n_devices <= cuda_standin_most_copies && what->bytes > 0 &&
           !(what->handle_types & ~(unsigned long long)by_descriptor) && !what->flags;
}

STANDIN_API int cuMulticastGetGranularity(size_t *out, const multicast_properties *what, int option)
{
    return called([=] {
        if (!out || !is_usual(what) || option < 0 || option > 1) return (int)invalid_value;
        *out = unit;
        return (int)success;
    });
}

STANDIN_API int cuMulticastCreate(uint64_t *out, const multicast_properties *what)
{
    return called([=] {
        if (!out || !is_usual(what) || !in_units(what->bytes)) return (int)invalid_value;
        const bool fds = from_environment("TUTTI_STANDIN_FDS", 1) != 0;
        if (from_environment("TUTTI_STANDIN_MULTICAST", 1) == 0 || (what->handle_types && !fds))
            return (int)not_supported;
        const int fd = memfd_create("standin-multicast", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, sizeof(table)) == 0) return open_multicast(out, fd, what);
        close(fd);
        return (int)out_of_memory;
    });
}

STANDIN_API int cuMulticastAddDevice(uint64_t handle, int device)
{
    return called([=] {
        const multicast *of = multicast_of(handle);
        if (!of) return (int)invalid_value;
        if (device < 0 || (size_t)device >= all().devices.size()) return (int)invalid_device;
        if (from_environment("TUTTI_STANDIN_MULTICAST", 1) == 3) return (int)not_supported;
        const int added = all().devices[(size_t)device];
        const table_guard held(of->shared);
        if (is_complete(*of) || has_added(*of, added)) return (int)invalid_value;
        of->shared->devices[of->shared->n_added] = added;
        of->shared->n_added++;
        return (int)success;
    });
}

STANDIN_API int cuMulticastBindMem(uint64_t handle, size_t at, uint64_t memory, size_t memory_at, size_t bytes,
                                   unsigned long long flags)
{
    if (!in_units(at) || !in_units(memory_at) || !in_units(bytes) || bytes == 0 || flags) return invalid_value;
    const int status = await_devices(handle);
    if (status) return status;
    return called([=] {
        multicast *of = multicast_of(handle);
        const auto what = all().handles.find(memory);
        if (!of || what == all().handles.end()) return (int)invalid_value;
        if (from_environment("TUTTI_STANDIN_MULTICAST", 1) == 4) return (int)out_of_memory;
        return bind(of, {0, 0, at, memory_at, bytes, 0, 0, 0}, what->second);
    });
}

STANDIN_API int cuMulticastUnbind(uint64_t handle, int device, size_t at, size_t bytes)
{
    return called([=] {
        multicast *of = multicast_of(handle);
        if (!of) return (int)invalid_value;
        if (device < 0 || (size_t)device >= all().devices.size()) return (int)invalid_device;
        return unbind(of, all().devices[(size_t)device], at, bytes);
    });
}
