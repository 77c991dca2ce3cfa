/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_CERTIFICATES_H
#define TUTTI_TESTS_CERTIFICATES_H

/* Certificates for a group of tests, in its own folder: certificates.sh makes them, by the program openssl. CMake names
 * TUTTI_SOURCE. */

#include "own_folder.h"

#include "base/tls.h"

#include <string.h>

static inline bool certificates_can_be(void)
{
    return tutti_tls_available() && system("openssl version >/dev/null 2>&1") == 0;
}

/* The fixture of a group, with own_folder_end. */
static inline int certificates_begin(void **state)
{
    char command[PATH_MAX];
    if (own_folder_begin(state) != 0) return -1;
    snprintf(command, sizeof command, "sh %s/tests/certificates.sh %s %s >/dev/null 2>&1", TUTTI_SOURCE, TUTTI_SOURCE,
             own_folder);
    return system(command);
}

/* By files of the folder; key NULL: that of the certificate's name. */
static inline enum tutti_status certificate_find(const char *ca, const char *cert, const char *key, const char *name,
                                                 struct tutti_certificate **out)
{
    char paths[3][320], file[64];
    snprintf(file, sizeof file, "%.*s.key", (int)strcspn(cert, "."), cert);
    const char *const names[3] = {ca, cert, key ? key : file};
    for (int i = 0; i < 3; i++) snprintf(paths[i], sizeof paths[i], "%s/%s", own_folder, names[i]);
    return tutti_certificate_find(paths[0], paths[1], paths[2], name, out);
}

#endif
