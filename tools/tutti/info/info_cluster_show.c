/* SPDX-License-Identifier: BSD-3-Clause */
/* A cluster as a page, as JSON, and as a heat map: one panel of latencies, one of bandwidths, light to dark by their
 * logarithms; lines part the hosts, and each cell has a title that browsers show under the pointer. */

#include "info_cluster.h"
#include "tools/tutti/json.h"

#include <math.h>
#include <string.h>

enum { CELL = 26, LEFT = 90, TOP = 84, GAP = 60 };

struct panel {
    const char *name, *unit;
    double (*value)(const struct cluster_link *link);
    uint8_t dark[3]; /* the greatest value's colour */
};

static double latency_of(const struct cluster_link *link)
{
    return link->latency_us;
}

static double medium_of(const struct cluster_link *link)
{
    return link->medium;
}

static double large_of(const struct cluster_link *link)
{
    return link->large;
}

static double bandwidth_of(const struct cluster_link *link)
{
    return link->large > link->medium ? link->large : link->medium;
}

static const struct panel panels[] = {
    {"latency of 8 bytes, one way", "us", latency_of, {0xb2, 0x3c, 0x00}},
    {"bandwidth, the better of 1 MiB and 16 MiB", "GB/s", bandwidth_of, {0x0b, 0x3c, 0x7a}},
};

static const struct cluster_rank *row_rank(const struct cluster *c, uint32_t row)
{
    return &c->ranks[c->measured[row]];
}

/* ---- the page ---- */

static void matrix_write(FILE *out, const struct cluster *c, const char *title,
                         double (*value)(const struct cluster_link *))
{
    fprintf(out, "\n%s (row: from, column: to)\n     ", title);
    for (uint32_t k = 0; k < c->n_measured; k++) fprintf(out, " %7u", c->measured[k]);
    for (uint32_t i = 0; i < c->n_measured; i++) {
        fprintf(out, "\n%5u", c->measured[i]);
        for (uint32_t k = 0; k < c->n_measured; k++) {
            const double x = value(&c->links[i * c->n_measured + k]);
            if (x > 0)
                fprintf(out, " %7.*f", x >= 1000 ? 0 : x >= 100 ? 1 : 2, x);
            else
                fprintf(out, " %7s", "-");
        }
    }
    fputc('\n', out);
}

void cluster_page_write(FILE *out, const struct cluster *c)
{
    fprintf(out, "%u rank%s on %u host%s\n", c->n, c->n == 1 ? "" : "s", c->n_hosts, c->n_hosts == 1 ? "" : "s");
    for (uint32_t h = 0; h < c->n_hosts; h++) {
        const struct cluster_rank *any = NULL;
        for (uint32_t i = 0; i < c->n && !any; i++)
            if (c->ranks[i].host_index == h) any = &c->ranks[i];
        if (!any) continue;
        const bool told = strstr(any->host, any->address) != NULL; /* "vm (10.0.0.2)", or no address */
        fprintf(out, "  host %s%s%s: ranks", any->host, told ? "" : " at ", told ? "" : any->address);
        for (uint32_t i = 0; i < c->n; i++) {
            const struct cluster_rank *rank = &c->ranks[i];
            if (rank->host_index != h) continue;
            fprintf(out, " %u (%d CPUs%s%s)", i, (int)rank->cpus, rank->device[0] ? ", " : "", rank->device);
        }
        fputc('\n', out);
    }
    if (c->n_measured < c->n) fprintf(out, "links of the first rank of each host:\n");
    if (c->n_measured < 2) return;
    matrix_write(out, c, "latency of 8 bytes, one way, us", latency_of);
    matrix_write(out, c, "bandwidth of 1 MiB, GB/s", medium_of);
    matrix_write(out, c, "bandwidth of 16 MiB, GB/s", large_of);
}

/* ---- JSON ---- */

static void matrix_json(FILE *out, const struct cluster *c, const char *name,
                        double (*value)(const struct cluster_link *))
{
    fprintf(out, ",\"%s\":[", name);
    for (uint32_t i = 0; i < c->n_measured; i++) {
        fputs(i ? ",[" : "[", out);
        for (uint32_t k = 0; k < c->n_measured; k++) {
            const double x = value(&c->links[i * c->n_measured + k]);
            if (k) fputc(',', out);
            if (x > 0)
                fprintf(out, "%.4g", x);
            else
                fputs("null", out);
        }
        fputc(']', out);
    }
    fputc(']', out);
}

void cluster_json_write(FILE *out, const struct cluster *c)
{
    fprintf(out, "{\"hosts\":%u,\"ranks\":[", c->n_hosts);
    for (uint32_t i = 0; i < c->n; i++) {
        const struct cluster_rank *rank = &c->ranks[i];
        fprintf(out, "%s{\"rank\":%u,\"host\":", i ? "," : "", i);
        tutti_json_string(out, rank->host);
        fputs(",\"address\":", out);
        tutti_json_string(out, rank->address);
        fputs(",\"device\":", out);
        tutti_json_string(out, rank->device);
        fprintf(out, ",\"pid\":%d,\"cpus\":%d}", (int)rank->pid, (int)rank->cpus);
    }
    fputs("],\"measured\":[", out);
    for (uint32_t i = 0; i < c->n_measured; i++) fprintf(out, "%s%u", i ? "," : "", c->measured[i]);
    fputc(']', out);
    matrix_json(out, c, "latency_us", latency_of);
    matrix_json(out, c, "gb_s_1MiB", medium_of);
    matrix_json(out, c, "gb_s_16MiB", large_of);
    fputs("}\n", out);
}

