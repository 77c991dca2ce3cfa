/* SPDX-License-Identifier: BSD-3-Clause */
/* Unique ids. The process that makes one serves a store, one for all its ids, from a thread that it starts then and
 * that lives as long as the process; the id says where, and holds the random name and secret that its ranks meet with.
 * Ranks of the same host go there by the loopback device, whatever address the others take. */
#include "shim.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAGIC "tuttiid1"
#define STORE_NS UINT64_C(60000000000) /* for the store to answer: it is there before the id is */
enum {
    RANDOM_BYTES = 16,
    FROM_VARIABLE = 1, /* NCCL_COMM_ID: rank 0 serves the store */
    OPEN = 2,          /* without a secret: this build has no HMAC */
};

struct id {
    char magic[8];
    unsigned char name[RANDOM_BYTES], secret[RANDOM_BYTES];
    uint64_t host;
    uint16_t port;
    uint8_t flags, unused;
    char address[48];
};
_Static_assert(sizeof(struct id) <= sizeof(struct nccl_id), "an id holds it");

/* ---- this host ---- */

static uint64_t hash_of(const void *bytes, size_t n, uint64_t hash)
{
    for (size_t i = 0; i < n; i++) hash = (hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* The boot and the network namespace: who has the same reaches what listens at the loopback device. */
static uint64_t host_identity(void)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    char boot[64] = "";
    struct stat net;
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file) {
        const size_t n = fread(boot, 1, sizeof boot, file);
        hash = hash_of(boot, n, hash);
        fclose(file);
    }
    if (stat("/proc/self/ns/net", &net) == 0) hash = hash_of(&net.st_ino, sizeof net.st_ino, hash);
    return hash;
}

/* "=eth0" is that name, "^lo,docker" none that begins so, "eth,ib" one that begins so. */
static bool is_named(const char *interface, const char *list)
{
    const bool exact = *list == '=', except = *list == '^';
    char copy[256], *rest = copy, *one;
    if (!*list) return true;
    snprintf(copy, sizeof copy, "%s", list + (exact || except));
    while ((one = strsep(&rest, ",")))
        if (*one && (exact ? strcmp(interface, one) == 0 : strncmp(interface, one, strlen(one)) == 0)) return !except;
    return except;
}

/* The better of the addresses of this host that others may reach: 4 before 6, none is 0. */
static int rank_address(const struct ifaddrs *entry, const char *list, char *out, size_t room)
{
    const struct sockaddr *address = entry->ifa_addr;
    if (!address || !(entry->ifa_flags & IFF_UP) || !is_named(entry->ifa_name, list)) return 0;
    if (!*list && (entry->ifa_flags & IFF_LOOPBACK)) return 0;
    if (address->sa_family == AF_INET)
        return inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)address)->sin_addr, out, (socklen_t)room)
                   ? 2
                   : 0;
    if (address->sa_family != AF_INET6) return 0;
    const struct in6_addr *six = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    return !IN6_IS_ADDR_LINKLOCAL(six) && inet_ntop(AF_INET6, six, out, (socklen_t)room) ? 1 : 0;
}

/* A list of what not to take may leave nothing: then it is this host alone. */
static int address_find(char *out, size_t room)
{
    const char *named = getenv("NCCL_SOCKET_IFNAME");
    char text[48], option[64] = "";
    uint64_t number;
    int best = 0;
    struct ifaddrs *all = NULL;
    if (!named && tutti_option_get("interface", option, sizeof option, &number) == TUTTI_OK) named = option;
    unsigned char binary[16];
    const bool told = named && (inet_pton(AF_INET, named, binary) == 1 || inet_pton(AF_INET6, named, binary) == 1);
    snprintf(out, room, "%s", told ? named : "127.0.0.1");
    if (told || getifaddrs(&all) != 0) return NCCL_SUCCESS;
    for (const struct ifaddrs *entry = all; entry; entry = entry->ifa_next) {
        const int found = rank_address(entry, named ? named : "", text, sizeof text);
        if (found <= best) continue;
        best = found;
        snprintf(out, room, "%s", text);
    }
    freeifaddrs(all);
    if (best || !named || !*named || *named == '^') return NCCL_SUCCESS;
    return nccl_fail(NCCL_INVALID_USAGE, "ncclGetUniqueId: no interface with an address is named \"%s\" (%s)", named,
                     named == option ? "TUTTI_INTERFACE" : "NCCL_SOCKET_IFNAME");
}

