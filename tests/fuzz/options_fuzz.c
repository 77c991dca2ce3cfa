/* SPDX-License-Identifier: BSD-3-Clause */

/* The option parser: the input is a configuration file (TUTTI_CONFIG), and its lines are options of the API, too. A
 * configuration that is accepted hashes equally twice and describes itself; one that is not leaves a sentence. Options
 * name files (log_file, secret_file): while the library runs, no file but the input can be opened. */

#include "base/config.h"
#include "fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_OPTIONS 16
#define INPUT "/proc/self/fd/"

static bool in_library;

static bool refused(const char *path)
{
    if (!in_library || strncmp(path, INPUT, strlen(INPUT)) == 0) return false;
    errno = EACCES;
    return true;
}

/* The linker's --wrap sends every open and fopen of the program here. */
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    unsigned mode = (flags & O_CREAT) ? va_arg(args, unsigned) : 0;
    va_end(args);
    return refused(path) ? -1 : __real_open(path, flags, mode);
}
FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode)
{
    return refused(path) ? NULL : __real_fopen(path, mode);
}

static void check(const struct tutti_option *options, size_t n)
{
    struct tutti_config config;
    char text[256];
    memset(&config, 0, sizeof config);
    in_library = true;
    enum tutti_status status = tutti_config_init(&config, options, n);
    in_library = false;
    tutti_log_threshold = TUTTI_LOG_ERROR; /* whatever the input asked for */
    if (status != TUTTI_OK) {
        FUZZ_CHECK(tutti_last_error()->text[0] != '\0');
        return;
    }
    FUZZ_CHECK(tutti_config_hash(&config) == tutti_config_hash(&config));
    tutti_config_agreed_text(&config, text, sizeof text);
    FUZZ_CHECK(memchr(text, '\0', sizeof text) != NULL);
    for (unsigned id = 0; id < TUTTI_N_OPTIONS; id++) FUZZ_CHECK(config.text[id] != NULL);
    tutti_config_fini(&config);
}

static void as_file(const uint8_t *bytes, size_t n)
{
    char path[64];
    int fd = memfd_create("fuzz", 0);
    FUZZ_CHECK(fd >= 0);
    FUZZ_CHECK(write(fd, bytes, n) == (ssize_t)n);
    snprintf(path, sizeof path, INPUT "%d", fd);
    setenv("TUTTI_CONFIG", path, 1);
    check(NULL, 0);
    unsetenv("TUTTI_CONFIG");
    close(fd);
}

static void as_options(const uint8_t *bytes, size_t n)
{
    struct tutti_option options[MAX_OPTIONS];
    size_t n_options = 0;
    char *text = malloc(n + 1), *rest = text, *line;
    FUZZ_CHECK(text != NULL);
    memcpy(text, bytes, n);
    text[n] = '\0';
    while (n_options < MAX_OPTIONS && (line = strsep(&rest, "\n")) != NULL) {
        char *value = strchr(line, '=');
        if (value) *value++ = '\0';
        options[n_options++] = (struct tutti_option){line, value ? value : ""};
        uint64_t size = 0, time = 0;
        (void)tutti_parse_size(options[n_options - 1].value, &size);
        (void)tutti_parse_time(options[n_options - 1].value, &time);
    }
    check(options, n_options);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    as_file(bytes, n);
    as_options(bytes, n);
    return 0;
}
