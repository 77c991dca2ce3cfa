/* SPDX-License-Identifier: BSD-3-Clause */

/* Records of AES-GCM (cipher.h). What came is decrypted into the memory that was asked for, as far as it reaches, and
 * the rest of a record in its place. What is sent is encrypted into a buffer, some records at once. */

#include "control/net/cipher.h"

#include "base/session.h"
#include "control/net/gcm.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#define FRAME (TUTTI_CIPHER_HEAD + TUTTI_CIPHER_RECORD + TUTTI_CIPHER_TAG)
#define SHORT 4096                 /* a head: what stands before a payload and is read alone */
#define BUFFER (4 * FRAME + SHORT) /* with the others of both ways it stays in the cache of its CPU */
#define RENEWED ((uint64_t)1 << 20)
#define IV TUTTI_GCM_NONCE

struct way {
    struct tutti_gcm *gcm;
    uint8_t secret[TUTTI_HMAC_BYTES], iv[IV];
    uint64_t n_records;
};
struct cipher {
    struct tutti_stream stream; /* first */
    int fd, error;              /* errno that broke it */
    int out_error;              /* a send failed: what has come can be read all the same */
    bool over;                  /* the other end said that no more comes */
    uint64_t renewed;
    struct way in, out;
    size_t in_begin, in_end;     /* the part of in_bytes that was read, and still encrypted */
    size_t rest_begin, rest_end; /* decrypted, and not given yet */
    size_t out_begin, out_end;   /* the part of out_bytes that is to be sent */
    size_t ahead;                /* bytes that are encrypted, and were not told as sent */
    uint8_t in_bytes[BUFFER], out_bytes[BUFFER];
};
/* Where in a caller's pieces of memory a call is. */
struct place {
    const struct iovec *iov;
    size_t n, at, left; /* at: in the first; left: bytes in all */
};

static struct cipher *cipher_of(struct tutti_stream *stream)
{
    return (struct cipher *)(void *)stream;
}

static struct place place_of(const struct iovec *iov, size_t n_iov)
{
    struct place place = {.iov = iov, .n = n_iov};
    for (size_t i = 0; i < n_iov; i++) place.left += iov[i].iov_len;
    return place;
}

/* The next run of memory, of at most so many bytes, which is behind the place then. */
static uint8_t *place_next(struct place *place, size_t most, size_t *n)
{
    while (place->n > 0 && place->at == place->iov->iov_len) place->iov++, place->n--, place->at = 0;
    if (place->n == 0) {
        *n = 0;
        return NULL;
    }
    uint8_t *run = (uint8_t *)place->iov->iov_base + place->at;
    const size_t here = place->iov->iov_len - place->at;
    *n = here < most ? here : most;
    place->at += *n, place->left -= *n;
    return run;
}

/* ---- keys ---- */

/* The key and the fixed part of the nonces, of the way's secret. */
static enum tutti_status key_set(struct way *way)
{
    uint8_t bytes[TUTTI_HMAC_BYTES];
    TUTTI_TRY(tutti_hmac(way->secret, sizeof way->secret, "key", 3, bytes));
    memcpy(way->iv, bytes + 16, IV);
    const bool set = way->gcm->ops->key(way->gcm, bytes);
    explicit_bzero(bytes, sizeof bytes);
    return set ? TUTTI_OK : tutti_fail(TUTTI_ERR_MEMORY, "%s takes no key", way->gcm->ops->name);
}

static enum tutti_status way_open(struct way *way, const uint8_t secret[TUTTI_HMAC_BYTES], bool encrypts)
{
    memcpy(way->secret, secret, sizeof way->secret);
    way->gcm = tutti_gcm_open(encrypts);
    return way->gcm ? key_set(way) : tutti_fail(TUTTI_ERR_MEMORY, "no memory for the keys of a connection");
}

/* Begins the next record. False: there is no new key. */
static bool record_begin(struct cipher *c, struct way *way, const uint8_t head[TUTTI_CIPHER_HEAD])
{
    uint8_t nonce[IV], number[8];
    if (way->n_records == c->renewed) {
        uint8_t next[TUTTI_HMAC_BYTES];
        if (tutti_hmac(way->secret, sizeof way->secret, "next", 4, next) < 0) return false;
        memcpy(way->secret, next, sizeof next);
        explicit_bzero(next, sizeof next);
        if (key_set(way) < 0) return false;
        way->n_records = 0;
    }
    memcpy(nonce, way->iv, sizeof nonce);
    tutti_le_store(number, 8, way->n_records++);
    for (size_t i = 0; i < sizeof number; i++) nonce[IV - 8 + i] ^= number[i];
    return way->gcm->ops->begin(way->gcm, nonce, head, TUTTI_CIPHER_HEAD);
}