/* ---- the store of this process ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    pid_t process; /* a child makes its own */
    struct tutti_store_server *server;
    unsigned char secret[RANDOM_BYTES];
    bool open;
} served; /* under the lock */

static void hex(const unsigned char *bytes, char *out)
{
    for (size_t i = 0; i < RANDOM_BYTES; i++) snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

/* Without a secret others are told of the store only where the network is trusted. */
static bool is_trusted(void)
{
    char text[8];
    uint64_t trusted = 0;
    return tutti_option_get("trust_network", text, sizeof text, &trusted) == TUTTI_OK && trusted;
}

static int serve(const struct id *id)
{
    char text[NCCL_NAME_BYTES];
    struct tutti_store_server *server;
    const bool six = strchr(id->address, ':') != NULL; /* takes 4, too */
    const char *any = six ? "::" : "0.0.0.0";
    hex(id->secret, text);
    enum tutti_status status = tutti_store_server_open(any, id->port, text, &server);
    served.open = status == TUTTI_ERR_UNSUPPORTED;
    if (served.open) status = tutti_store_server_open(is_trusted() ? any : "127.0.0.1", id->port, NULL, &server);
    if (status < 0) return nccl_told(status);
    served.process = getpid();
    served.server = server;
    memcpy(served.secret, id->secret, RANDOM_BYTES);
    return NCCL_SUCCESS;
}

static int random_fill(void *out, size_t bytes)
{
    if (getrandom(out, bytes, 0) == (ssize_t)bytes) return NCCL_SUCCESS;
    return nccl_fail(NCCL_SYSTEM_ERROR, "ncclGetUniqueId: no random bytes: errno %d", errno);
}

/* ---- making ---- */

/* host:port or [host]:port. */
static int id_of_variable(const char *text, struct id *out)
{
    const char *colon = strrchr(text, ':'), *begin = text, *end = colon;
    const long port = colon ? strtol(colon + 1, NULL, 10) : 0;
    if (colon && *text == '[' && colon > text && colon[-1] == ']') begin++, end--;
    if (!colon || end <= begin || (size_t)(end - begin) >= sizeof out->address || port <= 0 || port > UINT16_MAX)
        return nccl_fail(NCCL_INVALID_ARGUMENT, "ncclGetUniqueId: NCCL_COMM_ID is \"%s\" and not host:port", text);
    memcpy(out->address, begin, (size_t)(end - begin));
    out->port = (uint16_t)port;
    out->flags = FROM_VARIABLE;
    for (size_t i = 0; i < RANDOM_BYTES; i++) {
        out->name[i] = (unsigned char)(hash_of(text, strlen(text), 2 * i + 1) >> 32);
        out->secret[i] = (unsigned char)(hash_of(text, strlen(text), 2 * i + 2) >> 32);
    }
    return NCCL_SUCCESS;
}

static int id_of_store(struct id *out)
{
    NCCL_TRY(random_fill(out->name, sizeof out->name));
    NCCL_TRY(random_fill(out->secret, sizeof out->secret));
    NCCL_TRY(address_find(out->address, sizeof out->address));
    pthread_mutex_lock(&lock);
    int result = NCCL_SUCCESS;
    if (served.process != getpid()) result = serve(out);
    if (result == NCCL_SUCCESS) {
        memcpy(out->secret, served.secret, sizeof out->secret);
        out->port = tutti_store_server_port(served.server);
        out->flags = served.open ? OPEN : 0;
    }
    pthread_mutex_unlock(&lock);
    NCCL_TRY(result);
    out->host = host_identity();
    return NCCL_SUCCESS;
}

int nccl_id_make(struct nccl_id *out)
{
    const char *variable = getenv("NCCL_COMM_ID");
    struct id id = {.magic = MAGIC};
    NCCL_TRY(variable && *variable ? id_of_variable(variable, &id) : id_of_store(&id));
    memset(out, 0, sizeof *out);
    memcpy(out, &id, sizeof id);
    return NCCL_SUCCESS;
}

NCCL_TWIN(GetUniqueId);
int pncclGetUniqueId(struct nccl_id *id)
{
    if (!id) return nccl_fail(NCCL_INVALID_ARGUMENT, "ncclGetUniqueId: id is NULL");
    return nccl_id_make(id);
}

/* ---- using ---- */

int nccl_id_check(const char *call, const struct nccl_id *given)
{
    struct id id;
    memcpy(&id, given, sizeof id);
    if (memcmp(id.magic, MAGIC, sizeof id.magic) == 0 && memchr(id.address, '\0', sizeof id.address))
        return NCCL_SUCCESS;
    return nccl_fail(NCCL_INVALID_ARGUMENT,
                     "%s: the id is not from ncclGetUniqueId of this library: all ranks of a communicator load tutti's "
                     "libnccl.so.2, or none does",
                     call);
}

/* The id of NCCL_COMM_ID is that of all communicators: each rank counts its own in the store. */
static int generation(const struct id *id, int rank, const struct tutti_store *store, char name[NCCL_NAME_BYTES])
{
    char key[32];
    int64_t count = 0;
    if (!(id->flags & FROM_VARIABLE) || !store->ops) return NCCL_SUCCESS;
    snprintf(key, sizeof key, "nccl-count-%d", rank);
    NCCL_TRY(nccl_told(store->ops->add(store->self, key, 1, &count)));
    const size_t n = strlen(name);
    snprintf(name + n, NCCL_NAME_BYTES - n, "-%u", (unsigned)count);
    return NCCL_SUCCESS;
}

int nccl_id_names(const struct nccl_id *given, int rank, const struct tutti_store *store, char name[NCCL_NAME_BYTES],
                  char secret[NCCL_NAME_BYTES])
{
    struct id id;
    memcpy(&id, given, sizeof id);
    memcpy(name, "nccl-", 5);
    hex(id.name, name + 5);
    hex(id.secret, secret);
    if (id.flags & OPEN) secret[0] = '\0';
    return generation(&id, rank, store, name);
}

static int serve_variable(const struct id *id)
{
    pthread_mutex_lock(&lock);
    int result = NCCL_SUCCESS;
    if (served.process != getpid() || tutti_store_server_port(served.server) != id->port) result = serve(id);
    pthread_mutex_unlock(&lock);
    return result;
}

int nccl_id_store(const struct nccl_id *given, int rank, struct tutti_store *out)
{
    char address[96], secret[NCCL_NAME_BYTES];
    struct timespec now;
    struct id id;
    memcpy(&id, given, sizeof id);
    if (rank == 0 && id.flags & FROM_VARIABLE) NCCL_TRY(serve_variable(&id));
    const bool here = (rank == 0 && id.flags & FROM_VARIABLE) || id.host == host_identity();
    const bool six = !here && strchr(id.address, ':');
    snprintf(address, sizeof address, "tcp://%s%s%s:%u", six ? "[" : "", here ? "127.0.0.1" : id.address,
             six ? "]" : "", id.port);
    hex(id.secret, secret);
    clock_gettime(CLOCK_MONOTONIC, &now);
    const uint64_t now_ns = (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
    return nccl_told(tutti_store_open(address, id.flags & OPEN ? NULL : secret, now_ns + STORE_NS, out));
}
