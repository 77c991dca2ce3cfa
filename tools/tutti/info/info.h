/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TOOLS_INFO_H
#define TUTTI_TOOLS_INFO_H

/* `tutti info` says what this machine and this build are. It may use most rooms of the library, for it looks into them.
 * Begin with cmd_info.c. Facts are gathered in sections (info_facts.c, info_host.c, info_gpu.c, info_job.c,
 * info_probe.c), then written as a page or as JSON (info_show.c). */

#include "base/config.h"

#include <stdio.h>

enum info_type { INFO_TEXT, INFO_NUMBER, INFO_FLAG };
struct info_fact {
    const char *section, *name; /* static; JSON's keys, too */
    enum info_type type;
    uint64_t number;  /* flag: 0 or 1 */
    char text[512];   /* text; of a number or flag: what a person reads */
    const char *note; /* static; for a person alone; may be NULL */
};
/* Something that is not there, and how to get it. */
struct info_lack {
    char what[64], effect[320], remedy[160];
};
struct info {
    struct info_fact facts[160];
    struct info_lack lacks[16];
    size_t n_facts, n_lacks;
    const struct tutti_config *config; /* NULL: the configuration is wrong; config_error says why */
    char config_error[TUTTI_ERROR_TEXT];
};

void info_text(struct info *info, const char *section, const char *name, const char *note, const char *format, ...)
    TUTTI_PRINTF(5, 6);
void info_number(struct info *info, const char *section, const char *name, const char *note, uint64_t number);
void info_bytes(struct info *info, const char *section, const char *name, const char *note, uint64_t bytes);
void info_flag(struct info *info, const char *section, const char *name, const char *note, bool flag);
void info_lack(struct info *info, const char *what, const char *effect, const char *remedy);

/* ---- gathering ---- */
void info_facts_gather(struct info *info, bool verbose);
void info_host_gather(struct info *info); /* the processors, and what this process may use of them */
/* GPUs of all makers; verbose: and what is not proved of them. */
void info_gpus_gather(struct info *info, bool verbose);
void info_nccl_gather(struct info *info);
void info_oneccl_gather(struct info *info);
/* Meets the other ranks of the job that this process is started in, and tells what they make of one another; *speaks
 * becomes false on all ranks but one. False when they do not meet. */
bool info_job_gather(struct info *info, bool *speaks);
void info_probes_gather(struct info *info); /* what the kernel and the build lack */

/* ---- writing ---- */
void info_page_write(FILE *out, const struct info *info);
void info_options_write(FILE *out, const struct info *info);
void info_options_document(FILE *out); /* docs/options.md */
void info_json_write(FILE *out, const struct info *info, bool options_only);

#endif
