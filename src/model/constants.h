/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_MODEL_CONSTANTS_H
#define TUTTI_MODEL_CONSTANTS_H

/* Measured constants in files of lines `name value`, for whatever is described by a table of them: hosts (machine.h),
 * GPUs. Values are floats of a structure. */

#include "base/base.h"

struct tutti_constant {
    const char *name, *help;
    float minimum, maximum;
    size_t offset; /* the float's place in its structure */
};
struct tutti_constants {
    const struct tutti_constant *rows;
    size_t n;         /* at most 32 */
    size_t bytes;     /* the structure's size */
    const char *what; /* "a machine", for sentences */
};
#define TUTTI_CONSTANTS_MOST_BYTES 128
float *tutti_constant_at(const struct tutti_constants *table, void *values, size_t i);

/* What the file does not name keeps its value. ARGUMENT with file and line when a name is not known or given twice, or
 * a value no number in its range; SYSTEM when the file can not be read (the record has errno). Independent of the
 * locale. */
enum tutti_status tutti_constants_read(const struct tutti_constants *table, const char *path, void *values);
/* Replaces the file at once, making its directories; `about` becomes its first line, a comment. SYSTEM. */
enum tutti_status tutti_constants_write(const struct tutti_constants *table, const char *path, const void *values,
                                        const char *about);
/* The path of the file for `name` when no option says another: $XDG_CACHE_HOME/tutti/NAME-N.tune, else
 * ~/.cache/tutti/..., with "AMD EPYC 9B45" as "amd-epyc-9b45". False when neither variable names a directory or the
 * path is too long. */
bool tutti_constants_path(const char *name, uint32_t n, char *out, size_t capacity);

#endif
