/* SPDX-License-Identifier: BSD-3-Clause */

/* The log as options and users set it, with errors as sentences. The log itself knows no errors: they are logged. */

#include "base/base.h"

enum tutti_status tutti_log_configure(const char *level, const char *file)
{
    int threshold = level ? tutti_log_level(level) : -1;

    if (level && threshold < 0)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "log level \"%s\": write error, warn, info, debug or trace", level);
    if (file && file[0] && tutti_log_open(file) < 0)
        return tutti_fail_errno(TUTTI_ERR_SYSTEM, "log file \"%s\" can not be opened", file);
    if (level) tutti_log_threshold = threshold;
    return TUTTI_OK;
}
