/* SPDX-License-Identifier: GPL-2.0-or-later */
/* rings.c - see rings.h */
#include "io/rings.h"

#include <errno.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

struct prepared {
    struct io_uring ring;
    bool taken;
};

static struct prepared made[RINGS_MAX];
static unsigned n_made;
static int made_error; /* why there are fewer than asked for */
static bool sealed;
static enum ring_use made_for;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const unsigned flags_of[2][3] = {
    [RING_READ] = {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, IORING_SETUP_COOP_TASKRUN, 0},
    /* Not SINGLE_ISSUER: a writer may be created and used by different threads. */
    [RING_WRITE] = {IORING_SETUP_COOP_TASKRUN, IORING_SETUP_COOP_TASKRUN, 0},
};

static int ring_make(struct io_uring *ring, unsigned entries, enum ring_use use, unsigned lower, unsigned more)
{
    int rc = -EINVAL;
    for (unsigned i = lower; i < 3 && rc == -EINVAL; i++)
        rc = io_uring_queue_init(entries, ring, flags_of[use][i] | more);
    return rc;
}

/* Not every liburing exports the functions for it. */
static int ring_register(struct io_uring *ring, unsigned what, void *arg, unsigned n)
{
    return syscall(SYS_io_uring_register, ring->ring_fd, what, arg, n) < 0 ? -errno : 0;
}

/* What is not named is refused: other operations, all flags of requests, all registrations. */
static int ring_restrict(struct io_uring *ring, enum ring_use use)
{
    struct io_uring_restriction r = {.opcode = IORING_RESTRICTION_SQE_OP,
                                     .sqe_op = use == RING_WRITE ? IORING_OP_WRITE : IORING_OP_READ};
    int rc = ring_register(ring, IORING_REGISTER_RESTRICTIONS, &r, 1);
    return rc < 0 ? rc : ring_register(ring, IORING_REGISTER_ENABLE_RINGS, NULL, 0);
}

int rings_prepare(unsigned n, enum ring_use use)
{
    sealed = true;
    made_for = use;
    for (; n_made < n && n_made < RINGS_MAX && made_error == 0; n_made += made_error == 0) {
        struct io_uring *ring = &made[n_made].ring;
        /* Not SINGLE_ISSUER: that would be the thread that enables it, now. */
        made_error = ring_make(ring, RINGS_ENTRIES, use, 1, IORING_SETUP_R_DISABLED);
        if (made_error == 0 && (made_error = ring_restrict(ring, use)) < 0)
            io_uring_queue_exit(ring);
    }
    return made_error;
}

bool rings_prepared(void)
{
    return sealed;
}

int ring_take(struct io_uring *ret, unsigned entries, enum ring_use use, unsigned lower)
{
    if (!sealed)
        return ring_make(ret, entries, use, lower, 0);
    int rc = made_error ? made_error : -ENOENT;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < n_made && use == made_for && entries <= RINGS_ENTRIES; i++) {
        struct prepared *p = &made[i];
        if (p->taken)
            continue;
        *ret = p->ring;
        p->taken = true;
        rc = 0;
        break;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

void ring_give(struct io_uring *ring)
{
    bool again = false;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < n_made; i++)
        if (made[i].taken && made[i].ring.ring_fd == ring->ring_fd && made_for == RING_WRITE) {
            made[i].ring = *ring; /* with its positions in the queues */
            made[i].taken = false;
            again = true;
        }
    pthread_mutex_unlock(&lock);
    if (!again)
        io_uring_queue_exit(ring);
}
