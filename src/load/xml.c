/* SPDX-License-Identifier: BSD-3-Clause */
#include "load/xml.h"

#include <string.h>

#define REFUSE(xml, ...) tutti_fail_at((xml)->file, (xml)->line, __VA_ARGS__)

void tutti_xml_init(struct tutti_xml *xml, const char *file, char *text, size_t bytes)
{
    *xml = (struct tutti_xml){.file = file, .at = text, .end = text + bytes, .line = 1};
    if (bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) xml->at += 3; /* the mark of UTF-8 */
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.' || c == ':';
}

static bool begins(const struct tutti_xml *xml, const char *word)
{
    const size_t n = strlen(word);
    return (size_t)(xml->end - xml->at) >= n && memcmp(xml->at, word, n) == 0;
}

static void skip_space(struct tutti_xml *xml)
{
    for (; xml->at < xml->end && is_space(*xml->at); xml->at++) xml->line += *xml->at == '\n';
}

/* Past the word that ends a comment or an instruction. */
static enum tutti_status skip_past(struct tutti_xml *xml, const char *word, const char *what)
{
    const uint32_t line = xml->line;
    for (; xml->at < xml->end; xml->at++) {
        if (begins(xml, word)) {
            xml->at += strlen(word);
            return TUTTI_OK;
        }
        xml->line += *xml->at == '\n';
    }
    xml->line = line;
    return REFUSE(xml, "%s does not end", what);
}

/* A name, and behind it the place of the zero that will end it: what stands there is read first. */
static enum tutti_status read_name(struct tutti_xml *xml, const char *what, char **name, char **end)
{
    *name = xml->at;
    while (xml->at < xml->end && is_name(*xml->at)) xml->at++;
    *end = xml->at;
    if (xml->at == xml->end) return REFUSE(xml, "the text ends where %s is expected", what);
    if (*end == *name) return REFUSE(xml, "no name where %s is expected", what);
    return *end - *name > 64 ? REFUSE(xml, "%s of more than 64 characters", what) : TUTTI_OK;
}

/* ---- entities ---- */

/* "#65;" or "#x41;", the number behind it; 0: it is none that can stand here. */
static uint32_t character_of(const char *text, size_t n)
{
    const bool hex = n > 1 && text[1] == 'x';
    uint32_t value = 0;
    for (size_t i = hex ? 2 : 1; i < n; i++) {
        const char c = text[i];
        const uint32_t digit = c >= '0' && c <= '9'          ? (uint32_t)(c - '0')
                               : hex && c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                               : hex && c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                                             : 99;
        if (digit == 99 || n > 8) return 0;
        value = value * (hex ? 16 : 10) + digit;
    }
    return value < 0x80 ? value : '?'; /* names and numbers of plans are ASCII; others are for sentences alone */
}

/* Replaces the entity at `from` by a character; *n is its length. */
static enum tutti_status entity(struct tutti_xml *xml, const char *from, const char *end, size_t *n, char *out)
{
    static const struct {
        const char *name;
        char character;
    } entities[] = {{"lt", '<'}, {"gt", '>'}, {"amp", '&'}, {"quot", '"'}, {"apos", '\''}};
    const char *semicolon = memchr(from, ';', (size_t)(end - from) < 16 ? (size_t)(end - from) : 16);
    if (!semicolon) return REFUSE(xml, "'&' in a value begins no entity");
    const size_t length = (size_t)(semicolon - from) - 1;
    *n = length + 2;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(entities); i++) {
        *out = entities[i].character;
        if (strlen(entities[i].name) == length && memcmp(from + 1, entities[i].name, length) == 0) return TUTTI_OK;
    }
    *out = from[1] == '#' ? (char)character_of(from + 1, length) : '\0';
    return *out ? TUTTI_OK : REFUSE(xml, "there is no entity '%.*s': a plan needs none", (int)length, from + 1);
}

/* A value between quotes, in place; it ends with a zero. */
static enum tutti_status read_value(struct tutti_xml *xml, const char **value)
{
    const char quote = xml->at < xml->end ? *xml->at : '\0';
    if (quote != '"' && quote != '\'') return REFUSE(xml, "a value of an attribute stands between quotes");
    char *from = ++xml->at, *to = from;
    char *end = memchr(from, quote, (size_t)(xml->end - from));
    if (!end) return REFUSE(xml, "the text ends within a value");
    *value = from;
    while (from < end) {
        size_t n = 1;
        char c = *from;
        if (c == '<' || c == '\0') return REFUSE(xml, "'<' or a zero byte in a value");
        if (c == '&') TUTTI_TRY(entity(xml, from, end, &n, &c));
        xml->line += *from == '\n';
        *to++ = c;
        from += n;
    }
    xml->at = end + 1;
    *to = '\0';
    return TUTTI_OK;
}

