/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/test.h"

#include "chunker/pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

static void nap_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

static void free_pool(struct pool **p)
{
    pool_free(*p);
}

static struct pool *make(unsigned threads, size_t queue)
{
    struct err e = ERR_INIT;
    struct pool *p = NULL;
    assert_ok(pool_new(&p, threads, queue, "test", &e), &e);
    return p;
}

/* A gate at which jobs wait until the test opens it. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool open;
    unsigned waiting;
};

#define GATE_INIT                                                                                                      \
    {                                                                                                                  \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0                                                  \
    }

static void gate_job(void *arg, unsigned worker)
{
    (void)worker;
    struct gate *g = arg;
    pthread_mutex_lock(&g->lock);
    g->waiting++;
    pthread_cond_broadcast(&g->cond);
    while (!g->open)
        pthread_cond_wait(&g->cond, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static void gate_await(struct gate *g, unsigned waiting)
{
    pthread_mutex_lock(&g->lock);
    while (g->waiting < waiting)
        pthread_cond_wait(&g->cond, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static void gate_open(struct gate *g)
{
    pthread_mutex_lock(&g->lock);
    g->open = true;
    pthread_cond_broadcast(&g->cond);
    pthread_mutex_unlock(&g->lock);
}

struct counter {
    unsigned threads;
    atomic_uint jobs;
    atomic_uint wrong;
    unsigned per_worker[8]; /* without a lock, as the contract allows */
};

static void count_job(void *arg, unsigned worker)
{
    struct counter *c = arg;
    if (worker >= c->threads)
        atomic_fetch_add(&c->wrong, 1);
    else
        c->per_worker[worker]++;
    atomic_fetch_add(&c->jobs, 1);
}

static void every_job_runs_once(void **state)
{
    (void)state;
    for (unsigned threads = 1; threads <= 4; threads++) {
        for (size_t queue = 1; queue <= 9; queue += 4) {
            struct counter c = {.threads = threads};
            CLEANUP(free_pool) struct pool *p = make(threads, queue);
            for (int i = 0; i < 2000; i++)
                pool_submit(p, count_job, &c);
            pool_drain(p);
            assert_int_equal(atomic_load(&c.jobs), 2000);
            assert_int_equal(atomic_load(&c.wrong), 0);
            unsigned sum = 0;
            for (unsigned i = 0; i < threads; i++)
                sum += c.per_worker[i];
            assert_int_equal(sum, 2000);
            struct pool_stats st;
            pool_stats(p, &st);
            assert_int_equal(st.jobs, 2000);
        }
    }
}

struct order {
    atomic_uint next;
    atomic_uint wrong;
};

struct ordered {
    struct order *order;
    unsigned number;
};

static void order_job(void *arg, unsigned worker)
{
    (void)worker;
    struct ordered *o = arg;
    if (atomic_fetch_add(&o->order->next, 1) != o->number)
        atomic_fetch_add(&o->order->wrong, 1);
}

static void jobs_start_in_order(void **state)
{
    (void)state;
    struct order order = {0};
    struct ordered o[500];
    CLEANUP(free_pool) struct pool *p = make(1, 7);
    for (unsigned i = 0; i < 500; i++) {
        o[i] = (struct ordered){&order, i};
        pool_submit(p, order_job, &o[i]);
    }
    pool_drain(p);
    assert_int_equal(atomic_load(&order.wrong), 0);
    assert_int_equal(atomic_load(&order.next), 500);
}

struct submitter {
    struct pool *pool;
    struct counter *counter;
    unsigned jobs;
    atomic_uint done;
};

static void *submit_all(void *arg)
{
    struct submitter *s = arg;
    for (unsigned i = 0; i < s->jobs; i++) {
        pool_submit(s->pool, count_job, s->counter);
        atomic_fetch_add(&s->done, 1);
    }
    return NULL;
}

static void a_full_queue_holds_submitters_back(void **state)
{
    (void)state;
    struct gate gate = GATE_INIT;
    struct counter c = {.threads = 2};
    CLEANUP(free_pool) struct pool *p = make(2, 3);
    pool_submit(p, gate_job, &gate);
    pool_submit(p, gate_job, &gate);
    gate_await(&gate, 2); /* both threads are taken, the queue is empty */
    struct submitter s = {.pool = p, .counter = &c, .jobs = 10};
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, submit_all, &s), 0);
    for (int i = 0; i < 1000 && atomic_load(&s.done) < 3; i++)
        nap_ms(1);
    nap_ms(50);
    assert_int_equal(atomic_load(&s.done), 3); /* exactly the queue, and no more */
    assert_int_equal(atomic_load(&c.jobs), 0);
    gate_open(&gate);
    assert_int_equal(pthread_join(t, NULL), 0);
    pool_drain(p);
    assert_int_equal(atomic_load(&c.jobs), 10);
    struct pool_stats st;
    pool_stats(p, &st);
    assert_true(st.block_ns >= 40000000);
    assert_true(st.busy_ns >= 2 * 40000000ULL);
    assert_int_equal(st.jobs, 12);
}