/* ---- the heat map ---- */

/* Names come from hosts. */
static void escaped_write(FILE *out, const char *text)
{
    static const char *const names[256] = {['<'] = "&lt;", ['>'] = "&gt;", ['&'] = "&amp;", ['"'] = "&quot;"};
    for (; *text; text++) {
        const unsigned char byte = (unsigned char)*text;
        if (names[byte])
            fputs(names[byte], out);
        else if (byte >= 0x20 && byte < 0x7f)
            fputc(byte, out);
    }
}

static void range_of(const struct cluster *c, const struct panel *panel, double *least, double *most)
{
    *least = INFINITY, *most = 0;
    for (uint32_t i = 0; i < c->n_measured * c->n_measured; i++) {
        const double x = panel->value(&c->links[i]);
        if (x > 0) *least = fmin(*least, x), *most = fmax(*most, x);
    }
}

/* From light to dark: 0 to 1 between the least and the greatest, by their logarithms. */
static double shade_of(double x, double least, double most)
{
    return most > least ? log(x / least) / log(most / least) : 0.5;
}

static void cell_write(FILE *out, const struct panel *panel, double shade, double left, double top)
{
    uint8_t color[3];
    for (size_t i = 0; i < 3; i++) color[i] = (uint8_t)(244 + shade * (panel->dark[i] - 244));
    fprintf(out, "<rect x=\"%.0f\" y=\"%.0f\" width=\"%d\" height=\"%d\" fill=\"#%02x%02x%02x\">", left, top, CELL,
            CELL, color[0], color[1], color[2]);
}

static void title_write(FILE *out, const struct cluster *c, const struct panel *panel, uint32_t i, uint32_t k)
{
    fprintf(out, "<title>rank %u on host ", c->measured[i]);
    escaped_write(out, row_rank(c, i)->host);
    fprintf(out, " to rank %u on host ", c->measured[k]);
    escaped_write(out, row_rank(c, k)->host);
    fprintf(out, ": %.4g %s</title></rect>\n", panel->value(&c->links[i * c->n_measured + k]), panel->unit);
}

/* The names of rows and columns, and lines between hosts. */
static void frame_write(FILE *out, const struct cluster *c, double left)
{
    const double side = CELL * (double)c->n_measured;
    for (uint32_t i = 0; i < c->n_measured; i++) {
        const double at = CELL * (double)i;
        const bool first = i == 0 || row_rank(c, i)->host_index != row_rank(c, i - 1)->host_index;
        fprintf(out, "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"end\">", left - 6, TOP + at + 17);
        if (first) escaped_write(out, row_rank(c, i)->host);
        fprintf(out, " %u</text>\n<text x=\"%.0f\" y=\"%d\" text-anchor=\"middle\">%u</text>\n", c->measured[i],
                left + at + CELL / 2.0, TOP - 6, c->measured[i]);
        if (!first || i == 0) continue;
        fprintf(out, "<path d=\"M%.0f,%d v%.0f M%.0f,%.0f h%.0f\" stroke=\"#222222\" stroke-width=\"1.5\"/>\n",
                left + at, TOP, side, left, TOP + at, side);
    }
    fprintf(out, "<rect x=\"%.0f\" y=\"%d\" width=\"%.0f\" height=\"%.0f\" fill=\"none\" stroke=\"#222222\"/>\n", left,
            TOP, side, side);
}

static void panel_write(FILE *out, const struct cluster *c, const struct panel *panel, double left)
{
    double least, most;
    range_of(c, panel, &least, &most);
    fprintf(out, "<text x=\"%.0f\" y=\"44\" font-weight=\"bold\">%s</text>\n", left, panel->name);
    if (most > 0)
        fprintf(out, "<text x=\"%.0f\" y=\"60\" fill=\"#666666\">%.3g (light) to %.3g %s (dark)</text>\n", left, least,
                most, panel->unit);
    for (uint32_t i = 0; i < c->n_measured; i++)
        for (uint32_t k = 0; k < c->n_measured; k++) {
            const double x = panel->value(&c->links[i * c->n_measured + k]);
            if (!(x > 0)) continue;
            cell_write(out, panel, shade_of(x, least, most), left + CELL * (double)k, TOP + CELL * (double)i);
            title_write(out, c, panel, i, k);
        }
    frame_write(out, c, left);
}

void cluster_svg_write(FILE *out, const struct cluster *c)
{
    const double side = CELL * (double)c->n_measured, panel = side > 300 ? side : 300;
    const double width = 2 * (LEFT + panel) + GAP, height = TOP + side + 30;
    fprintf(out,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
            "height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" font-size=\"11\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n"
            "<text x=\"16\" y=\"22\" font-size=\"15\" font-weight=\"bold\">%u ranks on %u hosts, from row to "
            "column</text>\n",
            width, height, width, height, c->n, c->n_hosts);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(panels); i++)
        panel_write(out, c, &panels[i], LEFT + (double)i * (panel + LEFT + GAP / 2.0));
    fputs("</svg>\n", out);
}
