/* SPDX-License-Identifier: BSD-3-Clause */

/* The facts of `tutti info` as a page for a person and as JSON. */

#include "info.h"
#include "tools/tutti/json.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

static struct info_fact *fact_add(struct info *info, const char *section, const char *name, const char *note)
{
    if (info->n_facts == TUTTI_ARRAY_LEN(info->facts)) info->n_facts--; /* a defect that the last fact shows */
    struct info_fact *fact = &info->facts[info->n_facts++];
    *fact = (struct info_fact){.section = section, .name = name, .note = note};
    return fact;
}

void info_text(struct info *info, const char *section, const char *name, const char *note, const char *format, ...)
{
    struct info_fact *fact = fact_add(info, section, name, note);
    va_list ap;
    va_start(ap, format);
    vsnprintf(fact->text, sizeof fact->text, format, ap);
    va_end(ap);
}

void info_number(struct info *info, const char *section, const char *name, const char *note, uint64_t number)
{
    struct info_fact *fact = fact_add(info, section, name, note);
    fact->type = INFO_NUMBER;
    fact->number = number;
    snprintf(fact->text, sizeof fact->text, "%" PRIu64, number);
}

void info_bytes(struct info *info, const char *section, const char *name, const char *note, uint64_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;
    for (; value >= 1024 && unit + 1 < TUTTI_ARRAY_LEN(units); unit++) value /= 1024;
    info_number(info, section, name, note, bytes);
    char *text = info->facts[info->n_facts - 1].text;
    snprintf(text, sizeof info->facts[0].text, "%.4g %s", value, units[unit]);
}

void info_flag(struct info *info, const char *section, const char *name, const char *note, bool flag)
{
    struct info_fact *fact = fact_add(info, section, name, note);
    fact->type = INFO_FLAG;
    fact->number = flag;
    snprintf(fact->text, sizeof fact->text, "%s", flag ? "yes" : "no");
}

void info_lack(struct info *info, const char *what, const char *effect, const char *remedy)
{
    if (info->n_lacks == TUTTI_ARRAY_LEN(info->lacks)) return;
    struct info_lack *lack = &info->lacks[info->n_lacks++];
    snprintf(lack->what, sizeof lack->what, "%s", what);
    snprintf(lack->effect, sizeof lack->effect, "%s", effect);
    snprintf(lack->remedy, sizeof lack->remedy, "%s", remedy);
}

/* ---- options ---- */
static const char *option_value(const struct info *info, enum tutti_option_id id)
{
    const char *text = info->config->text[id];
    if (!text) return "";
    return id == TUTTI_OPT_secret && text[0] ? "(set)" : text;
}

static const char *option_origin(const struct info *info, enum tutti_option_id id)
{
    static const char *const origins[] = {[TUTTI_FROM_DEFAULT] = "default",
                                          [TUTTI_FROM_FILE] = "file",
                                          [TUTTI_FROM_ENVIRONMENT] = "environment",
                                          [TUTTI_FROM_CALL] = "call"};
    return origins[info->config->origin[id]];
}

/* What tests set is no user's matter, unless it is set. */
static bool is_shown(const struct info *info, enum tutti_option_id id)
{
    return tutti_option_info(id)->section != TUTTI_SECTION_HOOK || info->config->origin[id] != TUTTI_FROM_DEFAULT;
}

static const char *or_dash(const char *text)
{
    return text[0] ? text : "-";
}

/* One row a table of options; `long_form`: with defaults and what each is for. */
static void options_table(FILE *out, const struct info *info, bool long_form)
{
    for (enum tutti_option_id id = 0; id < TUTTI_N_OPTIONS; id++) {
        const struct tutti_option_info *option = tutti_option_info(id);
        if (!is_shown(info, id)) continue;
        fprintf(out, "  %-16s %-20s ", option->name, or_dash(option_value(info, id)));
        if (long_form)
            fprintf(out, "%-12s %-8s %-8s %s%s\n", option_origin(info, id), or_dash(option->fallback), option->type,
                    option->help, option->agreed ? " (equal on all ranks)" : "");
        else
            fprintf(out, "%s\n", option_origin(info, id));
    }
}

static void config_wrong(FILE *out, const struct info *info)
{
    fprintf(out, "  the configuration is wrong: %s\n", info->config_error);
}

void info_options_write(FILE *out, const struct info *info)
{
    fprintf(out,
            "# Options are read from the file that TUTTI_CONFIG names, then from TUTTI_<NAME>, then from the call;\n"
            "# the last one wins.\n");
    fprintf(out, "  %-16s %-20s %-12s %-8s %-8s %s\n", "OPTION", "VALUE", "FROM", "DEFAULT", "TYPE", "WHAT IT IS");
    if (info->config)
        options_table(out, info, true);
    else
        config_wrong(out, info);
}

