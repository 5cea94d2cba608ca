/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/epoch.h"

#include "base/cleanup.h"
#include "base/time.h"
#include "repo/epoch-parts.h"
#include "repo/epoch-test.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#define MINUTE (60 * NS_PER_S)
#define DEFAULT_REFRESH (20 * MINUTE)
#define LIST_ATTEMPTS 20
#define LOG_ATTEMPTS 10
#define WRITE_ATTEMPTS 100
#define LOG_MAX (64u << 20) /* bytes of a compaction log: a few hundred for each blob it names */

static const char poison[] =
    "n00000000000000000000000000000000-repository_unreadable_by_this_kopia_version_upgrade_required";

/* ---- clock ------------------------------------------------------------------------------------------------------ */

static const struct epoch_hooks *hooks;

void epoch_set_hooks(const struct epoch_hooks *h)
{
    hooks = h;
}

/* The wall clock, not the monotonic one: a state must not outlive a suspended night. */
int64_t epoch_now_ns(void)
{
    if (hooks && hooks->now_ns)
        return hooks->now_ns(hooks->arg);
    return now_ns();
}

void epoch_sleep_ns(int64_t duration)
{
    if (hooks && hooks->sleep_ns) {
        hooks->sleep_ns(hooks->arg, duration);
        return;
    }
    struct timespec ts = {.tv_sec = duration / NS_PER_S, .tv_nsec = duration % NS_PER_S};
    while (nanosleep(&ts, &ts) < 0 && errno == EINTR)
        ;
}

void epoch_step(const char *step)
{
    if (hooks && hooks->step)
        hooks->step(hooks->arg, step);
}

/* ---- names ------------------------------------------------------------------------------------------------------ */

/* All of p[0..len) as decimal digits; false if there are none, others, or too many. */
static bool parse_decimal(const char *p, size_t len, int64_t *ret)
{
    int64_t v = 0;
    for (size_t i = 0; i < len; i++) {
        if (p[i] < '0' || p[i] > '9' || __builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, p[i] - '0', &v))
            return false;
    }
    *ret = v;
    return len > 0;
}

/* The same with what is no digit in front left out. */
static bool parse_decimal_tail(const char *p, size_t len, int64_t *ret)
{
    size_t skip = 0;
    while (skip < len && (p[skip] < '0' || p[skip] > '9'))
        skip++;
    return parse_decimal(p + skip, len - skip, ret);
}

int64_t epoch_of_name(const char *name)
{
    int64_t v;
    return parse_decimal_tail(name, strcspn(name, "_"), &v) ? v : -1;
}

bool epoch_range_of_name(const char *name, struct epoch_range *ret)
{
    size_t first = strcspn(name, "_");
    if (!name[first])
        return false;
    const char *second = name + first + 1;
    size_t len = strcspn(second, "_");
    return second[len] && parse_decimal_tail(name, first, &ret->min) && parse_decimal(second, len, &ret->max);
}

bool epoch_watermark_of_name(const char *name, int64_t *seconds)
{
    if (strncmp(name, "xw", 2) != 0)
        return false;
    const char *p = name + 2;
    bool minus = *p == '-';
    p += minus || *p == '+';
    if (!parse_decimal(p, strlen(p), seconds))
        return false;
    if (minus)
        *seconds = -*seconds;
    return true;
}

/* "…-s<id>-c<count>[-…]": its set and how many blobs that has; false: a set of its own. */
static bool set_of_name(const char *name, const char **set, size_t *set_len, int64_t *count)
{
    const char *p = strchr(name, '-');
    if (!p || p[1] != 's')
        return false;
    *set = p + 1;
    *set_len = strcspn(p + 1, "-");
    p += 1 + *set_len;
    if (p[0] != '-' || p[1] != 'c')
        return false;
    return parse_decimal(p + 2, strcspn(p + 2, "-"), count);
}

