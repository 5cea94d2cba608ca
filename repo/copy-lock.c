/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/copy-lock.h"

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/time.h"

#include <errno.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEEP_NS (5 * NS_PER_MIN)
#define STALE_NS (30 * NS_PER_MIN)
#define LAG_MS 2000 /* until a list has what was put elsewhere, in stores whose lists lag */
#define STEP_MS 100
#define TEXT_MAX 512

struct copy_lock {
    struct blobs *b;
    char name[64], text[TEXT_MAX];
    pthread_mutex_t mu;
    _Atomic int64_t kept_ns; /* monotonic */
};

/* ---- who ---- */

/* Processes are known by their number within one boot and one namespace alone. */
static void whereabouts(char boot[64], unsigned long long *ns)
{
    struct stat st;
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    boot[0] = '\0';
    if (f && !fgets(boot, 64, f))
        boot[0] = '\0';
    if (f)
        fclose(f);
    boot[strcspn(boot, "\n")] = '\0';
    *ns = stat("/proc/self/ns/pid", &st) == 0 ? (unsigned long long)st.st_ino : 0;
}

static int describe(struct copy_lock *l, const char *owner, struct err *e)
{
    char host[256] = "", boot[64], hex[2 * 8 + 1];
    unsigned long long ns;
    uint8_t id[32];
    if (owner)
        EVP_Digest(owner, strlen(owner), id, NULL, EVP_sha256(), NULL);
    else if (getrandom(id, sizeof id, 0) != sizeof id)
        return err_set(e, ERR_GENERIC, errno, "getrandom");
    gethostname(host, sizeof host - 1);
    whereabouts(boot, &ns);
    snprintf(l->name, sizeof l->name, COPY_LOCK_PREFIX "%s", hex_encode(hex, id, 8));
    snprintf(l->text, sizeof l->text, "host %.200s\nboot %s\nnamespace %llu\nprocess %d\n", host[0] ? host : "-",
             boot[0] ? boot : "-", ns, (int)getpid());
    return 0;
}

struct holder {
    char host[201], boot[64];
    unsigned long long ns;
    int pid;
};

/* EPERM, also of a filter of system calls, is no proof that it is dead. */
static bool is_dead(const struct holder *h)
{
    char boot[64];
    unsigned long long ns;
    whereabouts(boot, &ns);
    return h->pid > 0 && boot[0] && !strcmp(boot, h->boot) && ns && ns == h->ns && kill(h->pid, 0) < 0 &&
           errno == ESRCH;
}

/* ---- the others ---- */

struct look {
    struct copy_lock *l;
    int64_t now_ns; /* by the clock of the storage */
    struct err *e;
};

static int look_at_lock(const struct blob_info *i, void *arg)
{
    struct look *x = arg;
    struct holder h = {.host = "another host"};
    CLEANUP_FREE uint8_t *text = NULL;
    size_t len;
    struct err none = ERR_INIT;
    if (!strcmp(i->name, x->l->name))
        return 0;
    int rc = blobs_get(x->l->b, i->name, TEXT_MAX, &text, &len, &none);
    if (rc == -ENOENT)
        return 0; /* given back meanwhile */
    if (rc == 0 && sscanf((const char *)text, "host %200s\nboot %63s\nnamespace %llu\nprocess %d", h.host, h.boot,
                          &h.ns, &h.pid) != 4)
        h.pid = 0; /* of a newer version: its time counts */
    if (x->now_ns - i->mtime_ns > STALE_NS || (rc == 0 && is_dead(&h)))
        return blobs_delete(x->l->b, i->name, x->e);
    err_plain(x->e, ERR_BUSY, EBUSY, "the copy in %s is being written by %s, process %d", blobs_location(x->l->b),
              h.host, h.pid);
    err_hint(x->e, "wait for its end; of a process that was killed the lock is void after 30 minutes");
    return -EBUSY;
}

static int look_at_others(struct copy_lock *l, struct err *e)
{
    struct blob_info own;
    int rc = blobs_stat(l->b, l->name, &own, e);
    struct look x = {l, rc == 0 ? own.mtime_ns : 0, e};
    return rc == 0 ? blobs_list(l->b, COPY_LOCK_PREFIX, look_at_lock, &x, e) : rc;
}

static int wait_for_lists(const _Atomic bool *stop, struct err *e)
{
    for (int ms = 0; ms < LAG_MS; ms += STEP_MS) {
        if (stop && atomic_load_explicit(stop, memory_order_relaxed))
            return err_set(e, ERR_INTERRUPTED, ECANCELED, "interrupted");
        poll(NULL, 0, STEP_MS);
    }
    return 0;
}

/* ---- one's own ---- */

int copy_lock_take(struct copy_lock **ret, struct blobs *b, const char *owner, const _Atomic bool *stop, struct err *e)
{
    struct copy_lock *l = calloc(1, sizeof *l);
    if (!l)
        return err_nomem(e);
    l->b = b;
    pthread_mutex_init(&l->mu, NULL);
    int rc = describe(l, owner, e);
    if (rc < 0) {
        free(l);
        return rc;
    }
    rc = blobs_put(b, l->name, l->text, strlen(l->text), e);
    atomic_store(&l->kept_ns, mono_ns());
    if (rc == 0)
        rc = look_at_others(l, e);
    if (rc == 0 && blobs_lists_lag(b) && (rc = wait_for_lists(stop, e)) == 0)
        rc = look_at_others(l, e);
    if (rc < 0)
        copy_lock_free(l);
    else
        *ret = l;
    return rc;
}

int copy_lock_keep(struct copy_lock *l, bool now, struct err *e)
{
    struct blob_info own;
    struct err none = ERR_INIT;
    int rc = 0;
    if (!l || (!now && mono_ns() - atomic_load(&l->kept_ns) < KEEP_NS))
        return 0;
    pthread_mutex_lock(&l->mu);
    if (now || mono_ns() - atomic_load(&l->kept_ns) >= KEEP_NS) {
        rc = blobs_stat(l->b, l->name, &own, &none);
        if (rc == -ENOENT)
            rc = err_plain(e, ERR_BUSY, EBUSY, "another process writes to the copy in %s: it took this one for dead",
                           blobs_location(l->b));
        else if (rc < 0)
            *e = none;
        else
            rc = blobs_put(l->b, l->name, l->text, strlen(l->text), e);
        atomic_store(&l->kept_ns, mono_ns());
    }
    pthread_mutex_unlock(&l->mu);
    return rc;
}

void copy_lock_free(struct copy_lock *l)
{
    struct err e = ERR_INIT;
    if (!l)
        return;
    const _Atomic bool *stop = blobs_stop(l->b, NULL); /* also when it was interrupted */
    if (blobs_delete(l->b, l->name, &e) < 0)
        log_debug("the lock %s of %s stays: %s", l->name, blobs_location(l->b), e.msg);
    blobs_stop(l->b, stop);
    pthread_mutex_destroy(&l->mu);
    free(l);
}
