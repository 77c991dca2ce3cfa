/* SPDX-License-Identifier: BSD-3-Clause */
/* Python files: run by the user's interpreter, once to say what they offer and once for each world, beside a module of
 * ours (bindings/python/tutti/tracer.py, of which the library has a copy). What the functions emit comes back as the text of
 * a plan (sched/plan.h), which is read as that of a stranger. Texts are kept by the hash of file, module and world, so
 * that one process of a user on a host runs Python, and a file that was traced needs no Python. */

#include "load/load.h"

#include <load_python.h>

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define RUN_NS (300 * TUTTI_NS_PER_S) /* the module's limit of processor time comes first */
#define OUTPUT_BYTES (1 << 16)
#define EXIT_UNSUPPORTED 3
#define ENDLESS "does not come to an end"

/* What the functions emit in one world, or why they do not. */
struct trace {
    struct tutti_shape shape;
    struct tutti_plan plan;
    enum tutti_status status; /* OK: there is a plan */
    char why[TUTTI_ERROR_TEXT];
    struct trace *next;
};
struct traced {
    struct tutti_schedule_ops ops; /* first: who has the ops has this */
    enum tutti_kind kind;
    struct script *script;
    struct trace *traces; /* the last one used in front */
};
struct script {
    pthread_mutex_t lock;         /* traces; and one thread runs Python */
    uint64_t key;                 /* hash of file and module */
    char stuck[TUTTI_ERROR_TEXT]; /* it did not come to an end once, and is not run again; else "" */
    char *path, *copy, *python;
    char *interpreter;          /* that python stands for; NULL: not known yet */
    char *name, *help, *source; /* the algorithm's */
    struct traced kinds[TUTTI_N_KINDS];
};

/* ---- running the module ---- */

static uint64_t module_hash(void)
{
    return tutti_hash64(tutti_python_tracer, (size_t)(tutti_python_end_tracer - tutti_python_tracer), 0);
}

/* The module's file, which is written once. */
static enum tutti_status module_write(char *path)
{
    char name[TUTTI_KEPT_NAME];
    snprintf(name, sizeof name, "python-%016llx/tutti.py", (unsigned long long)module_hash());
    TUTTI_TRY(tutti_kept_folder(name));
    TUTTI_TRY(tutti_kept_path(name, path));
    if (access(path, R_OK) != 0)
        TUTTI_TRY(tutti_kept_write(name, tutti_python_tracer, (size_t)(tutti_python_end_tracer - tutti_python_tracer)));
    return TUTTI_OK;
}

/* The line of the module, which is the last one that is not empty. */
static void said(char *output, char *out, size_t capacity)
{
    size_t n = strlen(output);
    while (n > 0 && output[n - 1] == '\n') output[--n] = '\0';
    const char *line = strrchr(output, '\n');
    snprintf(out, capacity, "%.350s", line ? line + 1 : output);
}

static enum tutti_status run_failed(const struct script *script, struct tutti_spawned *ran)
{
    char how[96], line[TUTTI_ERROR_TEXT - 40];
    tutti_spawned_text(ran, how, sizeof how);
    said(ran->output, line, sizeof line);
    if (WIFEXITED(ran->status) && WEXITSTATUS(ran->status) == EXIT_UNSUPPORTED && !ran->late)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s", line);
    if (WIFEXITED(ran->status) && WEXITSTATUS(ran->status) == 127)
        return tutti_fail(TUTTI_ERR_SYSTEM,
                          "%s needs an interpreter, but there is no \"%s\" (option python, "
                          "TUTTI_PYTHON)",
                          script->path, script->python);
    if (WIFSIGNALED(ran->status) && (WTERMSIG(ran->status) == SIGXCPU || WTERMSIG(ran->status) == SIGKILL))
        snprintf(how, sizeof how, ENDLESS);
    if (WIFSIGNALED(ran->status) || ran->late || ran->huge || !line[0])
        return tutti_fail(TUTTI_ERR_ARGUMENT, "%s %s", script->path, how[0] ? how : "writes nothing");
    return tutti_fail(TUTTI_ERR_ARGUMENT, "%s", line);
}

/* Runs the module, as a program, on the file; what it writes is kept as `name`. world: five words, or none to ask what
 * it offers. */