struct set_member {
    const char *set;
    size_t len, at; /* its place among the names */
    int64_t count;
};

/* By set, then as given. */
static int by_set(const void *pa, const void *pb)
{
    const struct set_member *a = pa, *b = pb;
    const int c = memcmp(a->set, b->set, a->len < b->len ? a->len : b->len);
    if (c || a->len != b->len)
        return c ? c : a->len < b->len ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

static bool same_set(const struct set_member *a, const struct set_member *b)
{
    return a->len == b->len && memcmp(a->set, b->set, a->len) == 0;
}

int64_t epoch_first_complete(const char *const *names, size_t n, bool *member)
{
    CLEANUP_FREE struct set_member *m = n ? malloc(n * sizeof *m) : NULL;
    size_t k = 0, first = 0, best = n, alone = n;
    if (n && !m)
        return -ENOMEM;
    for (; k < n && alone == n; k++) {
        m[k].at = k;
        if (!set_of_name(names[k], &m[k].set, &m[k].len, &m[k].count))
            alone = k; /* complete by itself: none of those behind it is the earliest */
    }
    k -= alone < n;
    if (k)
        qsort(m, k, sizeof *m, by_set);
    /* Its companions are those before it: it is the one that completes the set, or not. */
    for (size_t i = 0, begin = 0; i < k; i++) {
        if (!same_set(&m[begin], &m[i]))
            begin = i;
        if (m[i].count == (int64_t)(i - begin + 1) && (best == n || m[i].at < m[best].at)) {
            best = i;
            first = begin;
        }
    }
    if (best == n && alone == n)
        return 0;
    if (best == n) {
        member[alone] = true;
        return 1;
    }
    for (size_t i = first; i <= best; i++)
        member[m[i].at] = true;
    return (int64_t)(best - first + 1);
}

/* ---- the chain of ranges ---- */

struct link {
    size_t links, before; /* of the shortest chain that ends here; 0 links: none */
};
struct range_end {
    int64_t max;
    size_t at;
};

static int by_max(const void *pa, const void *pb)
{
    const struct range_end *a = pa, *b = pb;
    if (a->max != b->max)
        return a->max < b->max ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

/* Of the ranges that end at `max`, the first with the shortest chain; n: there is none. Each of them begins before
 * what follows it, so that its chain is known. */
static size_t link_before(const struct range_end *ends, size_t n, const struct link *l, int64_t max)
{
    size_t lo = 0, hi = n, best = n;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if (ends[mid].max < max)
            lo = mid + 1;
        else
            hi = mid;
    }
    for (; lo < n && ends[lo].max == max; lo++) {
        const size_t k = ends[lo].at;
        if (l[k].links && (best == n || l[k].links < l[best].links))
            best = k;
    }
    return best;
}

int64_t epoch_chain(const struct epoch_range *ranges, size_t n, size_t *chain)
{
    if (n == 0)
        return 0;
    CLEANUP_FREE struct link *l = calloc(n, sizeof *l);
    CLEANUP_FREE struct range_end *ends = malloc(n * sizeof *ends);
    if (!l || !ends)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        ends[i] = (struct range_end){ranges[i].max, i};
    qsort(ends, n, sizeof *ends, by_max);
    size_t best = n, before = n;
    for (size_t i = 0; i < n; i++) {
        /* Those that begin alike follow the same. */
        if (ranges[i].min > 0 && (i == 0 || ranges[i].min != ranges[i - 1].min))
            before = link_before(ends, n, l, ranges[i].min - 1);
        if (ranges[i].max < ranges[i].min)
            continue;
        if (ranges[i].min == 0)
            l[i] = (struct link){1, n};
        else if (before < n)
            l[i] = (struct link){l[before].links + 1, before};
        if (l[i].links && (best == n || ranges[i].max > ranges[best].max ||
                           (ranges[i].max == ranges[best].max && l[i].links < l[best].links)))
            best = i;
    }
    /* Stock clients require a chain that ends after epoch 0. */
    if (best == n || ranges[best].max == 0)
        return 0;
    size_t links = l[best].links;
    for (size_t i = best, at = links; at > 0; i = l[i].before)
        chain[--at] = i;
    return (int64_t)links;
}

/* ---- which blobs ------------------------------------------------------------------------------------------------ */

/* One x blob with the numbers of its name. Sorted by kind, numbers, name. */
struct cand {
    char kind; /* 'n', 's', 'r' */
    struct epoch_range r;
    const struct blob_info *info;
};

static int by_number(const void *pa, const void *pb)
{
    const struct cand *a = pa, *b = pb;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (a->r.min != b->r.min)
        return a->r.min < b->r.min ? -1 : 1;
    if (a->r.max != b->r.max)
        return a->r.max < b->r.max ? -1 : 1;
    return strcmp(a->info->name, b->info->name);
}

static int by_name(const void *pa, const void *pb)
{
    const struct blob_info *a = pa, *b = pb;
    return strcmp(a->name, b->name);
}

/* xn blobs are listed by the exact prefix "xn<E>_", so "xn07_..." belongs to no epoch. */
static bool exact_epoch_prefix(const char *name, int64_t epoch)
{
    char want[32];
    int n = snprintf(want, sizeof want, "xn%" PRId64 "_", epoch);
    return strncmp(name, want, (size_t)n) == 0;
}

static bool candidate_add(const struct blob_info *b, struct cand *c)
{
    if (b->name[0] != 'x')
        return false;
    *c = (struct cand){.kind = b->name[1], .info = b};
    if (c->kind == 'r')
        return epoch_range_of_name(b->name, &c->r);
    if (c->kind != 's' && c->kind != 'n')
        return false;
    c->r.min = c->r.max = epoch_of_name(b->name);
    return c->r.min >= 0 && (c->kind == 's' || exact_epoch_prefix(b->name, c->r.min));
}

/* Input of the selection. */
struct selection {
    struct cand *cand;
    size_t n;
    struct epoch_state *st;
    size_t room;
};

static void selection_clear(struct selection *s)
{
    free(s->cand);
}

static void candidates_scan(struct selection *s, const struct blob_info *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int64_t v;
        if (strncmp(list[i].name, "xe", 2) == 0) {
            v = epoch_of_name(list[i].name);
            if (v > s->st->write_epoch)
                s->st->write_epoch = v;
        } else if (epoch_watermark_of_name(list[i].name, &v)) {
            if (v > s->st->watermark)
                s->st->watermark = v;
        } else if (candidate_add(&list[i], &s->cand[s->n])) {
            s->n++;
        }
    }
    qsort(s->cand, s->n, sizeof *s->cand, by_number);
}

