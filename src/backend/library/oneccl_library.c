/* SPDX-License-Identifier: BSD-3-Clause */

/* Finds oneCCL: the file that the option names, else the one that the process has loaded already (frameworks bring
 * their own), in $CCL_ROOT/lib, or the system's. The first call that sets oneCCL up writes a line to stdout, whatever
 * it is told: it is made by a thread with descriptors of its own. */
#include "backend/library/oneccl.h"
#include "base/symbols.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME "libccl.so.2"
#define TAKES_TURNS_NS TUTTI_NS_PER_S

/* The process's one. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t calls = PTHREAD_MUTEX_INITIALIZER;
static struct oneccl_library found; /* version 0: none yet */
static const char *plugin;          /* that it was opened with, by us; NULL: the user's choice */

bool oneccl_lock(void)
{
    return tutti_mutex_lock_within(&calls, TAKES_TURNS_NS);
}

void oneccl_unlock(bool held)
{
    if (held) pthread_mutex_unlock(&calls);
}

/* ---- its environment, where the user says nothing ---- */

static bool has_only_loopback(void)
{
    struct ifaddrs *all = NULL;
    bool only = true;
    if (getifaddrs(&all) != 0) return false;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next)
        if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET && !(i->ifa_flags & IFF_LOOPBACK)) only = false;
    freeifaddrs(all);
    return only;
}

/* oneCCL reads it once. Without a thread of its own it does not spin beside the carrier. On devices the plug-in is
 * oneCCL's choice, which is that for GPUs where there are some. */
static void environment_set(const struct tutti_config *options, bool devices)
{
    const char *interface = options ? options->text[TUTTI_OPT_interface] : "";
    setenv("CCL_WORKER_OFFLOAD", "0", 0);
    setenv("CCL_LOG_LEVEL", "error", 0);
    setenv("CCL_ATL_TRANSPORT", "ofi", 0);
    plugin = getenv("CCL_PLUGIN") ? NULL : devices ? "GPUs" : "CPUs";
    if (!devices) setenv("CCL_PLUGIN", "ONECCL_LEGACY_CPU", 0);
    if (if_nametoindex(interface) != 0) {
        setenv("CCL_KVS_IFACE", interface, 0);
        setenv("FI_TCP_IFACE", interface, 0);
    } else if (has_only_loopback()) {
        setenv("CCL_KVS_IFACE", "lo", 0);
    }
}

/* ---- its first words ---- */

/* Descriptors of this thread alone, of which stdout goes nowhere. */
static bool descriptors_part(void)
{
    if (unshare(CLONE_FILES) != 0) return false;
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    return nowhere >= 0 && dup2(nowhere, STDOUT_FILENO) >= 0;
}

/* What others have in the stream's buffer is written out before, and waits meanwhile. */
static void *speak_apart(void *arg)
{
    void *(*set_up)(void) = NULL;
    memcpy(&set_up, &arg, sizeof arg);
    flockfile(stdout);
    fflush(stdout);
    if (descriptors_part()) {
        set_up();
        fflush(stdout);
    }
    funlockfile(stdout);
    return NULL;
}

/* oneCCL's C++ library, which the first call has loaded, reads the environment and keeps nothing open. Where it has no
 * such function, the line is seen. */
static void first_words(void)
{
    void *inner = dlopen("libccl.so.1", RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    void *set_up = inner ? dlsym(inner, "_ZN3ccl6detail11environment8instanceEv") : NULL;
    pthread_t thread;
    if (set_up && tutti_thread_start(&thread, 0, speak_apart, set_up) == 0) pthread_join(thread, NULL);
    if (inner) dlclose(inner);
}

/* ---- finding ---- */

/* loaded: the process had it already. */
static void *library_open(const struct tutti_config *options, bool devices, char *name, size_t capacity, bool *loaded)
{
    const char *named = options ? options->text[TUTTI_OPT_oneccl_library] : "", *root = getenv("CCL_ROOT");
    snprintf(name, capacity, "%s", *named ? named : NAME);
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    *loaded = handle != NULL;
    if (handle) return handle;
    environment_set(options, devices);
    if (!*named && root && *root) {
        snprintf(name, capacity, "%s/lib/" NAME, root);
        handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        if (handle) return handle;
        snprintf(name, capacity, "%s", NAME);
    }
    return dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

/* The name of the first function that is not there and must be; NULL: all are. */
static const char *calls_find(void *library, struct oneccl_library *out)
{
    static const struct tutti_symbol rows[] = {
#define ONECCL_ROW(member, symbol, parameters) {#symbol, offsetof(struct oneccl_library, member), true},
        ONECCL_CALLS(ONECCL_ROW)
#undef ONECCL_ROW
            {"onecclGetLastError", offsetof(struct oneccl_library, last_error), true},
#define ONECCL_ROW(member, symbol, parameters) {#symbol, offsetof(struct oneccl_library, member), false},
        ONECCL_CALLS_LATER(ONECCL_ROW)
#undef ONECCL_ROW
    };
    return tutti_symbols_find(library, rows, TUTTI_ARRAY_LEN(rows), out);
}

/* The next call chooses anew. */
static void plugin_forget(void)
{
    if (plugin) unsetenv("CCL_PLUGIN");
    plugin = NULL;
}

/* Under the lock. */
static enum tutti_status library_find(const struct tutti_config *options, bool devices)
{
    struct oneccl_library library = {0};
    char name[PATH_MAX];
    bool loaded = false;
    int version = 0;
    void *handle = library_open(options, devices, name, sizeof name, &loaded);
    if (!handle) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "there is no oneCCL here: %s", dlerror());
    const char *missing = calls_find(handle, &library);
    if (!missing && library.version_get(&version) == ONECCL_OK && version >= ONECCL_NEEDED) {
        library.version = version;
        const char *level = getenv("CCL_LOG_LEVEL");
        if (!loaded && level && strcmp(level, "error") == 0) first_words();
        found = library;
        return TUTTI_OK; /* and stays open */
    }
    dlclose(handle);
    if (missing)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s is no oneCCL of 2022.0 or later: it has no %s", name, missing);
    return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s is oneCCL %d.%d, and 2022.0 or later is needed", name, version / 10000,
                      version / 100 % 100);
}

static enum tutti_status plugin_check(bool devices)
{
    if (!plugin || strcmp(plugin, devices ? "GPUs" : "CPUs") == 0) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_UNSUPPORTED, "this process has oneCCL with its plug-in for %s", plugin);
}

const struct oneccl_library *oneccl_library(const struct tutti_config *options, bool devices)
{
    pthread_mutex_lock(&lock);
    const bool first = found.version == 0;
    const enum tutti_status status = first ? library_find(options, devices) : plugin_check(devices);
    if (first && status < 0) plugin_forget();
    pthread_mutex_unlock(&lock);
    return status == TUTTI_OK ? &found : NULL;
}