static enum tutti_status run(const struct script *script, const char *name, const char *const world[5])
{
    char module[PATH_MAX], place[PATH_MAX], beside[PATH_MAX], new_name[TUTTI_KEPT_NAME];
    const bool is_known = script->interpreter && access(script->interpreter, X_OK) == 0;
    struct tutti_spawned ran;
    TUTTI_TRY(module_write(module));
    TUTTI_TRY(tutti_kept_path(name, place));
    snprintf(new_name, sizeof new_name, "new-%d-%.16s", (int)getpid(), name);
    TUTTI_TRY(tutti_kept_path(new_name, beside));
    const char *words[20] = {"env",
                             "PYTHONHASHSEED=0",
                             "PYTHONDONTWRITEBYTECODE=1",
                             is_known ? script->interpreter : script->python,
                             module,
                             script->path,
                             script->copy,
                             beside};
    size_t n = 8;
    for (size_t i = 0; world && i < 5; i++) words[n++] = world[i];
    (void)unlink(beside);
    TUTTI_TRY(tutti_spawn(words, RUN_NS, OUTPUT_BYTES, &ran));
    enum tutti_status status = TUTTI_OK;
    if (ran.late || ran.huge || ran.status != 0 || access(beside, R_OK) != 0)
        status = run_failed(script, &ran);
    else if (rename(beside, place) != 0)
        status = tutti_fail_errno(TUTTI_ERR_SYSTEM, "%s can not be written", place);
    (void)unlink(beside);
    tutti_free(ran.output);
    return status;
}

/* What the file's fault was, kept for as long as other ranks may ask the same: "1", or "0" where it does not do the
 * world, and the sentence. OK: nothing is kept. */
static enum tutti_status fault_read(const char *name)
{
    enum { YOUNGEST_S = 60 };
    char *text;
    size_t bytes;
    if (!tutti_kept_read(name, YOUNGEST_S, &text, &bytes)) return TUTTI_OK;
    const enum tutti_status status =
        tutti_fail(text[0] == '1' ? TUTTI_ERR_ARGUMENT : TUTTI_ERR_UNSUPPORTED, "%.400s", bytes > 0 ? text + 1 : "");
    tutti_free(text);
    return status;
}

static enum tutti_status fault_keep(const char *name, enum tutti_status status)
{
    const struct tutti_error why = *tutti_last_error();
    char text[TUTTI_ERROR_TEXT + 1];
    if (status != TUTTI_ERR_ARGUMENT && status != TUTTI_ERR_UNSUPPORTED) return status;
    snprintf(text, sizeof text, "%d%s", status == TUTTI_ERR_ARGUMENT, why.text);
    (void)tutti_kept_write(name, text, strlen(text)); /* else others find out by themselves */
    return tutti_fail_record(&why);
}

/* The kept text of that name, made where it is not there. */
static enum tutti_status text_of(const struct script *script, const char *name, const char *const world[5], char **text,
                                 size_t *bytes)
{
    char fault[TUTTI_KEPT_NAME];
    if (tutti_kept_read(name, 0, text, bytes)) return TUTTI_OK;
    snprintf(fault, sizeof fault, "%.48s.fault", name);
    const int lock = tutti_kept_lock(name);
    enum tutti_status status = TUTTI_OK;
    if (!tutti_kept_read(name, 0, text, bytes)) {
        status = fault_read(fault);
        if (status >= 0) {
            status = run(script, name, world);
            if (status < 0) status = fault_keep(fault, status);
        }
        if (status >= 0 && !tutti_kept_read(name, 0, text, bytes))
            status = tutti_fail(TUTTI_ERR_SYSTEM, "%s emits too much to be kept", script->path);
    }
    tutti_kept_unlock(lock);
    return status;
}

/* ---- plans ---- */

static void trace_make(struct script *script, enum tutti_kind kind, struct trace *trace)
{
    const struct tutti_shape *shape = &trace->shape;
    char size[16], root[16], radix[16], levels[640], name[TUTTI_KEPT_NAME], *text;
    const char *const world[5] = {tutti_kind_name(kind), size, root, radix, levels};
    size_t bytes;
    snprintf(size, sizeof size, "%u", shape->size);
    snprintf(root, sizeof root, "%u", shape->root);
    snprintf(radix, sizeof radix, "%u", shape->radix);
    tutti_shape_levels_text(shape, levels, sizeof levels);
    uint64_t key = script->key;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(world); i++) key = tutti_hash64(world[i], strlen(world[i]) + 1, key);
    snprintf(name, sizeof name, "%016llx.plan", (unsigned long long)key);
    trace->status = script->stuck[0] ? tutti_fail(TUTTI_ERR_ARGUMENT, "%s", script->stuck)
                                     : text_of(script, name, world, &text, &bytes);
    if (trace->status < 0 && strstr(tutti_last_error()->text, ENDLESS))
        snprintf(script->stuck, sizeof script->stuck, "%s", tutti_last_error()->text);
    if (trace->status >= 0) {
        trace->status = tutti_plan_read(script->path, text, bytes, &trace->plan);
        tutti_free(text);
    }
    if (trace->status < 0) snprintf(trace->why, sizeof trace->why, "%s", tutti_last_error()->text);
}

static bool is_of(const struct trace *trace, const struct tutti_shape *shape)
{
    return trace->shape.size == shape->size && tutti_shape_same_world(&trace->shape, shape);
}