static void selection_add(struct selection *s, const struct blob_info *b)
{
    s->st->blobs[s->st->n_blobs++] = *b;
}

/* End of the run of candidates with the numbers of the first. */
static size_t run_end(const struct selection *s, size_t i)
{
    size_t k = i + 1;
    while (k < s->n && s->cand[k].kind == s->cand[i].kind && s->cand[k].r.min == s->cand[i].r.min &&
           s->cand[k].r.max == s->cand[i].r.max)
        k++;
    return k;
}

/* Thins each run of xs and xr candidates to its first complete set. */
static int keep_complete(struct selection *s, struct err *e)
{
    CLEANUP_FREE const char **names = malloc(s->n * sizeof *names + 1);
    CLEANUP_FREE bool *member = malloc(s->n * sizeof *member + 1);
    if (!names || !member)
        return err_nomem(e);
    size_t kept = 0;
    for (size_t i = 0; i < s->n;) {
        size_t end = run_end(s, i), n = end - i;
        for (size_t k = 0; k < n; k++) {
            names[k] = s->cand[i + k].info->name;
            member[k] = s->cand[i].kind == 'n';
        }
        if (s->cand[i].kind != 'n' && epoch_first_complete(names, n, member) < 0)
            return err_nomem(e);
        for (size_t k = 0; k < n; k++)
            if (member[k])
                s->cand[kept++] = s->cand[i + k];
        i = end;
    }
    s->n = kept;
    return 0;
}

