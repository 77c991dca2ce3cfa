/* SPDX-License-Identifier: BSD-3-Clause */

/* Certificates: what is wrong with files is told before anybody is met with them; two ends of one CA agree, and what
 * comes with another CA, another name, no certificate or no TLS does not, and both ends hear why. The files are made
 * by the commands of docs/security.md, and some more (tests/certificates.sh). */

#include "certificates.h"
#include "test.h"

#include "base/tls.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *path(const char *name, char out[320])
{
    snprintf(out, 320, "%s/%s", own_folder, name);
    return out;
}

static void what_can_not_be_used_is_told(void **state)
{
    static const struct {
        const char *ca, *cert, *key, *name, *says;
    } rows[] = {{"ca.pem", "nothing.pem", NULL, "", "nothing.pem can not be read"},
                {"nothing.pem", "rank.pem", NULL, "", "tls_ca="},
                {"rank.key", "rank.pem", NULL, "", "it holds no certificate of a CA"},
                {"ca.pem", "rank.key", "rank.key", "", "it holds no certificate that can be used"},
                {"ca.pem", "rank.pem", "other.key", "", "it holds no key of the certificate of tls_cert"},
                {"ca.pem", "rank.pem", "locked.key", "", "without a pass phrase"},
                {"ca.pem", "other.pem", NULL, "", "is no certificate of the CA of tls_ca"},
                {"ca.pem", "old.pem", NULL, "", "certificate has expired"},
                {"ca.pem", "server.pem", NULL, "", "unsuitable certificate purpose"},
                {"ca.pem", "rank.pem", NULL, "job-43", "does not bear the name tls_name=job-43"},
                {"ca.pem", "job-42.pem", NULL, "job-42", "does not bear the name tls_name=job-42"}};
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(rows); i++) {
        struct tutti_certificate *found;
        assert_int_equal(certificate_find(rows[i].ca, rows[i].cert, rows[i].key, rows[i].name, &found),
                         TUTTI_ERR_CONFIG);
        if (!strstr(tutti_last_error()->text, rows[i].says)) fprintf(stderr, "%s\n", tutti_last_error()->text);
        assert_non_null(strstr(tutti_last_error()->text, rows[i].says));
    }
}

static void options_are_whole(void **state)
{
    static const struct {
        struct tutti_option options[3];
        const char *says;
    } rows[] = {{{{"tls_ca", "/a"}, {"tls_key", "/b"}, {"tls_name", ""}}, "option tls_key is set, but tls_cert is not"},
                {{{"tls_name", "job"}, {"tls_key", ""}, {"tls_ca", ""}}, "option tls_name is set, but tls_ca is not"}};
    struct tutti_config config;
    struct tutti_certificate *found = (struct tutti_certificate *)&config;
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(rows); i++) {
        assert_int_equal(tutti_config_init(&config, rows[i].options, 3), TUTTI_OK);
        assert_int_equal(tutti_certificate_of(&config, &found), TUTTI_ERR_CONFIG);
        assert_non_null(strstr(tutti_last_error()->text, rows[i].says));
        tutti_config_fini(&config);
    }
    const struct tutti_option both[] = {{"tls_ca", "/a"}, {"tls_cert", "/b"}, {"tls_key", "/c"}, {"secret", "sesame"}};
    assert_int_equal(tutti_config_init(&config, both, 4), TUTTI_OK);
    assert_int_equal(tutti_certificate_of(&config, &found), TUTTI_ERR_CONFIG);
    assert_non_null(strstr(tutti_last_error()->text, "by one of them"));
    tutti_config_fini(&config);
    assert_int_equal(tutti_config_init(&config, NULL, 0), TUTTI_OK);
    assert_int_equal(tutti_certificate_of(&config, &found), TUTTI_OK);
    assert_null(found);
    tutti_config_fini(&config);
}

/* ---- two ends ---- */

struct ends {
    struct tutti_tls *tls[2]; /* client, server */
    int fds[2];
    enum tutti_status status[2];
    char why[2][sizeof((struct tutti_error *)NULL)->text];
};

static void ends_open(struct ends *e, struct tutti_certificate *const certificates[2])
{
    memset(e, 0, sizeof *e);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, e->fds), 0);
    for (int i = 0; i < 2; i++) {
        const struct tutti_tls_proof proof = {.certificate = certificates[i]};
        if (certificates[i]) assert_int_equal(tutti_tls_open(e->fds[i], i == 0, &proof, &e->tls[i]), TUTTI_OK);
    }
}

static void ends_close(struct ends *e)
{
    for (int i = 0; i < 2; i++) tutti_tls_close(e->tls[i]), close(e->fds[i]);
}