/* The trace of this world, from now on in front; made if there is none. NULL: memory is out. With the lock. */
static struct trace *trace_find(struct traced *traced, const struct tutti_shape *shape)
{
    struct trace **at = &traced->traces, *trace;
    while (*at && !is_of(*at, shape)) at = &(*at)->next;
    trace = *at;
    if (trace) {
        *at = trace->next;
    } else {
        trace = tutti_alloc(sizeof *trace);
        if (!trace) return NULL;
        trace->shape = *shape;
        trace_make(traced->script, traced->kind, trace);
    }
    trace->next = traced->traces;
    traced->traces = trace;
    return trace;
}

static const struct tutti_plan *plan(const struct tutti_schedule_ops *ops, const struct tutti_shape *shape)
{
    struct traced *traced = (struct traced *)(uintptr_t)ops; /* the first member of what this file made */
    struct script *script = traced->script;
    struct tutti_shape world = *shape;
    world.slot = 0;
    if (!tutti_kind_info(traced->kind)->rooted) world.root = 0;
    if (!(ops->needs & TUTTI_NEEDS_LEVELS)) {
        world.n_levels = 0; /* it is not asked to see them: one trace serves */
        memset(world.levels, 0, sizeof world.levels);
    }
    if (world.radix == 0) world.radix = ops->default_radix;
    pthread_mutex_lock(&script->lock);
    const struct trace *trace = trace_find(traced, &world);
    pthread_mutex_unlock(&script->lock);
    if (!trace)
        tutti_fail(TUTTI_ERR_MEMORY, "no memory for a plan of %s", script->path);
    else if (trace->status < 0)
        tutti_fail(trace->status, "%s", trace->why);
    return trace && trace->status >= 0 ? &trace->plan : NULL;
}

/* ---- what the file offers ---- */

static void script_free(struct script *script)
{
    char *texts[] = {script->path, script->copy,   script->python,     script->name,
                     script->help, script->source, script->interpreter};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(texts); i++) tutti_free(texts[i]);
    pthread_mutex_destroy(&script->lock);
    tutti_free(script);
}

/* A line of the description: "kind all_reduce 1 0", or a word and its text. False: it is neither. */
static bool offer_read(struct script *script, char *line)
{
    static const struct {
        const char *word;
        size_t at;
    } texts[] = {{"name ", offsetof(struct script, name)},
                 {"help ", offsetof(struct script, help)},
                 {"source ", offsetof(struct script, source)},
                 {"python ", offsetof(struct script, interpreter)}};
    char kind_name[32];
    uint32_t needs, radix;
    enum tutti_kind kind;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(texts); i++) {
        char **text = (char **)(void *)((char *)script + texts[i].at);
        if (strncmp(line, texts[i].word, strlen(texts[i].word)) != 0 || *text) continue;
        *text = tutti_text_copy(line + strlen(texts[i].word));
        return *text && strlen(*text) < PATH_MAX;
    }
    if (sscanf(line, "kind %31s %u %u", kind_name, &needs, &radix) != 3 || !tutti_kind_parse(kind_name, &kind))
        return false;
    script->kinds[kind] =
        (struct traced){.ops = {.needs = needs, .default_radix = radix, .plan = plan}, .kind = kind, .script = script};
    return true;
}

static enum tutti_status describe(struct script *script, struct tutti_algorithm *out)
{
    char name[TUTTI_KEPT_NAME], *text, *rest;
    size_t bytes;
    snprintf(name, sizeof name, "%016llx.offer",
             (unsigned long long)tutti_hash64(script->python, strlen(script->python), script->key));
    TUTTI_TRY(text_of(script, name, NULL, &text, &bytes));
    bool right = strlen(text) == bytes;
    for (char *line = strtok_r(text, "\n", &rest); line && right; line = strtok_r(NULL, "\n", &rest))
        right = offer_read(script, line);
    tutti_free(text);
    if (!right || !script->name || !script->name[0] || strlen(script->name) > 60)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "%s does not say what it offers", script->path);
    *out = (struct tutti_algorithm){.name = script->name, .help = script->help, .source = script->source};
    for (uint32_t kind = 0; kind < TUTTI_N_KINDS; kind++)
        if (script->kinds[kind].ops.plan) out->kinds[kind] = &script->kinds[kind].ops;
    return TUTTI_OK;
}

enum tutti_status tutti_open_python(const struct tutti_load_source *source, struct tutti_algorithm *out, char *subject)
{
    struct script *script = tutti_alloc(sizeof *script);
    if (!script) return tutti_fail(TUTTI_ERR_MEMORY, "no memory to load %s", source->path);
    pthread_mutex_init(&script->lock, NULL);
    enum tutti_status status = tutti_subject_keep(source, ".py", subject);
    script->key = source->hash ^ module_hash();
    script->path = tutti_text_copy(source->path);
    script->copy = tutti_text_copy(subject);
    script->python = tutti_text_copy(source->config->text[TUTTI_OPT_python]);
    if (status >= 0 && (!script->path || !script->copy || !script->python))
        status = tutti_fail(TUTTI_ERR_MEMORY, "no memory to load %s", source->path);
    if (status >= 0) status = describe(script, out);
    if (status < 0) script_free(script);
    return status;
}