/* Position of the first candidate of a kind (or of a later kind). */
static size_t kind_at(const struct selection *s, char kind)
{
    size_t i = 0;
    while (i < s->n && s->cand[i].kind < kind)
        i++;
    return i;
}

/* Adds the blobs of the range chain and finds the first epoch that it does not cover. */
static int selection_add_ranges(struct selection *s, int64_t *start, struct err *e)
{
    size_t first = kind_at(s, 'r'), last = kind_at(s, 's'), n = 0;
    CLEANUP_FREE struct epoch_range *ranges = calloc(last - first + 1, sizeof *ranges);
    CLEANUP_FREE size_t *at = calloc(last - first + 1, sizeof *at), *chain = calloc(last - first + 1, sizeof *chain);
    if (!ranges || !at || !chain)
        return err_nomem(e);
    for (size_t i = first; i < last; i = run_end(s, i)) {
        ranges[n] = s->cand[i].r;
        at[n++] = i;
    }
    int64_t links = epoch_chain(ranges, n, chain);
    if (links < 0)
        return err_nomem(e);
    for (int64_t k = 0; k < links; k++) {
        size_t i = at[chain[k]], end = run_end(s, i);
        /* Exactly the condition of stock clients: a first link 0..0 adds nothing. A client that loads more index
         * blobs than others may reuse contents that the others do not see. */
        if (s->cand[i].r.max <= *start)
            continue;
        *start = s->cand[i].r.max < INT64_MAX ? s->cand[i].r.max + 1 : INT64_MAX;
        for (; i < end; i++)
            selection_add(s, s->cand[i].info);
    }
    return 0;
}

static bool has_single(const struct selection *s, size_t first, int64_t epoch)
{
    size_t lo = first, hi = s->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (s->cand[mid].r.min < epoch)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < s->n && s->cand[lo].r.min == epoch;
}

int epoch_select(struct epoch_state *ret, const struct blob_info *list, size_t n, struct err *e)
{
    struct epoch_state st = {.watermark = INT64_MIN};
    CLEANUP(selection_clear) struct selection s = {.cand = malloc((n + 1) * sizeof *s.cand), .st = &st};
    CLEANUP_FREE struct blob_info *blobs = malloc((n + 1) * sizeof *blobs);
    if (!s.cand || !blobs)
        return err_nomem(e);
    st.blobs = blobs;
    candidates_scan(&s, list, n);
    int64_t start = 0;
    int r = keep_complete(&s, e);
    if (r == 0)
        r = selection_add_ranges(&s, &start, e);
    if (r < 0)
        return r;

    size_t news = kind_at(&s, 'n'), ranges = kind_at(&s, 'r'), singles = kind_at(&s, 's');
    int64_t settled = st.write_epoch - 2;
    for (size_t i = singles; i < s.n; i++)
        if (s.cand[i].r.min >= start && s.cand[i].r.min <= settled)
            selection_add(&s, s.cand[i].info);
    for (size_t i = news; i < ranges; i++) {
        int64_t epoch = s.cand[i].r.min;
        if (epoch < start || epoch - 1 > st.write_epoch)
            continue;
        if (epoch > settled || !has_single(&s, singles, epoch))
            selection_add(&s, s.cand[i].info);
    }
    qsort(st.blobs, st.n_blobs, sizeof *st.blobs, by_name);
    st.blobs = take_ptr(&blobs);
    *ret = st;
    return 0;
}

void epoch_state_clear(struct epoch_state *st)
{
    free(st->blobs);
    *st = (struct epoch_state){.watermark = INT64_MIN};
}

/* ---- loading ---------------------------------------------------------------------------------------------------- */

