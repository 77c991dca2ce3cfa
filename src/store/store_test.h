/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_STORE_STORE_TEST_H
#define TUTTI_STORE_STORE_TEST_H

/* A store of either kind, with its server or its directory: for the tests of stores. */

#include "test.h"

#include "base/base.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <tutti/store.h>
#include <unistd.h>

#define SECOND TUTTI_NS_PER_S

/* A store under test: its address, and what must go when it ends. */
struct fixture {
    bool file;
    const char *secret;
    struct tutti_store_server *server;
    char address[128], directory[64];
    struct tutti_store store;
};

static inline void fixture_open(struct fixture *f, bool file, const char *secret)
{
    static unsigned serial;
    memset(f, 0, sizeof *f);
    f->file = file;
    f->secret = secret;
    if (file) {
        snprintf(f->directory, sizeof f->directory, "/tmp/tutti-store-%d-%u", (int)getpid(), serial++);
        snprintf(f->address, sizeof f->address, "file://%s", f->directory);
    } else {
        assert_int_equal(tutti_store_server_open("127.0.0.1", 0, secret, &f->server), TUTTI_OK);
        assert_true(tutti_store_server_port(f->server) != 0);
        snprintf(f->address, sizeof f->address, "tcp://127.0.0.1:%u", tutti_store_server_port(f->server));
    }
    if (tutti_store_open(f->address, secret, tutti_deadline_ns(5 * SECOND), &f->store) != TUTTI_OK)
        fail_msg("%s", tutti_last_error()->text);
}

static inline void directory_remove(const char *path)
{
    DIR *dir = opendir(path);
    if (!dir) return;
    for (struct dirent *e; (e = readdir(dir));) unlinkat(dirfd(dir), e->d_name, 0);
    closedir(dir);
    rmdir(path);
}

static inline void fixture_close(struct fixture *f)
{
    tutti_store_close(&f->store);
    assert_null(f->store.ops);
    tutti_store_server_close(f->server);
    if (f->file) directory_remove(f->directory);
}

static inline uint64_t in(uint64_t ms)
{
    return tutti_deadline_ns(ms * TUTTI_NS_PER_MS);
}

#endif