/* Until both have come to an end. */
static void ends_agree(struct ends *e)
{
    for (int i = 0; i < 2; i++) e->status[i] = TUTTI_PENDING;
    for (int turn = 0; turn < 40; turn++) {
        const int i = turn % 2;
        if (e->status[i] != TUTTI_PENDING || !e->tls[i]) continue;
        e->status[i] = tutti_tls_agree(e->tls[i]);
        if (e->status[i] < 0) snprintf(e->why[i], sizeof e->why[i], "%s", tutti_last_error()->text);
    }
}

static void two_of_one_ca_agree(void **state)
{
    static const char *const files[][2] = {
        {"rank.pem", "rank.pem"}, {"rank.pem", "second.pem"}, {"rank.pem", "under.pem"}};
    char texts[2][TUTTI_TLS_SESSION_TEXT], before[TUTTI_TLS_SESSION_TEXT] = "";
    (void)state;
    for (size_t f = 0; f < 2 * TUTTI_ARRAY_LEN(files); f++) {
        struct tutti_certificate *certificates[2];
        struct ends e;
        uint8_t in[2][TUTTI_HMAC_BYTES], out[2][TUTTI_HMAC_BYTES], byte;
        for (int i = 0; i < 2; i++)
            assert_int_equal(certificate_find("ca.pem", files[f / 2][i], NULL, f % 2 ? "job-42" : "", &certificates[i]),
                             TUTTI_OK);
        ends_open(&e, certificates);
        ends_agree(&e);
        assert_true(e.status[0] == TUTTI_OK && e.status[1] == TUTTI_OK);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(recv(e.fds[i], &byte, 1, MSG_DONTWAIT), -1); /* what follows is whole */
            assert_int_equal(tutti_tls_session(e.tls[i], texts[i]), TUTTI_OK);
            assert_int_equal(tutti_tls_secrets(e.tls[i], in[i], out[i]), TUTTI_OK);
        }
        assert_string_equal(texts[0], texts[1]);
        assert_true(strlen(texts[0]) == 2 * TUTTI_HMAC_BYTES &&
                    strcmp(texts[0], before) != 0); /* this connection alone has it */
        assert_memory_equal(in[0], out[1], TUTTI_HMAC_BYTES);
        assert_memory_equal(in[1], out[0], TUTTI_HMAC_BYTES);
        assert_memory_not_equal(in[0], in[1], TUTTI_HMAC_BYTES);
        memcpy(before, texts[0], sizeof before);
        ends_close(&e);
    }
}

/* Both ends hear it, each in its words, whichever of them dials. */
static void others_do_not(void **state)
{
    static const struct {
        const char *ca, *cert, *name;
        const char *says, *hears; /* one of rank.pem, and this */
    } rows[] = {{"other-ca.pem", "other.pem", "", "is not good here", "is not good here"},
                {"both-ca.pem", "other.pem", "", "is not good here: unable to get local issuer certificate",
                 "does not accept this process's certificate: it knows another CA"},
                {"ca.pem", "nameless.pem", "", "hostname mismatch", "does not accept this process's certificate"},
                {"ca.pem", "job-42.pem", "", "hostname mismatch", "does not accept this process's certificate"}};
    (void)state;
    for (size_t r = 0; r < 2 * TUTTI_ARRAY_LEN(rows); r++) {
        const int stranger = r % 2;
        struct tutti_certificate *certificates[2];
        struct ends e;
        assert_int_equal(certificate_find("ca.pem", "rank.pem", NULL, "job-42", &certificates[!stranger]), TUTTI_OK);
        assert_int_equal(
            certificate_find(rows[r / 2].ca, rows[r / 2].cert, NULL, rows[r / 2].name, &certificates[stranger]),
            TUTTI_OK);
        ends_open(&e, certificates);
        ends_agree(&e);
        const char *says = e.why[!stranger], *hears = e.why[stranger];
        assert_true(e.status[0] == TUTTI_ERR_AUTH && e.status[1] == TUTTI_ERR_AUTH);
        /* Where neither knows the other's CA the client is the first to see it. */
        assert_true(strstr(says, rows[r / 2].says) || (r < 2 && strstr(says, "does not accept")));
        assert_true(strstr(hears, rows[r / 2].hears) || (r < 2 && strstr(hears, "does not accept")));
        ends_close(&e);
    }
}