struct listing {
    struct blob_info *b;
    size_t n, room;
};

static void listing_clear(struct listing *l)
{
    free(l->b);
}

static int listing_collect(const struct blob_info *info, void *arg)
{
    struct listing *l = arg;
    if (l->n == l->room) {
        size_t room = l->room ? 2 * l->room : 64;
        struct blob_info *b = realloc(l->b, room * sizeof *b);
        if (!b)
            return -ENOMEM;
        l->b = b;
        l->room = room;
    }
    l->b[l->n++] = *info;
    return 0;
}

static int list_all(struct blobs *b, const char *prefix, struct listing *l, struct err *e)
{
    int r = blobs_list(b, prefix, listing_collect, l, e);
    return r == -ENOMEM ? err_nomem(e) : r;
}

static int64_t refresh_ns(const struct repo_format *f)
{
    return f->epochs.refresh_ns > 0 ? f->epochs.refresh_ns : DEFAULT_REFRESH;
}

static int listing_filter(struct listing *l, const struct epoch_without *w, struct err *e)
{
    struct blob_info marker = {.name = ""};
    size_t kept = 0;
    for (size_t i = 0; i < l->n; i++) {
        bool out = false;
        for (size_t k = 0; k < w->n && !out; k++)
            out = strcmp(l->b[i].name, w->names[k]) == 0;
        if (!out)
            l->b[kept++] = l->b[i];
    }
    l->n = kept;
    if (!w->least_epoch)
        return 0;
    snprintf(marker.name, sizeof marker.name, "xe%" PRId64, w->least_epoch);
    return listing_collect(&marker, l) < 0 ? err_nomem(e) : 0;
}

struct epoch_ahead {
    struct blobs *b;
    struct listing l;
    int64_t began_ns;
    int rc;
    struct err e;
    bool waits;
    pthread_t thread;
};

static void *ahead_main(void *arg)
{
    struct epoch_ahead *a = arg;
    a->rc = list_all(a->b, "x", &a->l, &a->e);
    return NULL;
}

struct epoch_ahead *epoch_ahead_new(struct blobs *b)
{
    struct epoch_ahead *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    a->b = b;
    a->began_ns = epoch_now_ns();
    if (pthread_create(&a->thread, NULL, ahead_main, a) != 0) {
        free(a);
        return NULL;
    }
    a->waits = true;
    return a;
}

static void ahead_wait(struct epoch_ahead *a)
{
    if (a->waits)
        pthread_join(a->thread, NULL);
    a->waits = false;
}

void epoch_ahead_free(struct epoch_ahead *a)
{
    if (!a)
        return;
    ahead_wait(a);
    listing_clear(&a->l);
    free(a);
}

/* What it has found, once. */
static int ahead_take(struct epoch_ahead *a, struct listing *l, int64_t *began_ns, struct err *e)
{
    ahead_wait(a);
    *l = a->l;
    *began_ns = a->began_ns;
    a->l = (struct listing){.n = 0};
    if (a->rc < 0 && e)
        *e = a->e;
    return a->rc;
}

/*
 * One walk instead of a listing for each prefix. The result is as if each had been listed at some moment of the walk,
 * and within the state's validity their order does not matter: epochs last far longer.
 */
