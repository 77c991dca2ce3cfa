/* SPDX-License-Identifier: BSD-3-Clause */
/* libnccl.so.2 where there is no GPU: names, versions, sentences, arguments, configurations by size; then communicators
 * of host memory, from their making to their end. */

#include "test.h"

#include "nccl_abi/nccl.h"

#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- names: all that NVIDIA's library of 2.30.7 exports ---- */

static const char names[] =
    "AllGather AllReduce AlltoAll Bcast Broadcast CommAbort CommCount CommCuDevice CommDeregister CommDestroy "
    "CommFinalize CommGetAsyncError CommGetUniqueId CommGrow CommInitAll CommInitRank CommInitRankConfig "
    "CommInitRankScalable CommMemStats CommQueryProperties CommRegister CommResume CommRevoke CommShrink CommSplit "
    "CommSuspend CommUserRank CommWindowDeregister CommWindowRegister DevCommCreate DevCommDestroy Gather "
    "GetErrorString GetLastError GetLsaDevicePointer GetLsaMultimemDevicePointer GetMultimemDevicePointer "
    "GetPeerDevicePointer GetUniqueId GetVersion GinBarrierCreateRequirement GinInboxA2ACreateRequirement "
    "GinOutboxCreateRequirement GroupEnd GroupSimulateEnd GroupStart LLA2ACalcSlots LLA2ACreateRequirement "
    "LsaBarrierCreateRequirement MemAlloc MemFree ParamBind ParamDumpAll ParamGet ParamGetAllParameterKeys "
    "ParamGetI16 ParamGetI32 ParamGetI64 ParamGetI8 ParamGetParameter ParamGetStr ParamGetU16 ParamGetU32 ParamGetU64 "
    "ParamGetU8 PutSignal Recv RedOpCreatePreMulSum RedOpDestroy Reduce ReduceScatter ResetDebugInit Scatter Send "
    "Signal TeamLsa TeamRail TeamRankToLsa TeamRankToWorld TeamWorld WaitSignal WinGetUserPtr";