/* ---- in ---- */

/* Decrypted before: moves what there is room for. */
static void rest_give(struct cipher *c, struct place *to)
{
    size_t n;
    while (c->rest_begin < c->rest_end && to->left > 0) {
        uint8_t *run = place_next(to, c->rest_end - c->rest_begin, &n);
        memcpy(run, c->in_bytes + c->rest_begin, n);
        c->rest_begin += n;
    }
}

static bool nonsense(struct cipher *c)
{
    c->error = EPROTO;
    tutti_log(TUTTI_LOG_WARN, "what came by an encrypted connection was changed on its way");
    return false;
}

/* The first record, whose bytes are all here. */
static bool record_open(struct cipher *c, size_t bytes, struct place *to)
{
    uint8_t *from = c->in_bytes + c->in_begin, *at = from + TUTTI_CIPHER_HEAD, *tag = at + bytes;
    struct tutti_gcm *gcm = c->in.gcm;
    size_t n;
    if (!record_begin(c, &c->in, from)) return nonsense(c);
    while (at < tag && to->left > 0) {
        uint8_t *run = place_next(to, (size_t)(tag - at), &n);
        if (!gcm->ops->update(gcm, run, at, n)) return nonsense(c);
        at += n;
    }
    c->rest_begin = (size_t)(at - c->in_bytes), c->rest_end = (size_t)(tag - c->in_bytes);
    if (at < tag && !gcm->ops->update(gcm, at, at, (size_t)(tag - at))) return nonsense(c);
    if (!gcm->ops->end(gcm, tag)) {
        c->rest_end = c->rest_begin;
        return nonsense(c);
    }
    c->over = bytes == 0;
    c->in_begin += TUTTI_CIPHER_HEAD + bytes + TUTTI_CIPHER_TAG;
    return true;
}

/* Bytes of the first record; SIZE_MAX: it is not here yet, or can not be. */
static size_t record_here(struct cipher *c)
{
    const size_t here = c->in_end - c->in_begin;
    const uint64_t bytes = here < TUTTI_CIPHER_HEAD ? 0 : tutti_le_load(c->in_bytes + c->in_begin, TUTTI_CIPHER_HEAD);
    if (bytes > TUTTI_CIPHER_RECORD) nonsense(c);
    return c->error || here < TUTTI_CIPHER_HEAD + bytes + TUTTI_CIPHER_TAG ? SIZE_MAX : (size_t)bytes;
}

/* Reads once. False: nothing more is there now, or ever. */
static bool in_fill(struct cipher *c)
{
    const size_t here = c->in_end - c->in_begin; /* less than a record, and nothing that is decrypted */
    if (here == 0 || BUFFER - c->in_begin < FRAME) {
        memmove(c->in_bytes, c->in_bytes + c->in_begin, here);
        c->in_begin = 0, c->in_end = here;
    }
    const size_t room = BUFFER - c->in_end;
    const ssize_t n = recv(c->fd, c->in_bytes + c->in_end, room, MSG_DONTWAIT);
    if (n > 0) c->in_end += (size_t)n;
    if (n == 0) c->error = ECONNRESET; /* its end was not said */
    if (n < 0 && errno != EAGAIN && errno != EINTR) c->error = errno;
    return n == (ssize_t)room;
}

static ssize_t outcome(const struct cipher *c, size_t done)
{
    if (done > 0) return (ssize_t)done;
    errno = c->error ? c->error : EAGAIN;
    return -1;
}

static ssize_t cipher_recv(struct tutti_stream *stream, const struct iovec *iov, size_t n_iov)
{
    struct cipher *c = cipher_of(stream);
    struct place to = place_of(iov, n_iov);
    const size_t asked = to.left;
    size_t given;
    bool more = true;
    rest_give(c, &to);
    given = asked - to.left;
    while (to.left > 0 && !c->over && !c->error) {
        const size_t bytes = record_here(c);
        if (bytes != SIZE_MAX && record_open(c, bytes, &to))
            given = asked - to.left; /* what did not verify is not given */
        else if (more && !c->error)
            more = in_fill(c);
        else
            break;
    }
    return c->over && given == 0 ? 0 : outcome(c, given);
}

static bool cipher_holds(const struct tutti_stream *stream)
{
    const struct cipher *c = (const struct cipher *)(const void *)stream;
    return c->rest_begin < c->rest_end || c->in_begin < c->in_end;
}