static int load_epochs(struct epoch_state *ret, struct epoch_ahead *a, struct blobs *b, const struct repo_format *f,
                       const struct epoch_without *w, struct err *e)
{
    int64_t pause = NS_PER_S / 10;
    for (unsigned attempt = 1;; attempt++) {
        CLEANUP(listing_clear) struct listing l = {.n = 0};
        int64_t now = epoch_now_ns();
        int r = a && attempt == 1 ? ahead_take(a, &l, &now, e) : list_all(b, "x", &l, e);
        const int64_t until = now + refresh_ns(f);
        if (r == 0 && w)
            r = listing_filter(&l, w, e);
        if (r < 0)
            return r;
        epoch_step("listed");
        if (epoch_now_ns() < until) {
            r = epoch_select(ret, l.b, l.n, e);
            ret->loaded_ns = now;
            ret->valid_until_ns = until;
            return r;
        }
        if (attempt == LIST_ATTEMPTS)
            return err_set(e, ERR_BUSY, EAGAIN,
                           "listing of the index blobs in %s took longer than the %" PRId64
                           " minutes for which a listing is valid, %d times",
                           blobs_location(b), refresh_ns(f) / MINUTE, LIST_ATTEMPTS);
        epoch_sleep_ns(pause);
        pause = pause * 3 / 2 < 15 * NS_PER_S ? pause * 3 / 2 : 15 * NS_PER_S;
    }
}

/* ---- repositories without epochs -------------------------------------------------------------------------------- */

static int bad_log(const char *name, struct err *e)
{
    return err_set(e, ERR_DAMAGE, EBADMSG, "compaction log %s of the index is malformed", name);
}

static struct blob_info *is_listed(const struct listing *l, const char *name)
{
    size_t lo = 0, hi = l->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = strcmp(l->b[mid].name, name);
        if (c == 0)
            return &l->b[mid];
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

/* Calls for every "id" of a metadata list (null counts as empty): 0, or -1 if it is not a list. */
static int each_id(json_t *list, void (*fn)(const char *id, void *arg), void *arg)
{
    if (!list || json_is_null(list))
        return 0;
    if (!json_is_array(list))
        return -1;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *id = json_string_value(json_object_get(json_array_get(list, i), "id"));
        if (!id)
            return -1;
        fn(id, arg);
    }
    return 0;
}

struct log_ctx {
    const struct listing *l;
    bool *gone;
    bool missing;
};

static void check_output(const char *id, void *arg)
{
    struct log_ctx *c = arg;
    c->missing = c->missing || !is_listed(c->l, id);
}

static void drop_input(const char *id, void *arg)
{
    struct log_ctx *c = arg;
    const struct blob_info *b = is_listed(c->l, id);
    if (b)
        c->gone[b - c->l->b] = true;
}

/* Marks the inputs of one compaction log as deleted, if all its outputs are listed. */
static int apply_log(const struct listing *l, bool *gone, const char *name, const uint8_t *text, size_t len,
                     struct err *e)
{
    json_t *doc = json_loadb((const char *)text, len, 0, NULL);
    struct log_ctx c = {l, gone, false};
    int r = 0;
    if (!json_is_object(doc) || each_id(json_object_get(doc, "outputMetadata"), check_output, &c) < 0 ||
        (!c.missing && each_id(json_object_get(doc, "inputMetadata"), drop_input, &c) < 0))
        r = bad_log(name, e);
    json_decref(doc);
    return r;
}

static int read_log(struct blobs *b, const struct sealer *s, const struct listing *l, bool *gone, const char *name,
                    struct err *e)
{
    CLEANUP_FREE uint8_t *sealed = NULL, *text = NULL;
    size_t sealed_len, len;
    int r = blobs_get(b, name, LOG_MAX, &sealed, &sealed_len, e);
    if (r < 0)
        return r;
    r = named_open(s, name, sealed, sealed_len, &text, &len, e);
    if (r < 0)
        return err_wrap(e, "compaction log %s of the index", name);
    return apply_log(l, gone, name, text, len, e);
}