static bool is_named(const char *symbol)
{
    const char *bare = symbol + (*symbol == 'p') + 4, *at = names;
    const size_t n = strlen(bare);
    if (strcmp(symbol, "ncclResetDebugInitInternal") == 0) return true;
    if (strncmp(bare - 4, "nccl", 4) != 0) return false;
    while ((at = strstr(at, bare))) {
        if ((at == names || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0')) return true;
        at += n;
    }
    return false;
}

/* Functions in the dynamic symbols of the file: how many, each one expected. */
static unsigned exported(const unsigned char *file)
{
    const Elf64_Ehdr *head = (const void *)file;
    const Elf64_Shdr *sections = (const void *)(file + head->e_shoff);
    unsigned n = 0;
    for (unsigned s = 0; s < head->e_shnum; s++) {
        if (sections[s].sh_type != SHT_DYNSYM) continue;
        const Elf64_Sym *symbols = (const void *)(file + sections[s].sh_offset);
        const char *strings = (const char *)file + sections[sections[s].sh_link].sh_offset;
        for (size_t i = 0; i < sections[s].sh_size / sizeof *symbols; i++) {
            if (symbols[i].st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbols[i].st_info) == STT_SECTION) continue;
            if (!is_named(strings + symbols[i].st_name)) print_error("%s\n", strings + symbols[i].st_name);
            assert_true(is_named(strings + symbols[i].st_name));
            n++;
        }
    }
    return n;
}

static void test_names(void **state)
{
    (void)state;
    struct stat facts;
    char copy[sizeof names], *rest = copy, *name, symbol[64];
    unsigned n = 0;
    memcpy(copy, names, sizeof names);
    while ((name = strsep(&rest, " "))) {
        snprintf(symbol, sizeof symbol, "pnccl%s", name);
        void *strong = dlsym(nccl_library, symbol);
        if (!strong) print_error("%s\n", symbol);
        assert_non_null(strong);
        assert_ptr_equal(dlsym(nccl_library, symbol + 1), strong);
        n++;
    }
    assert_int_equal(n, 82);
    const int fd = open(TEST_NCCL, O_RDONLY | O_CLOEXEC);
    assert_int_equal(fstat(fd, &facts), 0);
    const unsigned char *file = mmap(NULL, (size_t)facts.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    assert_ptr_not_equal(file, MAP_FAILED);
    assert_int_equal(exported(file), 2 * 82 + 1);
    munmap((void *)(uintptr_t)file, (size_t)facts.st_size);
    close(fd);
}

/* A preloaded library is in every process: by itself it starts no thread. */
static void test_loading_starts_nothing(void **state)
{
    (void)state;
    int n = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (const struct dirent *entry; (entry = readdir(tasks));) n += entry->d_name[0] != '.';
    closedir(tasks);
    assert_int_equal(n, 1);
    assert_null(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD));
}

static void test_version(void **state)
{
    (void)state;
    int version = 0;
    assert_int_equal(nccl.GetVersion(&version), OK);
    assert_int_equal(version, 23007);
    assert_int_equal(nccl.GetVersion(NULL), INVALID_ARGUMENT);
    setenv("TUTTI_NCCL_VERSION", "2.28.9", 1);
    assert_int_equal(nccl.GetVersion(&version), OK);
    assert_int_equal(version, 22809);
    setenv("TUTTI_NCCL_VERSION", "2.28", 1);
    assert_int_equal(nccl.GetVersion(&version), OK);
    assert_int_equal(version, 23007);
    assert_string_equal(nccl.GetLastError(NULL), "TUTTI_NCCL_VERSION=2.28: is not like 2.28.9");
    unsetenv("TUTTI_NCCL_VERSION");
}

static void test_sentences(void **state)
{
    (void)state;
    for (int code = -1; code < 12; code++) assert_true(strlen(nccl.GetErrorString(code)) > 3);
    assert_int_equal(nccl.CommCount(NULL, &(int){0}), INVALID_ARGUMENT);
    assert_non_null(strstr(nccl.GetLastError(NULL), "ncclCommCount"));
}

static void test_parameters(void **state)
{
    (void)state;
    const char **keys = NULL, *text = NULL;
    void *handle = NULL;
    char copy[8];
    int n = 0;
    int32_t number = 0;
    uint8_t byte = 0;
    assert_int_equal(nccl.ParamGetAllParameterKeys(&keys, &n), OK);
    assert_true(n > 3);
    for (int i = 0; i < n; i++) assert_int_equal(nccl.ParamBind(&handle, keys[i]), OK);
    assert_int_equal(nccl.ParamBind(&handle, "NCCL_NO_SUCH"), INVALID_ARGUMENT);
    assert_int_equal(nccl.ParamBind(&handle, "NCCL_MAX_CTAS"), OK);
    setenv("NCCL_MAX_CTAS", "300", 1);
    assert_int_equal(nccl.ParamGetI32(handle, &number), OK);
    assert_int_equal(number, 300);
    assert_int_equal(nccl.ParamGetU8(handle, &byte), INVALID_ARGUMENT);
    assert_int_equal(nccl.ParamGetStr(handle, &text), OK);
    assert_string_equal(text, "300");
    assert_int_equal(nccl.ParamGet(handle, copy, 3, &n), INVALID_ARGUMENT);
    assert_int_equal(nccl.ParamGet(handle, copy, sizeof copy, &n), OK);
    assert_string_equal(copy, "300");
    assert_int_equal(nccl.ParamGetParameter("NCCL_MAX_CTAS", &text, &n), OK);
    assert_int_equal(n, 3);
    unsetenv("NCCL_MAX_CTAS");
}

/* ---- arguments ---- */

static void test_init_refusals(void **state)
{
    (void)state;
    unique_id id, other = {{1}};
    comm_t comm = (comm_t)(void *)&id;
    assert_int_equal(nccl.GetUniqueId(&id), OK);
    assert_int_equal(nccl.CommInitRank(&comm, 2, id, 2), INVALID_ARGUMENT);
    assert_null(comm);
    assert_int_equal(nccl.CommInitRank(&comm, 0, id, 0), INVALID_ARGUMENT);
    assert_int_equal(nccl.CommInitRank(NULL, 1, id, 0), INVALID_ARGUMENT);
    assert_int_equal(nccl.CommInitRank(&comm, 1, other, 0), INVALID_ARGUMENT);
    assert_non_null(strstr(nccl.GetLastError(NULL), "the id is not"));
    assert_int_equal(nccl.CommDestroy(NULL), OK);
    assert_int_equal(nccl.CommAbort(NULL), OK);
    assert_int_equal(nccl.CommFinalize(NULL), OK);
    assert_int_equal(nccl.GroupEnd(), INVALID_USAGE);
}

static comm_t alone(void)
{
    unique_id id;
    comm_t comm = NULL;
    assert_int_equal(nccl.GetUniqueId(&id), OK);
    assert_int_equal(nccl.CommInitRank(&comm, 1, id, 0), OK);
    return comm;
}

static int with(struct config config)
{
    unique_id id;
    comm_t comm = NULL;
    assert_int_equal(nccl.GetUniqueId(&id), OK);
    const int result = nccl.CommInitRankConfig(&comm, 1, id, 0, &config);
    assert_int_equal(nccl.CommDestroy(comm), OK);
    return result;
}

static void test_call_refusals(void **state)
{
    (void)state;
    int word = 7, out = 0, op = 0;
    comm_t comm = alone();
    assert_int_equal(nccl.AllReduce(&word, &out, 1, N_TYPES, SUM, comm, NULL), INVALID_ARGUMENT);
    assert_int_equal(nccl.AllReduce(&word, &out, 1, INT32, 5, comm, NULL), INVALID_ARGUMENT);
    assert_int_equal(nccl.AllReduce(&word, &out, 1, INT32, -1, comm, NULL), INVALID_ARGUMENT);
    assert_int_equal(nccl.AllReduce(&word, &out, 1, INT32, SUM, NULL, NULL), INVALID_ARGUMENT);
    assert_int_equal(nccl.Broadcast(&word, &out, 1, INT32, 1, comm, NULL), INVALID_ARGUMENT);
    assert_non_null(strstr(nccl.GetLastError(comm), "root is 1"));
    assert_int_equal(nccl.Send(&word, 1, INT32, -1, comm, NULL), INVALID_ARGUMENT);
    assert_int_equal(nccl.AllReduce(NULL, NULL, 0, INT32, SUM, comm, NULL), OK);
    assert_int_equal(nccl.RedOpDestroy(SUM, comm), INVALID_ARGUMENT);
    assert_int_equal(nccl.RedOpCreatePreMulSum(&op, &word, INT32, 2, comm), INVALID_ARGUMENT);
    assert_int_equal(nccl.RedOpCreatePreMulSum(&op, &word, INT32, 1, comm), OK);
    assert_int_equal(nccl.AllReduce(&word, &out, 1, FLOAT32, op, comm, NULL), INVALID_ARGUMENT);
    assert_int_equal(nccl.AllReduce(&word, &out, 1, INT32, op, comm, NULL), OK);
    assert_int_equal(out, 49);
    assert_int_equal(nccl.RedOpDestroy(op, comm), OK);
    assert_int_equal(nccl.RedOpDestroy(op, comm), INVALID_ARGUMENT);
    assert_int_equal(nccl.AllReduce(&word, &out, 1, INT32, op, comm, NULL), INVALID_ARGUMENT);
    assert_int_equal(nccl.CommDestroy(comm), OK);
}

/* ---- what tutti does not have: a code and a sentence, which can be asked for and stand in the log ---- */

#define LOG "/tmp/tutti_nccl_abi_"
static char log_path[64];

static void log_open(void)
{
    snprintf(log_path, sizeof log_path, LOG "%ld", (long)getpid());
    unlink(log_path);
    setenv("NCCL_DEBUG", "WARN", 1);
    setenv("NCCL_DEBUG_FILE", LOG "%p", 1);
    nccl.ResetDebugInit();
}

static void log_close(void)
{
    unsetenv("NCCL_DEBUG");
    unsetenv("NCCL_DEBUG_FILE");
    nccl.ResetDebugInit();
    unlink(log_path);
}

/* The last sentence begins so, has that in it, and is the log's last line. */
static void assert_told(const char *begin, const char *what)
{
    static char text[1 << 14];
    const char *last = nccl.GetLastError(NULL);
    assert_int_equal(strncmp(last, begin, strlen(begin)), 0);
    assert_non_null(strstr(last, what));
    FILE *log = fopen(log_path, "r");
    assert_non_null(log);
    const size_t n = fread(text, 1, sizeof text - 1, log), length = strlen(last);
    fclose(log);
    assert_true(n > length + 1);
    assert_memory_equal(text + n - 1 - length, last, length);
}

#define ASSERT_REFUSED(expected, name, ...)                                                                            \
    do {                                                                                                               \
        assert_int_equal(nccl.name(__VA_ARGS__), expected);                                                            \
        assert_told("nccl" #name ": ", "tutti has no device communicators of NCCL");                                   \
    } while (0)

static void test_no_device_api(void **state)
{
    (void)state;
    comm_t comm = alone();
    const struct team team = nccl.TeamLsa(comm);
    void *out = NULL;
    log_open();
    ASSERT_REFUSED(INVALID_USAGE, DevCommCreate, comm, &out, &out);
    ASSERT_REFUSED(INVALID_USAGE, DevCommDestroy, comm, &out);
    ASSERT_REFUSED(INVALID_USAGE, LsaBarrierCreateRequirement, team, 1, &out, &out);
    ASSERT_REFUSED(INVALID_USAGE, GinBarrierCreateRequirement, comm, team, 1, &out, &out);
    ASSERT_REFUSED(INVALID_USAGE, GinOutboxCreateRequirement, 1, 4, &out, &out);
    ASSERT_REFUSED(INVALID_USAGE, GinInboxA2ACreateRequirement, team, 1, 4, &out, &out);
    ASSERT_REFUSED(0, LLA2ACalcSlots, 8, 4);
    ASSERT_REFUSED(INVALID_USAGE, LLA2ACreateRequirement, 1, 8, &out, &out);
    ASSERT_REFUSED(INVALID_USAGE, GetLsaMultimemDevicePointer, NULL, 0, &out);
    ASSERT_REFUSED(INVALID_USAGE, GetMultimemDevicePointer, NULL, 0, (struct multimem){NULL}, &out);
    assert_null(out);
    assert_int_equal(nccl.GetLsaDevicePointer(NULL, 0, 0, &out), INVALID_ARGUMENT);
    assert_told("ncclGetLsaDevicePointer", "window");
    assert_int_equal(nccl.DevCommDestroy(comm, NULL), OK);
    assert_true(team.n == 1 && team.rank == 0 && nccl.TeamRankToLsa(comm, team, 0) == 0);
    assert_int_equal(nccl.TeamRail(comm).n, 1);
    assert_int_equal(nccl.CommDestroy(comm), OK);
    log_close();
}

static void test_no_plugins(void **state)
{
    (void)state;
    static const char *const variables[] = {"NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN", "NCCL_PROFILER_PLUGIN",
                                            "NCCL_GIN_PLUGIN"};
    struct config config = CONFIG_INIT;
    log_open();
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        setenv(variables[i], "mine.so", 1);
        assert_int_equal(nccl.CommDestroy(alone()), OK); /* as NCCL goes on without what it can not load */
        assert_told(variables[i], "=mine.so: tutti loads no plug-ins of NCCL");
        unsetenv(variables[i]);
    }
    config.net = "mine";
    assert_int_equal(with(config), INVALID_USAGE);
    assert_told("ncclCommInitRankConfig: config.netName is \"mine\"", "tutti loads no plug-ins of NCCL");
    log_close();
    config.net = "Socket";
    assert_int_equal(with(config), OK);
}

/* A group with a call that fails starts nothing and says so again; the next one is as new. */
static void test_group_refusal(void **state)
{
    (void)state;
    int word = 7, out = 0;
    comm_t comm = alone();
    assert_int_equal(nccl.GroupStart(), OK);
    assert_int_equal(nccl.GroupStart(), OK);
    assert_int_equal(nccl.AllReduce(&word, &out, 1, INT32, SUM, comm, NULL), OK);
    assert_int_equal(nccl.AllReduce(&word, &out, 1, INT32, 77, comm, NULL), INVALID_ARGUMENT);
    assert_int_equal(nccl.GroupEnd(), OK);
    assert_int_equal(nccl.GroupEnd(), INVALID_ARGUMENT);
    assert_int_equal(out, 0);
    assert_int_equal(nccl.GroupStart(), OK);
    assert_int_equal(nccl.AllReduce(&word, &out, 1, INT32, SUM, comm, NULL), OK);
    assert_int_equal(out, 0);
    assert_int_equal(nccl.GroupEnd(), OK);
    assert_int_equal(out, 7);
    assert_int_equal(nccl.CommDestroy(comm), OK);
}

static void test_simulation(void **state)
{
    (void)state;
    int word = 7, out = 0;
    struct simulation simulation = {sizeof simulation, 0x74685283, 23007, -1};
    comm_t comm = alone();
    assert_int_equal(nccl.GroupStart(), OK);
    assert_int_equal(nccl.AllReduce(&word, &out, 1, INT32, SUM, comm, NULL), OK);
    assert_int_equal(nccl.GroupSimulateEnd(&simulation), OK);
    assert_int_equal(out, 0);
    assert_true(simulation.us > 0);
    assert_int_equal(nccl.CommDestroy(comm), OK);
}

static void test_configs(void **state)
{
    (void)state;
    struct config config = CONFIG_INIT;
    assert_int_equal(sizeof config, 96);
    assert_int_equal(with(config), OK);
    config.blocking = 2;
    assert_int_equal(with(config), INVALID_ARGUMENT);
    assert_non_null(strstr(nccl.GetLastError(NULL), "blocking"));
    config.blocking = 1;
    config.min_ctas = 8, config.max_ctas = 4;
    assert_int_equal(with(config), INVALID_ARGUMENT);
    config.size = 24, config.version = 21403; /* what is behind is no field of that version */
    assert_int_equal(with(config), OK);
    config.size = 48, config.version = 21805, config.max_ctas = 16, config.traffic_class = 77; /* padding then */
    config.net = NULL, config.cluster = 0, config.split_share = 1;
    assert_int_equal(with(config), OK);
    config.magic = 1;
    assert_int_equal(with(config), INVALID_ARGUMENT);
}

/* ---- communicators ---- */

static void facts(struct rank *rank)
{
    struct properties properties = {.size = sizeof properties, .magic = 0xcafebeef, .version = 23007};
    int n = -1, me = -1;
    uint64_t bytes = 1;
    CHECK_OK(rank, nccl.CommCount(rank->comm, &n));
    CHECK_OK(rank, nccl.CommUserRank(rank->comm, &me));
    CHECK(rank, n == rank->n && me == rank->index);
    CHECK_OK(rank, nccl.CommQueryProperties(rank->comm, &properties));
    CHECK(rank, properties.rank == me && properties.n == n && !properties.device_api && !properties.multimem);
    CHECK_OK(rank, nccl.CommMemStats(rank->comm, 0, &bytes));
    CHECK(rank, bytes == 0);
    CHECK_OK(rank, nccl.CommSuspend(rank->comm, 1));
    CHECK_RESULT(rank, INVALID_USAGE, nccl.AllReduce(&n, &n, 1, INT32, SUM, rank->comm, NULL));
    CHECK_OK(rank, nccl.CommResume(rank->comm));
    const struct team world = nccl.TeamWorld(rank->comm);
    CHECK(rank, world.n == n && world.rank == me && nccl.TeamRankToWorld(rank->comm, world, 0) == 0);
    CHECK_OK(rank, nccl.CommFinalize(rank->comm));
    CHECK_RESULT(rank, INVALID_ARGUMENT, nccl.CommFinalize(rank->comm));
    CHECK_RESULT(rank, INVALID_USAGE, nccl.AllReduce(&n, &n, 1, INT32, SUM, rank->comm, NULL));
}

static void derived(struct rank *rank)
{
    comm_t half = NULL, fewer = NULL, none = rank->comm;
    int me = -1, leave = 1;
    CHECK_OK(rank, nccl.CommSplit(rank->comm, rank->index % 2, -rank->index, &half, NULL));
    CHECK(rank, members(half, rank->index) == (rank->index % 2 ? 0xa : 0x5));
    CHECK_OK(rank, nccl.CommUserRank(half, &me));
    CHECK(rank, me == (rank->index < 2)); /* by the key */
    CHECK_OK(rank, nccl.CommSplit(rank->comm, rank->index ? 0 : -1, 0, &none, NULL));
    CHECK(rank, (none == NULL) == (rank->index == 0));
    if (none) CHECK(rank, members(none, rank->index) == 0xe);
    if (rank->index != 1) {
        CHECK_OK(rank, nccl.CommShrink(rank->comm, &leave, 1, &fewer, NULL, 0));
        CHECK(rank, members(fewer, rank->index) == 0xd);
    }
    CHECK_OK(rank, nccl.CommDestroy(fewer));
    CHECK_OK(rank, nccl.CommDestroy(none));
    CHECK_OK(rank, nccl.CommDestroy(half));
}

/* Ranks 0 and 1 are there, 2 comes; rank 1 asks for the id. */
static unique_id grown_id;
static void grown(struct rank *rank)
{
    comm_t more = NULL;
    const bool old = rank->index < 2, asks = rank->index == 1;
    if (old) CHECK_OK(rank, nccl.CommInitRank(&rank->comm, 2, rank->id, rank->index));
    if (asks) CHECK_OK(rank, nccl.CommGetUniqueId(rank->comm, &grown_id));
    if (asks) CHECK_RESULT(rank, INVALID_USAGE, nccl.CommGetUniqueId(rank->comm, &grown_id));
    ranks_meet(rank);
    CHECK_OK(rank, nccl.CommGrow(rank->comm, 3, asks || !old ? &grown_id : NULL, old ? -1 : 2, &more, NULL));
    CHECK(rank, members(more, rank->index) == 7);
    CHECK_OK(rank, nccl.CommDestroy(rank->comm));
    CHECK_OK(rank, nccl.CommDestroy(more));
}

static void scalable(struct rank *rank)
{
    unique_id ids[2] = {rank->id, {{0}}};
    CHECK_OK(rank, nccl.CommInitRankScalable(&rank->comm, rank->n, rank->index, 2, ids, NULL));
    CHECK(rank, members(rank->comm, rank->index) == 7);
    CHECK_OK(rank, nccl.CommDestroy(rank->comm));
}

static bool await(comm_t comm, int expected)
{
    int state = IN_PROGRESS;
    for (int i = 0; i < 20000; i++) {
        if (nccl.CommGetAsyncError(comm, &state) != OK) return false;
        if (state != IN_PROGRESS && state == expected) return true;
        if (state != IN_PROGRESS && state != OK) return false;
        usleep(1000);
    }
    return false;
}

static void nonblocking(struct rank *rank)
{
    struct config config = CONFIG_INIT;
    comm_t half = NULL;
    config.blocking = 0;
    CHECK_RESULT(rank, IN_PROGRESS, nccl.CommInitRankConfig(&rank->comm, rank->n, rank->id, rank->index, &config));
    CHECK(rank, rank->comm && await(rank->comm, OK));
    CHECK(rank, members(rank->comm, rank->index) == 7);
    CHECK_RESULT(rank, IN_PROGRESS, nccl.CommSplit(rank->comm, rank->index > 0, 0, &half, NULL));
    CHECK(rank, await(rank->comm, OK) && half);
    CHECK(rank, members(half, rank->index) == (rank->index ? 6 : 1));
    CHECK_RESULT(rank, IN_PROGRESS, nccl.CommFinalize(half));
    CHECK(rank, await(half, OK));
    CHECK_OK(rank, nccl.CommDestroy(half));
    CHECK_OK(rank, nccl.CommDestroy(rank->comm));
}

static void test_nonblocking(void **state)
{
    (void)state;
    struct config config = CONFIG_INIT;
    unique_id id;
    comm_t comm = NULL;
    assert_int_equal(ranks_run(3, false, nonblocking, NULL), 0);
    /* The other rank never comes: an abort ends it. */
    config.blocking = 0;
    assert_int_equal(nccl.GetUniqueId(&id), OK);
    assert_int_equal(nccl.CommInitRankConfig(&comm, 2, id, 0, &config), IN_PROGRESS);
    assert_int_equal(members(comm, 0), -1);
    assert_int_equal(nccl.CommAbort(comm), OK);
}

static void revoked(struct rank *rank)
{
    comm_t again = NULL;
    ranks_meet(rank); /* all have been made */
    CHECK_OK(rank, nccl.CommRevoke(rank->comm, 0));
    CHECK_RESULT(rank, INVALID_USAGE, nccl.CommRevoke(rank->comm, 0));
    CHECK(rank, members(rank->comm, rank->index) == -1);
    CHECK(rank, await(rank->comm, OK));
    CHECK_OK(rank, nccl.CommSplit(rank->comm, 0, 0, &again, NULL));
    CHECK(rank, members(again, rank->index) == 7);
    CHECK_OK(rank, nccl.CommDestroy(again));
}

static void aborted(struct rank *rank)
{
    ranks_meet(rank);
    if (rank->index == 0) CHECK_OK(rank, nccl.CommAbort(rank->comm));
    if (rank->index == 0)
        rank->comm = NULL;
    else
        CHECK(rank, await(rank->comm, REMOTE_ERROR));
}

/* One thread has all ranks. */
static void test_all(void **state)
{
    (void)state;
    enum { N = 4 };
    comm_t comms[N], halves[N] = {NULL};
    int words[N], sums[N], got[N];
    assert_int_equal(nccl.CommInitAll(comms, 1 << 30, NULL), INVALID_ARGUMENT);
    assert_non_null(strstr(nccl.GetLastError(NULL), "ndev is 1073741824"));
    setenv("NCCL_COMM_BLOCKING", "xyz", 1);
    assert_int_equal(nccl.CommInitAll(comms, N, NULL), INVALID_USAGE);
    assert_non_null(strstr(nccl.GetLastError(NULL), "NCCL_COMM_BLOCKING is \"xyz\""));
    unsetenv("NCCL_COMM_BLOCKING");
    assert_int_equal(nccl.CommInitAll(comms, N, NULL), OK);
    assert_int_equal(nccl.GroupStart(), OK);
    for (int i = 0; i < N; i++) {
        words[i] = 1 << i;
        assert_int_equal(nccl.AllReduce(&words[i], &sums[i], 1, INT32, SUM, comms[i], NULL), OK);
        assert_int_equal(nccl.Send(&words[i], 1, INT32, (i + 1) % N, comms[i], NULL), OK);
        assert_int_equal(nccl.Recv(&got[i], 1, INT32, (i + N - 1) % N, comms[i], NULL), OK);
    }
    assert_int_equal(nccl.GroupEnd(), OK);
    for (int i = 0; i < N; i++) assert_true(sums[i] == 15 && got[i] == 1 << (i + N - 1) % N);
    assert_int_equal(nccl.GroupStart(), OK);
    for (int i = 0; i < N; i++) assert_int_equal(nccl.CommSplit(comms[i], i / 2, 0, &halves[i], NULL), OK);
    assert_null(halves[0]);
    assert_int_equal(nccl.GroupEnd(), OK);
    assert_int_equal(nccl.GroupStart(), OK);
    for (int i = 0; i < N; i++)
        assert_int_equal(nccl.AllReduce(&words[i], &sums[i], 1, INT32, SUM, halves[i], NULL), OK);
    assert_int_equal(nccl.GroupEnd(), OK);
    for (int i = 0; i < N; i++) assert_int_equal(sums[i], i < 2 ? 3 : 12);
    for (int i = 0; i < N; i++) assert_int_equal(nccl.CommDestroy(comms[i]), OK); /* parents first */
    for (int i = 0; i < N; i++) assert_int_equal(nccl.CommDestroy(halves[i]), OK);
}

/* "preloaded": nothing but whether the program has the library before it asks for it (tutti run --as-nccl). */
int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "preloaded") == 0) return !dlsym(RTLD_DEFAULT, "ncclGetVersion");
    static struct scene of_facts = {3, true, facts}, of_derived = {4, true, derived}, of_grown = {3, false, grown},
                        of_scalable = {3, false, scalable}, of_revoked = {3, true, revoked},
                        of_aborted = {2, true, aborted};
    nccl_open();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loading_starts_nothing),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_version),
        cmocka_unit_test(test_sentences),
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_init_refusals),
        cmocka_unit_test(test_call_refusals),
        cmocka_unit_test(test_no_device_api),
        cmocka_unit_test(test_no_plugins),
        cmocka_unit_test(test_group_refusal),
        cmocka_unit_test(test_simulation),
        cmocka_unit_test(test_configs),
        {"facts", scene_play, NULL, NULL, &of_facts},
        {"derived", scene_play, NULL, NULL, &of_derived},
        {"grown", scene_play, NULL, NULL, &of_grown},
        {"scalable", scene_play, NULL, NULL, &of_scalable},
        cmocka_unit_test(test_nonblocking),
        {"revoked", scene_play, NULL, NULL, &of_revoked},
        {"aborted", scene_play, NULL, NULL, &of_aborted},
        cmocka_unit_test(test_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
