/* SPDX-License-Identifier: BSD-3-Clause */
/* NCCL's codes, the sentence of the last error, the log that NCCL_DEBUG asks for, and the version. */
#include "shim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* nccl4py reads the mapped file for this text. */
__attribute__((used)) static const char build_text[] = "NCCL version 2.30.7+cuda13.0 by tutti";

/* ---- the last error: the process's. Slots are written anew only after many more errors, so readers need no lock ----
 */

#define SENTENCE 640
#define SLOTS 32
static char sentences[SLOTS][SENTENCE];
static _Atomic uint32_t n_sentences;
static _Atomic(const char *) last = "";

/* ---- the log ---- */

enum level { LEVEL_UNREAD, LEVEL_NONE, LEVEL_VERSION, LEVEL_WARN, LEVEL_INFO };
static _Atomic int level;

static int level_of(void)
{
    static const char *const names[] = {[LEVEL_NONE] = "NONE", [LEVEL_VERSION] = "VERSION", [LEVEL_WARN] = "WARN"};
    int now = atomic_load_explicit(&level, memory_order_relaxed);
    if (now != LEVEL_UNREAD) return now;
    const char *text = getenv("NCCL_DEBUG");
    now = text && *text ? LEVEL_INFO : LEVEL_NONE; /* INFO, ABORT and TRACE tell all there is */
    for (int i = LEVEL_NONE; i <= LEVEL_WARN && text; i++)
        if (strcasecmp(text, names[i]) == 0) now = i;
    atomic_store_explicit(&level, now, memory_order_relaxed);
    return now;
}

/* As in NCCL: %h is the host, %p the process. */
static void file_name(const char *pattern, const char *host, char *out, size_t room)
{
    size_t n = 0;
    for (const char *at = pattern; *at && n + 1 < room; at++) {
        if (*at == '%' && at[1] == 'h')
            n += (size_t)snprintf(out + n, room - n, "%s", host), at++;
        else if (*at == '%' && at[1] == 'p')
            n += (size_t)snprintf(out + n, room - n, "%ld", (long)getpid()), at++;
        else
            out[n++] = *at;
    }
    out[n < room ? n : room - 1] = '\0';
}

/* One write a line: lines of several ranks do not mix. */
static void write_line(const char *kind, const char *text)
{
    char line[SENTENCE + 128], name[512], host[64] = "";
    gethostname(host, sizeof host - 1);
    const int n = snprintf(line, sizeof line, "%s:%ld tutti-nccl %s %s\n", host, (long)getpid(), kind, text);
    if (n <= 0) return;
    FILE *file = NULL;
    const char *path = getenv("NCCL_DEBUG_FILE");
    if (path && *path) file_name(path, host, name, sizeof name), file = fopen(name, "a");
    FILE *to = file ? file : stderr;
    fwrite(line, 1, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1, to);
    if (file) fclose(file);
}

void nccl_log_info(const char *format, ...)
{
    char text[SENTENCE];
    if (level_of() < LEVEL_INFO) return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    write_line("INFO", text);
}

int nccl_fail(int code, const char *format, ...)
{
    char *slot = sentences[atomic_fetch_add(&n_sentences, 1) % SLOTS];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(slot, SENTENCE, format, arguments);
    va_end(arguments);
    atomic_store(&last, slot);
    if (level_of() >= LEVEL_WARN) write_line("WARN", slot);
    return code;
}

/* ---- codes ---- */

static const struct {
    enum tutti_status status;
    int code;
} codes[] = {
    {TUTTI_ERR_ARGUMENT, NCCL_INVALID_ARGUMENT}, {TUTTI_ERR_UNSUPPORTED, NCCL_INVALID_USAGE},
    {TUTTI_ERR_MEMORY, NCCL_SYSTEM_ERROR},       {TUTTI_ERR_SYSTEM, NCCL_SYSTEM_ERROR},
    {TUTTI_ERR_PEER_DEAD, NCCL_REMOTE_ERROR},    {TUTTI_ERR_PEER_LEFT, NCCL_REMOTE_ERROR},
    {TUTTI_ERR_ABORTED, NCCL_REMOTE_ERROR},      {TUTTI_ERR_TIMEOUT, NCCL_TIMEOUT},
    {TUTTI_ERR_MISMATCH, NCCL_INVALID_USAGE},    {TUTTI_ERR_CONFIG, NCCL_INVALID_USAGE},
    {TUTTI_ERR_AUTH, NCCL_SYSTEM_ERROR},         {TUTTI_ERR_BOOTSTRAP, NCCL_SYSTEM_ERROR},
};