static int try_load_v0(struct epoch_state *ret, struct blobs *b, const struct sealer *s, struct err *e)
{
    CLEANUP(listing_clear) struct listing l = {.n = 0}, logs = {.n = 0};
    int r = list_all(b, "n", &l, e);
    if (r == 0)
        r = list_all(b, "m", &logs, e);
    if (r < 0)
        return r;
    epoch_step("listed");
    if (l.n)
        qsort(l.b, l.n, sizeof *l.b, by_name);
    CLEANUP_FREE bool *gone = calloc(l.n + 1, sizeof *gone);
    CLEANUP_FREE struct blob_info *blobs = malloc((l.n + 1) * sizeof *blobs);
    if (!gone || !blobs)
        return err_nomem(e);
    for (size_t i = 0; i < logs.n; i++) {
        r = read_log(b, s, &l, gone, logs.b[i].name, e);
        if (r < 0)
            return r;
    }
    struct epoch_state st = {.watermark = INT64_MIN};
    for (size_t i = 0; i < l.n; i++)
        if (!gone[i] && strcmp(l.b[i].name, poison) != 0)
            blobs[st.n_blobs++] = l.b[i];
    st.blobs = take_ptr(&blobs);
    *ret = st;
    return 0;
}

/* A missing log was cleaned up after the blobs it names: list again, nothing is lost. */
static int load_v0(struct epoch_state *ret, struct blobs *b, const struct sealer *s, const struct repo_format *f,
                   struct err *e)
{
    int64_t pause = NS_PER_S / 10;
    for (unsigned attempt = 1;; attempt++) {
        int64_t now = epoch_now_ns();
        int r = try_load_v0(ret, b, s, e);
        if (r == 0) {
            ret->loaded_ns = now;
            ret->valid_until_ns = now + refresh_ns(f);
        }
        if (r != -ENOENT || attempt == LOG_ATTEMPTS)
            return r;
        epoch_sleep_ns(pause);
        pause = pause * 2 < 2 * NS_PER_S ? pause * 2 : 2 * NS_PER_S;
    }
}

int epoch_load(struct epoch_state *ret, struct blobs *b, const struct sealer *s, const struct repo_format *f,
               struct err *e)
{
    return epoch_load_listed(ret, NULL, b, s, f, NULL, e);
}

