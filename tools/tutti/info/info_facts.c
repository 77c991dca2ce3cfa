/* SPDX-License-Identifier: BSD-3-Clause */

/* What is here: version, features, the host and its memory, and whether ranks authenticate one another. */

#include "info.h"

#include "backend/backend.h"
#include "base/tls.h"
#include "control/meet/bootstrap.h"
#include "control/net/cipher.h"
#include "control/net/net.h"
#include "device/cpu/reduce.h"
#include "ft/serve/serve.h"
#include "load/load.h"
#include "model/machine.h"
#include "transport/ofi/ofi.h"
#include "transport/open.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/comm.h>
#include <unistd.h>

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif
#ifndef TUTTI_BUILD_TYPE
#define TUTTI_BUILD_TYPE "unknown"
#endif

static const char version[] = "version", features[] = "features", memory[] = "memory", security[] = "security";

static void version_gather(struct info *info)
{
    info_text(info, version, "tutti", NULL, "%s", tutti_version_text());
    info_text(info, version, "soname", NULL, "libtutti.so.%u", tutti_version() >> 16);
    info_text(info, version, "compiler", NULL, "%s", COMPILER);
    info_text(info, version, "build", NULL, "%s", TUTTI_BUILD_TYPE);
}

/* Which kernels this machine can run, best first. */
static void simd_gather(struct info *info)
{
    static const char *const sets[] = {"avx512", "avx2", "neon", "scalar"};
    const tutti_reduce_kernel best = tutti_reduce_find(TUTTI_FLOAT32, TUTTI_SUM, "auto");
    char usable[64] = "";
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(sets); i++) {
        /* A set that is not there falls back to the best one. */
        const bool there =
            tutti_reduce_find(TUTTI_FLOAT32, TUTTI_SUM, sets[i]) != best || strcmp(sets[i], tutti_reduce_isa()) == 0;
        if (there) tutti_append(usable, sizeof usable, "%s%s", usable[0] ? ", " : "", sets[i]);
    }
    const char *wanted = info->config ? info->config->text[TUTTI_OPT_simd] : "auto";
    const bool forced = tutti_reduce_find(TUTTI_FLOAT32, TUTTI_SUM, wanted) != best;
    info_text(info, features, "reduction_kernels", "chosen by option simd", "%s", forced ? wanted : tutti_reduce_isa());
    info_text(info, features, "kernels_usable_here", NULL, "%s", usable);
}

static void backends_gather(struct info *info)
{
#define BACKEND(name) &tutti_backend_##name,
    static const struct tutti_backend_ops *const all[] = {TUTTI_BACKENDS(BACKEND)};
#undef BACKEND
    char text[512] = "";
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(all); i++)
        tutti_append(text, sizeof text, "%s%s (%s)", i ? ", " : "", all[i]->name, all[i]->help);
    info_text(info, features, "back_ends", "option backends", "%s", text);
}

/* The algorithms that the option algorithms names; where one can not be loaded, the error's sentence. */
static void algorithms_gather(struct info *info)
{
    const struct tutti_algorithm *only[TUTTI_N_KINDS];
    struct tutti_config config;
    char list[256] = "";
    if (!info->config || !info->config->text[TUTTI_OPT_algorithms][0]) return;
    enum tutti_status status = tutti_config_init(&config, NULL, 0);
    if (status >= 0) {
        status = tutti_load_list(&config, only);
        tutti_config_fini(&config);
    }
    for (const struct tutti_loaded *own = tutti_loaded_newest(); own && status >= 0; own = own->older)
        tutti_append(list, sizeof list, "%s%s (%s)", list[0] ? ", " : "", own->algorithm->name, own->path);
    info_text(info, features, "algorithms", "option algorithms", "%s", status < 0 ? tutti_last_error()->text : list);
}

/* The constants that predict what is fastest: a file's, or those built in. */
static void tuning_gather(struct info *info)
{
    struct tutti_machine machine;
    char path[PATH_MAX] = "";
    const char *wanted = info->config ? info->config->text[TUTTI_OPT_tuning] : "off";
    bool own = strcmp(wanted, "auto") == 0,
         found = own && tutti_machine_has_file() && tutti_machine_path(path, sizeof path);
    if (info->config && tutti_machine_load(info->config, &machine) < 0)
        info_text(info, features, "tuning", "option tuning", "%s", tutti_last_error()->text);
    else if (found || (!own && strcmp(wanted, "off") != 0))
        info_text(info, features, "tuning", "option tuning", "%s", found ? path : wanted);
    else
        info_text(info, features, "tuning", "`tutti tune` measures this host", "built-in constants%s",
                  own ? "; of copies what rank 0 finds at the start" : "");
}

static void features_gather(struct info *info)
{
#define TRANSPORT_TEXT(name, spans, max_members, help) ", " #name " (" help ")"
#define DECORATOR_TEXT(name, help) ", " #name " (" help ")"
#define NETWORK_TEXT(name, max_members, help) ", " #name " (" help ")"
    char providers[512];
    static const char transports[] = TUTTI_HOST_TRANSPORTS(TRANSPORT_TEXT) TUTTI_NETWORKS(NETWORK_TEXT);
    static const char decorators[] = TUTTI_DECORATORS(DECORATOR_TEXT);
#undef TRANSPORT_TEXT
#undef NETWORK_TEXT
#undef DECORATOR_TEXT
    info_text(info, features, "transports", NULL, "%s", &transports[2]); /* without the first comma */
    info_text(info, features, "libfabric", NULL, "%s",
              tutti_ofi_lacks()                                       ? "none"
              : tutti_ofi_providers(providers, sizeof(providers)) > 0 ? providers
                                                                      : "no provider that could carry ofi");
    backends_gather(info);
    info_text(info, features, "decorators", NULL, "%s", &decorators[2]);
    info_text(info, features, "stores", NULL, "tcp, file, and those of the caller");
    info_flag(info, features, "hmac", tutti_hmac_available() ? "OpenSSL's HMAC-SHA256" : "built without OpenSSL",
              tutti_hmac_available());
    const char *slow;
    info_text(info, features, "encryption", "AES-128-GCM of what passes between hosts", "%s",
              tutti_cipher_library(&slow));
    const char *lacks = tutti_serve_missing();
    info_flag(info, features, "lighthouse", lacks[0] ? lacks : "nghttp2 and protobuf-c", !lacks[0]);
    const char *page_lacks = tutti_serve_page_missing();
    info_flag(info, features, "lighthouse_page", page_lacks[0] ? page_lacks : "libmicrohttpd", !page_lacks[0]);
    simd_gather(info);
    tuning_gather(info);
    algorithms_gather(info);
}