/* ---- elements ---- */

static enum tutti_status read_attribute(struct tutti_xml *xml)
{
    char *name, *end;
    const char *value = NULL;
    TUTTI_TRY(read_name(xml, "an attribute", &name, &end));
    skip_space(xml);
    if (xml->at == xml->end || *xml->at != '=') return REFUSE(xml, "an attribute without a value");
    xml->at++;
    skip_space(xml);
    TUTTI_TRY(read_value(xml, &value));
    *end = '\0'; /* what stood there is read */
    if (tutti_xml_attribute(xml, name)) return REFUSE(xml, "attribute %s is given twice", name);
    if (xml->n_attributes == TUTTI_XML_MOST_ATTRIBUTES)
        return REFUSE(xml, "more than %d attributes of an element", (int)TUTTI_XML_MOST_ATTRIBUTES);
    xml->attributes[xml->n_attributes].name = name;
    xml->attributes[xml->n_attributes++].value = value;
    return TUTTI_OK;
}

static enum tutti_status read_open(struct tutti_xml *xml)
{
    char *name, *name_end;
    xml->at++;
    xml->element_line = xml->line;
    xml->n_attributes = 0;
    TUTTI_TRY(read_name(xml, "an element", &name, &name_end));
    if (xml->depth == 0 && xml->rooted) return REFUSE(xml, "a second element after the first has ended");
    if (xml->depth == TUTTI_XML_MOST_DEPTH)
        return REFUSE(xml, "elements in elements, more than %d deep", (int)TUTTI_XML_MOST_DEPTH);
    for (;;) {
        const bool apart = xml->at < xml->end && is_space(*xml->at);
        skip_space(xml);
        if (xml->at == xml->end) return REFUSE(xml, "the text ends within an element");
        if (*xml->at == '>' || begins(xml, "/>")) break;
        if (!apart) return REFUSE(xml, "no space before an attribute");
        TUTTI_TRY(read_attribute(xml));
    }
    xml->empty = *xml->at == '/';
    xml->at += xml->empty ? 2 : 1;
    *name_end = '\0';
    xml->element = name;
    xml->open[xml->depth++] = name;
    xml->rooted = true;
    return TUTTI_OK;
}

static enum tutti_status read_close(struct tutti_xml *xml)
{
    char *name, *name_end;
    xml->at += 2;
    TUTTI_TRY(read_name(xml, "the name of the element that ends", &name, &name_end));
    skip_space(xml);
    if (xml->at == xml->end || *xml->at != '>') return REFUSE(xml, "'>' is expected");
    xml->at++;
    *name_end = '\0';
    if (xml->depth == 0 || strcmp(xml->open[xml->depth - 1], name) != 0)
        return REFUSE(xml, "</%s> ends no element that is open", name);
    xml->depth--;
    return TUTTI_OK;
}

enum tutti_status tutti_xml_next(struct tutti_xml *xml, enum tutti_xml_event *out)
{
    *out = TUTTI_XML_CLOSE;
    if (xml->empty) {
        xml->empty = false;
        xml->depth--;
        return TUTTI_OK;
    }
    for (;;) {
        skip_space(xml);
        if (xml->at == xml->end) break;
        if (begins(xml, "<!--"))
            TUTTI_TRY(skip_past(xml, "-->", "a comment"));
        else if (begins(xml, "<?"))
            TUTTI_TRY(skip_past(xml, "?>", "an instruction"));
        else if (begins(xml, "<!"))
            return REFUSE(xml, "a DTD, an entity of the file's own or CDATA: a plan has none, and they are not read");
        else if (begins(xml, "</"))
            return read_close(xml);
        else if (*xml->at == '<') {
            *out = TUTTI_XML_OPEN;
            return read_open(xml);
        } else
            return REFUSE(xml, xml->rooted ? "text between elements" : "this is not XML: it does not begin with '<'");
    }
    *out = TUTTI_XML_END;
    if (xml->depth > 0) return REFUSE(xml, "the text ends within <%s>", xml->open[xml->depth - 1]);
    return xml->rooted ? TUTTI_OK : REFUSE(xml, "there is no element in it");
}

const char *tutti_xml_attribute(const struct tutti_xml *xml, const char *name)
{
    for (uint32_t i = 0; i < xml->n_attributes; i++)
        if (strcmp(xml->attributes[i].name, name) == 0) return xml->attributes[i].value;
    return NULL;
}