int epoch_load_listed(struct epoch_state *ret, struct epoch_ahead *a, struct blobs *b, const struct sealer *s,
                      const struct repo_format *f, const struct epoch_without *w, struct err *e)
{
    return f->epochs.enabled ? load_epochs(ret, a, b, f, w, e) : load_v0(ret, b, s, f, e);
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

/* One call of epoch_write_indexes(). */
struct write_job {
    struct blobs *b;
    const struct sealer *s;
    const struct repo_format *f;
    const char *prefix; /* of the sealed names: "n" without epochs */
    char suffix[128];
    const struct index_shard_data *shards;
    const struct epoch_state *known; /* NULL: none */
    size_t n, done;                  /* shards; the first `done` are written */
    int64_t epoch;                   /* in which they were written */
    char (*names)[BLOB_NAME_MAX + 1];
};

/* Deletes the shards written by this call, and the next one if its put may have left a blob. */
static int shards_delete(struct write_job *j, bool and_next, struct err *e)
{
    int r = 0;
    for (size_t i = 0; i < j->done + and_next && i < j->n; i++) {
        int r1 = j->names[i][0] ? blobs_delete(j->b, j->names[i], e) : 0;
        r = r < 0 ? r : r1;
    }
    if (r == 0)
        j->done = 0;
    return r;
}

/* Writes the next shard, in epoch `epoch` (-1: without epochs). */
static int put_shard(struct write_job *j, int64_t epoch, struct err *e)
{
    const struct index_shard_data *d = &j->shards[j->done];
    char *name = j->names[j->done], sealed_name[BLOB_NAME_MAX + 1];
    CLEANUP_FREE uint8_t *sealed = NULL;
    size_t len;
    name[0] = '\0';
    int r = named_seal(j->s, j->prefix, j->suffix, d->data, d->len, sealed_name, &sealed, &len, e);
    if (r < 0)
        return r;
    int n = epoch < 0 ? snprintf(name, BLOB_NAME_MAX + 1, "%s", sealed_name)
                      : snprintf(name, BLOB_NAME_MAX + 1, "xn%" PRId64 "_%s", epoch, sealed_name);
    if (n > BLOB_NAME_MAX) {
        name[0] = '\0';
        return err_set(e, ERR_GENERIC, ENAMETOOLONG, "name of index blob %s is too long", sealed_name);
    }
    r = blobs_put(j->b, name, sealed, len, e);
    if (r < 0)
        return r;
    j->done++;
    j->epoch = epoch;
    epoch_step("put");
    return 0;
}

static int write_in_epoch(struct write_job *j, struct err *e)
{
    struct epoch_state st = {.watermark = INT64_MIN};
    int64_t refresh = refresh_ns(j->f);
    if (j->known && j->known->loaded_ns <= epoch_now_ns()) /* one of the future is of a clock that was set back */
        st = *j->known;
    for (unsigned attempt = 0; j->done < j->n; attempt++) {
        if (attempt == WRITE_ATTEMPTS)
            return err_set(e, ERR_BUSY, EAGAIN,
                           "index not written to %s: the listing expired %d times during the write",
                           blobs_location(j->b), WRITE_ATTEMPTS);
        int64_t left = st.valid_until_ns - epoch_now_ns();
        if (left < refresh / 4 * 3) {
            int r = epoch_load(&st, j->b, j->s, j->f, e);
            if (r < 0)
                return r;
            free(take_ptr(&st.blobs)); /* only the numbers are of interest */
        }
        if (j->done && st.write_epoch != j->epoch) {
            int r = shards_delete(j, false, e);
            if (r < 0)
                return r;
        }
        while (j->done < j->n && epoch_now_ns() < st.valid_until_ns) {
            int r = put_shard(j, st.write_epoch, e);
            if (r < 0)
                return r;
        }
    }
    epoch_step("written");
    int r = epoch_load(&st, j->b, j->s, j->f, e);
    if (r < 0)
        return r;
    int64_t now_epoch = st.write_epoch;
    epoch_state_clear(&st);
    if (now_epoch - 2 >= j->epoch) {
        err_set(e, ERR_BUSY, EAGAIN,
                "index write to %s took too long: written in epoch %" PRId64 ", current epoch is %" PRId64,
                blobs_location(j->b), j->epoch, now_epoch);
        return err_hint(e, "the index blobs were deleted again; no data is lost, retry");
    }
    return 0;
}

int epoch_write_indexes(struct blobs *b, const struct sealer *s, const struct repo_format *f, const char *session,
                        const struct index_shard_data *shards, size_t n, char (*names)[BLOB_NAME_MAX + 1],
                        struct err *e)
{
    return epoch_write_known(NULL, b, s, f, session, shards, n, names, e);
}

int epoch_write_known(const struct epoch_state *known, struct blobs *b, const struct sealer *s,
                      const struct repo_format *f, const char *session, const struct index_shard_data *shards, size_t n,
                      char (*names)[BLOB_NAME_MAX + 1], struct err *e)
{
    if (n == 0)
        return 0;
    bool epochs = f->epochs.enabled;
    struct write_job j = {
        .b = b, .s = s, .f = f, .prefix = epochs ? "" : "n", .shards = shards, .known = known, .n = n, .names = names};
    session = session ? session : "";
    int len = epochs ? snprintf(j.suffix, sizeof j.suffix, "%s-c%zu", session, n)
                     : snprintf(j.suffix, sizeof j.suffix, "%s", session);
    if (len >= (int)sizeof j.suffix)
        return err_set(e, ERR_GENERIC, EINVAL, "session id %.40s... is too long", session);
    for (size_t i = 0; i < n; i++)
        names[i][0] = '\0';

    int r = 0;
    if (epochs)
        r = write_in_epoch(&j, e);
    else
        while (r == 0 && j.done < n)
            r = put_shard(&j, -1, e);
    if (r < 0) {
        /* The first failure is reported; further ones would not add information. */
        struct err ignored = ERR_INIT;
        shards_delete(&j, true, &ignored);
    }
    return r;
}
