/* SPDX-License-Identifier: BSD-3-Clause */

/* Drives a fuzz target without libFuzzer: every file of the corpus as it is, then mutations of it that are equal from
 * run to run. usage: fuzz_NAME CORPUS [mutations of a file] */

#include "fuzz.h"

#include <dirent.h>
#include <inttypes.h>

#define MAX_BYTES 65536

static uint64_t random_state = UINT64_C(0x74757474690a);

static size_t random_below(size_t n)
{
    random_state ^= random_state << 13, random_state ^= random_state >> 7, random_state ^= random_state << 17;
    return n ? (size_t)(random_state % n) : 0;
}

/* Each input is a copy of its own size, so that AddressSanitizer sees a read past its end. */
static void feed(const uint8_t *bytes, size_t n)
{
    uint8_t *copy = malloc(n ? n : 1);
    if (!copy) abort();
    memcpy(copy, bytes, n);
    LLVMFuzzerTestOneInput(copy, n);
    free(copy);
}

static size_t mutate(uint8_t *bytes, size_t n)
{
    static const char *const words[] = {"-1", "0", "4294967295", "18446744073709551616", "\n", " ", "=", "\xff", "%s"};
    for (size_t edits = 1 + random_below(4); edits > 0; edits--) {
        size_t at = random_below(n), kind = random_below(5);
        if (kind == 0 && n > 0) bytes[at] = (uint8_t)random_below(256);
        if (kind == 1 && n > 0) bytes[at] ^= (uint8_t)(1u << random_below(8));
        if (kind == 2) n = random_below(n + 1);
        if (kind == 3) { /* a word over what is there */
            const char *word = words[random_below(sizeof words / sizeof words[0])];
            size_t length = strlen(word);
            if (at + length <= n) memcpy(bytes + at, word, length);
        }
        if (kind == 4 && n > 0) { /* a piece doubled */
            size_t length = random_below(n - at);
            if (n + length <= MAX_BYTES) {
                memmove(bytes + at + length, bytes + at, n - at);
                n += length;
            }
        }
    }
    return n;
}

static void replay_file(const char *path, unsigned long n_mutations)
{
    static uint8_t original[MAX_BYTES], changed[MAX_BYTES];
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        exit(1);
    }
    size_t n = fread(original, 1, sizeof original, file);
    fclose(file);
    feed(original, n);
    for (unsigned long i = 0; i < n_mutations; i++) {
        memcpy(changed, original, n);
        feed(changed, mutate(changed, n));
    }
}

int main(int argc, char **argv)
{
    char path[4096];
    size_t n_files = 0;
    struct dirent **entries = NULL;
    if (argc < 2) return fprintf(stderr, "usage: %s CORPUS [mutations of a file]\n", argv[0]), 2;
    unsigned long n_mutations = argc > 2 ? strtoul(argv[2], NULL, 10) : 1000;
    int n = scandir(argv[1], &entries, NULL, alphasort); /* sorted: equal from run to run */
    if (n < 0) return perror(argv[1]), 1;
    for (int i = 0; i < n; i++) {
        if (entries[i]->d_name[0] != '.') {
            snprintf(path, sizeof path, "%s/%s", argv[1], entries[i]->d_name);
            replay_file(path, n_mutations);
            n_files++;
        }
        free(entries[i]);
    }
    free(entries);
    printf("%zu files, %lu mutations of each\n", n_files, n_mutations);
    return n_files == 0;
}
