/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_LOAD_LOAD_H
#define TUTTI_LOAD_LOAD_H

/* Algorithms from files: C that is compiled here, shared objects, Python that is traced, plans of others (MSCCL,
 * MSCCL++). Loading gives a struct tutti_algorithm like those of the table, which names and options then know; before
 * its first call in a shape it is proved, in a process of its own. This room may use base, sched and algo. Begin with
 * load.c, whose table has a row for each form of file; proof.c has the proofs, folder.c what is kept between processes.
 *
 * Threads: any, all calls; one thread loads or proves at a time. What was loaded stays for the life of the process. */

#include "algo/algo.h"
#include "base/config.h"
#include "sched/plan.h"

/* ---- files (load.c) ---- */
/* Whether a name of an algorithm is a path: it has a slash, or ends with a suffix of the table (a radix aside). */
bool tutti_load_is_path(const char *name);
/* Reads and registers the file, anew if its contents have changed. config: where the options cc, python and command
 * stand; NULL: file and environment. ARGUMENT: a sentence that begins with the path: there is no such file, no such
 * form, it does not compile, it is no algorithm. SYSTEM, MEMORY. */
enum tutti_status tutti_load(const struct tutti_config *config, const char *path, const struct tutti_algorithm **out);
/* What a call or an option names: a path that was not loaded is loaded. NULL: no such algorithm. */
enum tutti_status tutti_load_find(const struct tutti_config *config, const char *name, uint32_t *radix,
                                  const struct tutti_algorithm **out);
/* All files of a list (commas or colons between them), and for each kind the one algorithm among them that offers it
 * (NULL: none, or several). The list becomes names and hashes, which all ranks must have alike. */
enum tutti_status tutti_load_list(struct tutti_config *config, const struct tutti_algorithm *only[TUTTI_N_KINDS]);

/* The one number of ranks that the algorithm of a file is for; 0: it is not for one alone. */
uint32_t tutti_load_ranks(const struct tutti_algorithm *algorithm);

/* Loads the files that the option algorithm names ("all_reduce=./mine.c"). */
enum tutti_status tutti_load_overrides(const struct tutti_config *config);

/* ---- proofs (proof.c) ---- */
/* OK: the algorithm of a file is proved for this world; found out once, and kept on disk. ARGUMENT: refused, with the
 * counterexample as a sentence. UNSUPPORTED: it can not be proved here, and why. Blocks for as long as the proof takes;
 * a later time costs some 20 ns. Those of the table are proved. */
enum tutti_status tutti_load_prove(const struct tutti_config *config, const struct tutti_algorithm *algorithm,
                                   enum tutti_kind kind, const struct tutti_shape *shape);

/* ---- inside the room: forms of files ---- */
/* The file that the prover is given for a loaded algorithm. */
const char *tutti_load_subject(const struct tutti_algorithm *algorithm);
#define TUTTI_LOAD_MOST_BYTES (UINT64_C(64) << 20) /* a file's, at most */
struct tutti_load_source {
    const char *path; /* as the user wrote it: sentences begin with it */
    const char *text; /* and a zero behind it */
    size_t bytes;
    uint64_t hash; /* the contents' */
    const struct tutti_config *config;
};
/* Fills *out but for its identity. What it points to must stay for the life of the process; on failure it is freed.
 * subject: the file that proves the same ("": the source's text). */
enum tutti_status tutti_open_c(const struct tutti_load_source *source, struct tutti_algorithm *out, char *subject);
enum tutti_status tutti_open_object(const struct tutti_load_source *source, struct tutti_algorithm *out, char *subject);
enum tutti_status tutti_open_python(const struct tutti_load_source *source, struct tutti_algorithm *out, char *subject);
enum tutti_status tutti_open_mscclpp(const struct tutti_load_source *source, struct tutti_algorithm *out,
                                     char *subject);
enum tutti_status tutti_open_plan(const struct tutti_load_source *source, struct tutti_algorithm *out, char *subject);
enum tutti_status tutti_open_msccl(const struct tutti_load_source *source, struct tutti_algorithm *out, char *subject);
/* Keeps the source's text as a file for the prover, who is given what was read here, not what the file may be by then.
 */
enum tutti_status tutti_subject_keep(const struct tutti_load_source *source, const char *suffix, char *subject);
/* The hash goes on over the files that the text includes by names in quotes, from the folder of path on. */
uint64_t tutti_includes_hash(const char *path, const char *text, uint32_t depth, uint64_t seed);
/* The object at a path of our own. */
enum tutti_status tutti_object_open(const struct tutti_load_source *source, const char *object,
                                    struct tutti_algorithm *out);

/* ---- inside the room: the user's folder (folder.c) ---- */
/* What is made from files is kept by the hash of all that it was made from, in $XDG_CACHE_HOME/tutti/algorithms,
 * ~/.cache/tutti/algorithms or, where neither can be, /tmp/tutti-UID. Nobody else may write there, or it is not used.
 */
#define TUTTI_KEPT_NAME 64
/* The path of a name in it, PATH_MAX bytes; the folder is made. SYSTEM. */
enum tutti_status tutti_kept_path(const char *name, char *out);
/* Makes the folders of a name that has some. */
enum tutti_status tutti_kept_folder(const char *name);
/* Reads a kept file: text with a zero behind it, freed by the caller. False: there is none, or it is older. */
bool tutti_kept_read(const char *name, uint64_t youngest_s, char **text, size_t *bytes);
/* Writes it whole or not at all. SYSTEM. */
enum tutti_status tutti_kept_write(const char *name, const void *text, size_t bytes);
/* One process at a time makes a name; -1 where that can not be had within two minutes. */
int tutti_kept_lock(const char *name);
void tutti_kept_unlock(int lock);
/* A file, at most so long, as text with a zero behind it; freed by the caller. SYSTEM (errno), ARGUMENT (too long, no
 * file). */
enum tutti_status tutti_text_read(const char *path, uint64_t most_bytes, char **text, size_t *bytes);

/* ---- inside the room: programs (spawn.c) ---- */
struct tutti_spawned {
    char *output; /* stdout and stderr together, and a zero behind it; freed by the caller */
    size_t bytes;
    int status;      /* as waitpid gives it */
    bool late, huge; /* it was ended: it took too long, or wrote too much */
};
/* Runs a program of the PATH with no input, and waits for it. SYSTEM: it can not be started. */
enum tutti_status tutti_spawn(const char *const *words, uint64_t timeout_ns, size_t most_bytes,
                              struct tutti_spawned *out);
/* The sentence's end for one that did not exit with 0: "is ended by signal 11 (...)"; "" else. */
void tutti_spawned_text(const struct tutti_spawned *spawned, char *out, size_t capacity);

#endif