struct drainer {
    struct pool *pool;
    atomic_bool done;
};

static void *drain(void *arg)
{
    struct drainer *d = arg;
    pool_drain(d->pool);
    atomic_store(&d->done, true);
    return NULL;
}

static void drain_waits_for_earlier_jobs_only(void **state)
{
    (void)state;
    struct gate first = GATE_INIT, second = GATE_INIT;
    CLEANUP(free_pool) struct pool *p = make(2, 8);
    pool_drain(p); /* nothing to wait for */
    pool_submit(p, gate_job, &first);
    gate_await(&first, 1);
    struct drainer d = {.pool = p};
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, drain, &d), 0);
    nap_ms(30);
    assert_false(atomic_load(&d.done));
    pool_submit(p, gate_job, &second); /* later than the call: does not hold it up */
    gate_await(&second, 1);
    gate_open(&first);
    assert_int_equal(pthread_join(t, NULL), 0);
    assert_true(atomic_load(&d.done));
    gate_open(&second);
    pool_drain(p);
}

static void free_runs_what_is_queued(void **state)
{
    (void)state;
    struct gate gate = GATE_INIT;
    struct counter c = {.threads = 1};
    struct pool *p = make(1, 20);
    pool_submit(p, gate_job, &gate);
    gate_await(&gate, 1);
    for (int i = 0; i < 20; i++)
        pool_submit(p, count_job, &c);
    assert_int_equal(atomic_load(&c.jobs), 0);
    gate_open(&gate);
    pool_free(p);
    assert_int_equal(atomic_load(&c.jobs), 20);
    pool_free(NULL);
}

static void many_submitters(void **state)
{
    (void)state;
    struct counter c = {.threads = 3};
    CLEANUP(free_pool) struct pool *p = make(3, 2);
    struct submitter s = {.pool = p, .counter = &c, .jobs = 1000};
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&t[i], NULL, submit_all, &s), 0);
    struct pool_stats st;
    for (int i = 0; i < 20; i++) {
        pool_drain(p);
        pool_stats(p, &st);
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_join(t[i], NULL), 0);
    pool_drain(p);
    assert_int_equal(atomic_load(&c.jobs), 4000);
}

static void idle_time_is_counted(void **state)
{
    (void)state;
    CLEANUP(free_pool) struct pool *p = make(2, 1);
    nap_ms(50);
    struct pool_stats st;
    pool_stats(p, &st);
    assert_true(st.idle_ns >= 2 * 40000000ULL);
    assert_int_equal(st.busy_ns, 0);
    assert_int_equal(st.block_ns, 0);
    assert_int_equal(st.jobs, 0);
}

static void mask_job(void *arg, unsigned worker)
{
    (void)worker;
    pthread_sigmask(SIG_SETMASK, NULL, arg);
}

static void workers_take_no_signals(void **state)
{
    (void)state;
    sigset_t in_worker, here;
    CLEANUP(free_pool) struct pool *p = make(1, 1);
    pool_submit(p, mask_job, &in_worker);
    pool_drain(p);
    assert_true(sigismember(&in_worker, SIGINT) && sigismember(&in_worker, SIGTERM));
    assert_false(sigismember(&in_worker, SIGBUS));
    pthread_sigmask(SIG_SETMASK, NULL, &here);
    assert_false(sigismember(&here, SIGINT));
}

static void a_pool_of_nothing_is_refused(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct pool *p = NULL;
    assert_int_equal(pool_new(&p, 0, 1, "x", &e), -EINVAL);
    assert_int_equal(pool_new(&p, 1, 0, "x", &e), -EINVAL);
    assert_int_equal(pool_new(&p, 1, SIZE_MAX / 8, "x", &e), -ENOMEM);
    assert_null(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_job_runs_once),
        cmocka_unit_test(jobs_start_in_order),
        cmocka_unit_test(a_full_queue_holds_submitters_back),
        cmocka_unit_test(drain_waits_for_earlier_jobs_only),
        cmocka_unit_test(free_runs_what_is_queued),
        cmocka_unit_test(many_submitters),
        cmocka_unit_test(idle_time_is_counted),
        cmocka_unit_test(workers_take_no_signals),
        cmocka_unit_test(a_pool_of_nothing_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