int nccl_code(enum tutti_status status)
{
    if (status == TUTTI_OK) return NCCL_SUCCESS;
    if (status > 0) return NCCL_IN_PROGRESS;
    for (size_t i = 0; i < NCCL_COUNT(codes); i++)
        if (codes[i].status == status) return codes[i].code;
    return NCCL_INTERNAL_ERROR;
}

int nccl_told(enum tutti_status status)
{
    if (status >= 0) return nccl_code(status);
    return nccl_fail(nccl_code(status), "%s", tutti_last_error()->text);
}

NCCL_TWIN(GetErrorString);
const char *pncclGetErrorString(int result)
{
    static const char *const texts[NCCL_N_RESULTS] = {
        [NCCL_SUCCESS] = "no error",
        [NCCL_UNHANDLED_CUDA_ERROR] = "a call of CUDA failed (NCCL_DEBUG=WARN says which)",
        [NCCL_SYSTEM_ERROR] = "a system call or a connection failed (NCCL_DEBUG=WARN says which)",
        [NCCL_INTERNAL_ERROR] = "internal error",
        [NCCL_INVALID_ARGUMENT] = "invalid argument (NCCL_DEBUG=WARN says which)",
        [NCCL_INVALID_USAGE] = "invalid usage (NCCL_DEBUG=WARN says why)",
        [NCCL_REMOTE_ERROR] = "another rank died, left or ended the communicator",
        [NCCL_IN_PROGRESS] = "in progress",
        [NCCL_TIMEOUT] = "the deadline passed",
    };
    return (unsigned)result < NCCL_N_RESULTS ? texts[result] : "unknown result code";
}

NCCL_TWIN(GetLastError);
const char *pncclGetLastError(struct ncclComm *comm)
{
    (void)comm; /* the process's, as in NCCL */
    return atomic_load(&last);
}

/* ---- version ---- */

static int version_told(void)
{
    uint64_t number;
    int major, minor, patch;
    char text[32], behind;
    if (tutti_option_get("nccl_version", text, sizeof text, &number) < 0 || !*text) return NCCL_VERSION;
    if (sscanf(text, "%d.%d.%d%c", &major, &minor, &patch, &behind) == 3 && (unsigned)major < 1000 &&
        (unsigned)minor < 100 && (unsigned)patch < 100)
        return major * 10000 + minor * 100 + patch;
    nccl_fail(NCCL_SUCCESS, "TUTTI_NCCL_VERSION=%s: is not like 2.28.9", text);
    return NCCL_VERSION;
}

NCCL_TWIN(GetVersion);
int pncclGetVersion(int *version)
{
    if (!version) return nccl_fail(NCCL_INVALID_ARGUMENT, "ncclGetVersion: version is NULL");
    *version = version_told();
    return NCCL_SUCCESS;
}

void ncclResetDebugInitInternal(void)
{
    atomic_store(&level, LEVEL_UNREAD);
}

NCCL_TWIN(ResetDebugInit);
void pncclResetDebugInit(void)
{
    ncclResetDebugInitInternal();
}

/* Where NCCL says its version: when the first communicator is made. */
void nccl_log_version(void)
{
    static _Atomic bool said;
    char text[96];
    if (level_of() < LEVEL_VERSION || atomic_exchange(&said, true)) return;
    const int version = version_told();
    snprintf(text, sizeof text, "NCCL version %d.%d.%d by tutti %s", version / 10000, version / 100 % 100,
             version % 100, tutti_version_text());
    write_line("INFO", text);
}
