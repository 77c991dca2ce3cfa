/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_LOAD_XML_H
#define TUTTI_LOAD_XML_H

/* A reader of the XML that plans are written in: elements and attributes in UTF-8, comments, processing instructions,
 * the five entities that XML has by itself and characters by number. A DTD (and with it every entity of a file's own),
 * CDATA and text between elements are refused, depth and attributes are bounded, so a stranger's file can not make the
 * reader do more than read it once. */

#include "base/base.h"

enum { TUTTI_XML_MOST_DEPTH = 16, TUTTI_XML_MOST_ATTRIBUTES = 32 };

enum tutti_xml_event { TUTTI_XML_OPEN, TUTTI_XML_CLOSE, TUTTI_XML_END };

struct tutti_xml {
    const char *file; /* sentences begin with it, and the line */
    char *at, *end;   /* what is left of the text; there is a zero at the end */
    uint32_t line;
    bool rooted; /* the root element was there */
    bool empty;  /* the open element ends with it: its end comes next */
    uint32_t depth;
    const char *open[TUTTI_XML_MOST_DEPTH];
    /* After OPEN: the element. It lies in the text. */
    const char *element;
    uint32_t element_line, n_attributes;
    struct {
        const char *name, *value;
    } attributes[TUTTI_XML_MOST_ATTRIBUTES];
};

/* text: the reader writes zeros into it, and needs one behind its end. */
void tutti_xml_init(struct tutti_xml *xml, const char *file, char *text, size_t bytes);
/* The next begin or end of an element, or the end of the text. ARGUMENT with a sentence "FILE:LINE: ...". */
enum tutti_status tutti_xml_next(struct tutti_xml *xml, enum tutti_xml_event *out);
/* The value of an attribute of the element that was opened last; NULL: it has none. */
const char *tutti_xml_attribute(const struct tutti_xml *xml, const char *name);

#endif