/* A line of /proc/meminfo, in bytes; 0 if there is none. */
static uint64_t meminfo(const char *key)
{
    char line[128];
    uint64_t kib = 0;
    FILE *f = fopen("/proc/meminfo", "re");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0 && line[strlen(key)] == ':')
            kib = strtoull(line + strlen(key) + 1, NULL, 10);
    if (f) fclose(f);
    return kib * 1024;
}

static void memory_gather(struct info *info)
{
    info_bytes(info, memory, "total", NULL, meminfo("MemTotal"));
    info_bytes(info, memory, "available", NULL, meminfo("MemAvailable"));
    if (!info->config) return;
    info_bytes(info, memory, "staging_of_a_rank", "at most; option staging", info->config->number[TUTTI_OPT_staging]);
    info_bytes(info, memory, "staging_of_rings", "a quarter of it, over all peers", tutti_rings_staging(info->config));
    info_bytes(info, memory, "staging_of_back_ends", "the rest, over all communicators",
               info->config->number[TUTTI_OPT_staging] - tutti_rings_staging(info->config));
    info_bytes(info, memory, "heap_of_a_rank", "address space, not memory; option heap",
               info->config->number[TUTTI_OPT_heap]);
}

/* Interfaces that large messages to other hosts use, and over how many sockets each. */
static void sockets_gather(struct info *info)
{
    struct tutti_net_interface list[TUTTI_NET_INTERFACES];
    char text[256] = "";
    size_t at = 0;
    if (!info->config) return;
    const uint32_t n = tutti_net_interfaces(info->config->text[TUTTI_OPT_interface], NULL, list);
    for (uint32_t i = 0; i < n && at < sizeof text; i++) {
        const uint32_t sockets = tutti_net_sockets((uint32_t)info->config->number[TUTTI_OPT_sockets], list[i].speed);
        char address[46], speed[32] = "speed not known";
        if (list[i].speed) snprintf(speed, sizeof speed, "%u Mbit/s", list[i].speed);
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s: %u (%s, %s)", i ? ", " : "", list[i].name, sockets,
                               tutti_net_address_text(&list[i].address, address, sizeof address), speed);
    }
    info_text(info, features, "sockets", "of each interface for large messages; options interface, sockets", "%s",
              n > 0 ? text : tutti_last_error()->text);
}

/* What hosts do with whom, and who can read what passes between them. */
static void security_hosts(struct info *info, bool secret, bool certified, bool authenticated)
{
    const bool trusts = !secret && info->config->number[TUTTI_OPT_trust_network];
    const bool data = info->config->number[TUTTI_OPT_encrypt];
    info_text(info, security, "hosts", NULL, "%s",
              certified        ? "talk to those that show a certificate of the job's CA"
              : authenticated  ? "talk to those that prove that they know the job's secret"
              : trusts && data ? "refuse to talk: option encrypt needs the job's secret, or certificates"
              : trusts         ? "talk to whoever reaches their ports: option trust_network"
                               : "refuse to talk: they need the job's secret, certificates, or option trust_network");
    if (!authenticated && (!trusts || data)) return;
    info_text(info, security, "control", "between hosts", "%s", authenticated ? "TLS 1.3" : "readable on the way");
    info_text(info, security, "data", "between hosts; option encrypt", "%s",
              authenticated && data ? "AES-128-GCM, keys by TLS 1.3" : "readable on the way");
}

static void security_gather(struct info *info)
{
    if (!info->config) return;
    const bool secret = info->config->text[TUTTI_OPT_secret] && info->config->text[TUTTI_OPT_secret][0];
    struct tutti_certificate *certificate = NULL;
    const bool certified = tutti_certificate_of(info->config, &certificate) >= 0 && certificate;
    const char *wrong = certified || !info->config->text[TUTTI_OPT_tls_ca][0] ? NULL : tutti_last_error()->text;
    const bool authenticated = !wrong && (certified || (secret && tutti_hmac_available()));
    info_flag(info, security, "authenticated",
              wrong           ? wrong
              : certified     ? "ranks of other hosts show certificates of the job's CA"
              : authenticated ? "ranks prove that they know the job's secret"
              : secret        ? "unauthenticated: a secret is set, but this build has no HMAC"
                              : "unauthenticated: no secret is set; tutti run makes one for its ranks",
              authenticated);
    info_text(info, security, "same_user", NULL, "checked on every connection within a host (SO_PEERCRED)");
    security_hosts(info, secret, certified, authenticated);
}

void info_facts_gather(struct info *info, bool verbose)
{
    version_gather(info);
    features_gather(info);
    sockets_gather(info);
    info_host_gather(info);
    info_gpus_gather(info, verbose);
    info_nccl_gather(info);
    info_oneccl_gather(info);
    memory_gather(info);
    security_gather(info);
}
