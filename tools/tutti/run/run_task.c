/* SPDX-License-Identifier: BSD-3-Clause */

/* What the launcher tells an agent before anything is started. */

#include "run_task.h"

#include "control/net/net.h"

#include <tutti/store.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ADDRESSES 8

/* The store listens at all addresses, or at that of the interface; agents try which of these they reach. */
bool run_addresses_find(const struct run_options *o, char *text, size_t capacity, char *bind, size_t bind_capacity)
{
    const struct tutti_listener_config config = {.interface = o->interface};
    struct tutti_net_address addresses[ADDRESSES];
    struct tutti_listener *listener;
    size_t used = 0;
    if (tutti_listener_open(&config, &listener) < 0) {
        run_say("--interface %s: %s", o->interface, tutti_last_error()->text);
        return false;
    }
    const uint32_t n = tutti_listener_addresses(listener, addresses, ADDRESSES);
    tutti_listener_close(listener);
    text[0] = '\0';
    for (uint32_t i = 0; i < n; i++) {
        char one[64];
        tutti_net_address_text(&addresses[i], one, sizeof one);
        if (used > 0 && (strncmp(one, "127.", 4) == 0 || strcmp(one, "::1") == 0)) continue; /* there it is another */
        if (strncmp(one, "fe80:", 5) == 0 || used + strlen(one) + 2 > capacity) continue;
        used += (size_t)snprintf(text + used, capacity - used, "%s%s", used ? "," : "", one);
    }
    snprintf(bind, bind_capacity, "%.*s", (int)strcspn(text, ","), text);
    return used > 0;
}

extern char **environ;

/* What belongs to this host, or to the launcher's own place in a job, stays here. */
static bool is_passed(const char *entry)
{
    static const char *const kept[] = {"HOSTNAME=",
                                       "PWD=",
                                       "OLDPWD=",
                                       "SHLVL=",
                                       "_=",
                                       "SSH_",
                                       "XDG_",
                                       "DBUS_SESSION",
                                       "DISPLAY=",
                                       "WAYLAND_",
                                       "SLURMD_",
                                       "SLURM_NODEID=",
                                       "SLURM_PROCID",
                                       "SLURM_LOCALID",
                                       "SLURM_STEP",
                                       "SLURM_SRUN",
                                       "SLURM_TASK_PID",
                                       "SLURM_GTIDS",
                                       "SLURM_LAUNCH",
                                       "PMI",
                                       "TUTTI_SECRET=",
                                       "TUTTI_SECRET_FILE=",
                                       "TUTTI_STORE=",
                                       "TUTTI_HOST=",
                                       "TUTTI_INTERFACE="};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(kept); i++)
        if (strncmp(entry, kept[i], strlen(kept[i])) == 0) return false;
    return true;
}

bool run_task_make(const struct supervisor *s, struct run_queue *q, uint32_t index, const char *addresses)
{
    const struct run_options *o = s->options;
    const struct run_host *host = &o->hosts.hosts[index];
    char dir[4096];
    bool ok = getcwd(dir, sizeof dir) && run_queue_text(q, "task", 0, TUTTI_VERSION_TEXT) &&
              run_queue_text(q, "host", index, host->name) && run_queue_text(q, "hosts", (uint32_t)o->hosts.n, "") &&
              run_queue_text(q, "ranks", host->n, "") && run_queue_text(q, "first", host->first, "") &&
              run_queue_text(q, "total", o->n_ranks, "") && run_queue_text(q, "job", 0, s->meeting.job) &&
              run_queue_text(q, "secret", 0, s->meeting.secret) &&
              run_queue_text(q, "store", tutti_store_server_port(s->store), addresses) &&
              run_queue_text(q, "cores", 0, o->cores) && run_queue_text(q, "terminal", o->terminal, "");
    for (char **entry = environ; ok && *entry; entry++)
        if (is_passed(*entry)) ok = run_queue_text(q, "env", 0, *entry);
    ok = ok && run_queue_text(q, "dir", 0, dir);
    for (size_t i = 0; ok && i < o->env.n; i++) ok = run_queue_text(q, "set", 0, o->env.values[i]);
    for (char **arg = o->argv; ok && *arg; arg++) ok = run_queue_text(q, "arg", 0, *arg);
    ok = ok && run_queue_text(q, "end", 0, "");
    if (!ok) run_say("the task of host %s can not be written: %s", host->name, strerror(errno));
    return ok;
}