void info_options_document(FILE *out)
{
    fprintf(
        out,
        "# Options\n\n"
        "Made by `tutti info --options`. An option is read from the file that `TUTTI_CONFIG` names, then from the\n"
        "environment, then from the call; the last one wins. Options that are agreed must be equal on all ranks of a\n"
        "communicator.\n\n"
        "A line of the file is `name = value`, the name without `TUTTI_`. Times are a number and us, ms, s (also with\n"
        "no unit), m or h; sizes a number and K, M or G (1024 of the unit below); flags 0 or 1, off or on.\n");
    for (uint32_t section = 0; section < TUTTI_SECTION_HOOK; section++) {
        fprintf(out, "\n## %s\n| option | type | default | agreed | what it is |\n|---|---|---|---|---|\n",
                tutti_section_title(section));
        for (enum tutti_option_id id = 0; id < TUTTI_N_OPTIONS; id++) {
            const struct tutti_option_info *option = tutti_option_info(id);
            if (option->section != section) continue;
            fprintf(out, "| `TUTTI_");
            for (const char *c = option->name; *c; c++) fputc(toupper((unsigned char)*c), out);
            fprintf(out, "` | %s | %s | %s | %s |\n", option->type, option->fallback, option->agreed ? "yes" : "",
                    option->help);
        }
    }
}

/* ---- the page ---- */
void info_page_write(FILE *out, const struct info *info)
{
    const char *section = "";
    for (size_t i = 0; i < info->n_facts; i++) {
        const struct info_fact *fact = &info->facts[i];
        if (strcmp(section, fact->section) != 0) fprintf(out, "%s%s\n", i ? "\n" : "", fact->section);
        section = fact->section;
        char name[64];
        snprintf(name, sizeof name, "%s", fact->name);
        for (char *c = name; *c; c++)
            if (*c == '_') *c = ' ';
        fprintf(out, "  %-20s %s%s%s%s\n", name, or_dash(fact->text), fact->note ? " (" : "",
                fact->note ? fact->note : "", fact->note ? ")" : "");
    }
    fprintf(out, "\nmissing\n");
    for (size_t i = 0; i < info->n_lacks; i++)
        fprintf(out, "  %-20s %s. To get it: %s\n", info->lacks[i].what, info->lacks[i].effect, info->lacks[i].remedy);
    if (info->n_lacks == 0) fprintf(out, "  nothing\n");
    fprintf(out, "\noptions (tutti info --config says what they are for)\n");
    if (info->config)
        options_table(out, info, false);
    else
        config_wrong(out, info);
}

/* ---- JSON ---- */
static void json_member(FILE *out, const char *before, const char *name, const char *text)
{
    fprintf(out, "%s\"%s\":", before, name);
    tutti_json_string(out, text);
}

static void json_facts(FILE *out, const struct info *info)
{
    const char *section = "";
    for (size_t i = 0; i < info->n_facts; i++) {
        const struct info_fact *fact = &info->facts[i];
        const bool first = strcmp(section, fact->section) != 0;
        if (first) fprintf(out, "%s\n\"%s\":{", i ? "}," : "", fact->section);
        section = fact->section;
        if (fact->type == INFO_TEXT)
            json_member(out, first ? "" : ",", fact->name, fact->text);
        else if (fact->type == INFO_FLAG)
            fprintf(out, "%s\"%s\":%s", first ? "" : ",", fact->name, fact->number ? "true" : "false");
        else
            fprintf(out, "%s\"%s\":%" PRIu64, first ? "" : ",", fact->name, fact->number);
    }
    fprintf(out, "},\n\"missing\":[");
    for (size_t i = 0; i < info->n_lacks; i++) {
        json_member(out, i ? ",\n{" : "\n{", "what", info->lacks[i].what);
        json_member(out, ",", "effect", info->lacks[i].effect);
        json_member(out, ",", "remedy", info->lacks[i].remedy);
        fputc('}', out);
    }
    fprintf(out, "],\n");
}

static void json_options(FILE *out, const struct info *info)
{
    if (!info->config) {
        json_member(out, "", "config_error", info->config_error);
        return;
    }
    fprintf(out, "\"options\":[");
    const char *before = "\n{";
    for (enum tutti_option_id id = 0; id < TUTTI_N_OPTIONS; id++) {
        const struct tutti_option_info *option = tutti_option_info(id);
        if (!is_shown(info, id)) continue;
        json_member(out, before, "name", option->name);
        before = ",\n{";
        json_member(out, ",", "value", option_value(info, id));
        json_member(out, ",", "origin", option_origin(info, id));
        json_member(out, ",", "default", option->fallback);
        json_member(out, ",", "type", option->type);
        json_member(out, ",", "help", option->help);
        fprintf(out, ",\"agreed\":%s}", option->agreed ? "true" : "false");
    }
    fputc(']', out);
}

void info_json_write(FILE *out, const struct info *info, bool options_only)
{
    fputc('{', out);
    if (!options_only) json_facts(out, info);
    json_options(out, info);
    fprintf(out, "}\n");
}