/* ---- out ---- */

/* Whether all that is encrypted has gone. */
static bool flush(struct cipher *c)
{
    while (c->out_begin < c->out_end && !c->error && !c->out_error) {
        const size_t n_bytes = c->out_end - c->out_begin;
        const ssize_t n = send(c->fd, c->out_bytes + c->out_begin, n_bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) c->out_begin += (size_t)n;
        if (n < 0 && errno == EAGAIN) return false;
        if (n < 0 && errno != EINTR) c->out_error = errno;
    }
    if (c->error || c->out_error) return false;
    c->out_begin = c->out_end = 0;
    return true;
}

static ssize_t out_outcome(const struct cipher *c, size_t done)
{
    if (done > 0 || c->error || !c->out_error) return outcome(c, done);
    errno = c->out_error;
    return -1;
}

/* Bytes of the next record. A head has one of its own before a large payload, whose records are then decrypted where
 * they belong: who reads a head does not know that place yet. */
static size_t record_bytes(const struct place *from)
{
    const size_t run = from->n > 0 ? from->iov->iov_len - from->at : 0;
    if (from->left <= TUTTI_CIPHER_RECORD) return from->left;
    return run > 0 && run <= SHORT ? run : TUTTI_CIPHER_RECORD;
}

/* Encrypts one record behind the others; returns its bytes. */
static size_t record_add(struct cipher *c, struct place *from)
{
    const size_t bytes = record_bytes(from);
    uint8_t *head = c->out_bytes + c->out_end, *at = head + TUTTI_CIPHER_HEAD, *tag = at + bytes;
    struct tutti_gcm *gcm = c->out.gcm;
    size_t n;
    tutti_le_store(head, TUTTI_CIPHER_HEAD, bytes);
    bool good = record_begin(c, &c->out, head);
    for (; good && at < tag; at += n) {
        const uint8_t *run = place_next(from, (size_t)(tag - at), &n);
        good = gcm->ops->update(gcm, at, run, n);
    }
    if (!good || !gcm->ops->end(gcm, tag)) c->error = EPROTO;
    c->out_end = (size_t)(tag - c->out_bytes) + TUTTI_CIPHER_TAG;
    return bytes;
}

static ssize_t cipher_send(struct tutti_stream *stream, const struct iovec *iov, size_t n_iov)
{
    struct cipher *c = cipher_of(stream);
    struct place from = place_of(iov, n_iov);
    size_t done = 0, n;
    while (done < c->ahead && place_next(&from, c->ahead - done, &n)) done += n;
    if (!flush(c)) return out_outcome(c, 0);
    c->ahead -= done;
    while (from.left > 0 && !c->error) {
        size_t added = 0;
        while (from.left > 0 && BUFFER - c->out_end >= FRAME && !c->error) added += record_add(c, &from);
        if (!flush(c)) {
            c->ahead = added;
            break;
        }
        done += added;
    }
    return out_outcome(c, done);
}

/* ---- the life ---- */

static void cipher_finish(struct tutti_stream *stream)
{
    struct cipher *c = cipher_of(stream);
    struct place nothing = {.n = 0};
    if (!flush(c)) return;
    record_add(c, &nothing);
    flush(c);
}

static void cipher_close(struct tutti_stream *stream)
{
    struct cipher *c = cipher_of(stream);
    if (c->in.gcm) c->in.gcm->ops->close(c->in.gcm);
    if (c->out.gcm) c->out.gcm->ops->close(c->out.gcm);
    explicit_bzero(c->in.secret, sizeof c->in.secret);
    explicit_bzero(c->out.secret, sizeof c->out.secret);
    tutti_free(c);
}

static const struct tutti_stream_ops ops = {
    .recv = cipher_recv, .send = cipher_send, .holds = cipher_holds, .finish = cipher_finish, .close = cipher_close};

enum tutti_status tutti_cipher_open(const struct tutti_cipher_config *config, struct tutti_stream **out)
{
    struct cipher *c = tutti_alloc(sizeof *c);
    if (!c) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for an encrypted connection");
    c->stream.ops = &ops;
    c->fd = config->fd;
    c->renewed = config->renewed ? config->renewed : RENEWED;
    enum tutti_status status = way_open(&c->in, config->in, false);
    if (status == TUTTI_OK) status = way_open(&c->out, config->out, true);
    if (status < 0)
        cipher_close(&c->stream);
    else
        *out = &c->stream;
    return status;
}