static void one_without_is_told(void **state)
{
    struct tutti_certificate *certificates[2] = {NULL, NULL};
    struct ends e;
    uint8_t bytes[8];
    (void)state;
    for (int client = 0; client < 2; client++) {
        assert_int_equal(certificate_find("ca.pem", "rank.pem", NULL, "", &certificates[!client]), TUTTI_OK);
        certificates[client] = NULL;
        ends_open(&e, certificates);
        if (client == 0) { /* a member with a secret calls one with a certificate */
            assert_int_equal(send(e.fds[0], "TUNE and more", 13, 0), 13);
            ends_agree(&e);
            assert_int_equal(e.status[1], TUTTI_ERR_AUTH);
            assert_non_null(strstr(e.why[1], "it shows no certificate"));
            assert_int_equal(recv(e.fds[0], bytes, sizeof bytes, MSG_DONTWAIT), 7);
            assert_non_null(strstr(tutti_tls_shows(bytes, 7), "takes certificates alone"));
        } else { /* and the other way round */
            ends_agree(&e);
            assert_true(recv(e.fds[1], bytes, 4, MSG_PEEK) == 4 &&
                        strstr(tutti_tls_shows(bytes, 4), "by a certificate"));
            tutti_tls_refuse(e.fds[1]);
            ends_agree(&e);
            assert_int_equal(e.status[0], TUTTI_ERR_AUTH);
            assert_non_null(strstr(e.why[0], "it has none itself"));
        }
        ends_close(&e);
    }
    assert_null(tutti_tls_shows((const uint8_t *)"TUNE", 4));
    assert_null(tutti_tls_shows((const uint8_t *)"\x16\0\0\0", 4)); /* as frames of the meeting begin */
}

/* A key of a secret, where the other end wants a certificate. */
static void a_key_is_no_certificate(void **state)
{
    static const uint8_t key[TUTTI_HMAC_BYTES] = {1, 2, 3};
    struct tutti_certificate *certificate;
    (void)state;
    assert_int_equal(certificate_find("ca.pem", "rank.pem", NULL, "", &certificate), TUTTI_OK);
    for (int keyed = 0; keyed < 2; keyed++) {
        struct ends e;
        ends_open(&e, (struct tutti_certificate *[2]){NULL, NULL});
        for (int i = 0; i < 2; i++) {
            const struct tutti_tls_proof proof = {.key = i == keyed ? key : NULL, .certificate = certificate};
            assert_int_equal(tutti_tls_open(e.fds[i], i == 0, &proof, &e.tls[i]), TUTTI_OK);
        }
        ends_agree(&e);
        assert_true(e.status[0] < 0 && e.status[1] < 0);
        ends_close(&e);
    }
}

/* Renewed files are read without a restart; what can not be used leaves the old ones in force. */
static void renewed_files_are_read(void **state)
{
    struct tutti_certificate *first, *again, *certificates[2];
    char from[320], to[320], command[800];
    struct ends e;
    (void)state;
    for (const char *const *file = (const char *const[]){"ca.pem", "rank.pem", "rank.key", NULL}; *file; file++) {
        snprintf(command, sizeof command, "cp %s %s/new-%s", path(*file, from), own_folder, *file);
        assert_int_equal(system(command), 0);
    }
    assert_int_equal(certificate_find("new-ca.pem", "new-rank.pem", "new-rank.key", "", &first), TUTTI_OK);
    snprintf(command, sizeof command, "cp %s %s", path("other.key", from), path("new-rank.key", to));
    assert_int_equal(system(command), 0);
    tutti_sleep_ns(1100 * TUTTI_NS_PER_MS); /* the next look is due */
    assert_int_equal(certificate_find("ca.pem", "rank.pem", NULL, "", &certificates[0]), TUTTI_OK);
    certificates[1] = first;
    ends_open(&e, certificates);
    ends_agree(&e);
    assert_true(e.status[0] == TUTTI_OK && e.status[1] == TUTTI_OK);
    ends_close(&e);
    snprintf(command, sizeof command, "cp %s/other-ca.pem %s/new-ca.pem && cp %s/other.pem %s/new-rank.pem", own_folder,
             own_folder, own_folder, own_folder);
    assert_int_equal(system(command), 0);
    assert_int_equal(certificate_find("new-ca.pem", "new-rank.pem", "new-rank.key", "", &again), TUTTI_OK);
    assert_ptr_equal(first, again);
    ends_open(&e, certificates);
    ends_agree(&e);
    assert_true(e.status[0] == TUTTI_ERR_AUTH && e.status[1] == TUTTI_ERR_AUTH);
    ends_close(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_can_not_be_used_is_told), cmocka_unit_test(options_are_whole),
        cmocka_unit_test(two_of_one_ca_agree),          cmocka_unit_test(others_do_not),
        cmocka_unit_test(one_without_is_told),          cmocka_unit_test(a_key_is_no_certificate),
        cmocka_unit_test(renewed_files_are_read),
    };
    if (!certificates_can_be()) return 0;
    return cmocka_run_group_tests_name("base.certificate", tests, certificates_begin, own_folder_end);
}
