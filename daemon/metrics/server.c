/* SPDX-License-Identifier: GPL-2.0-or-later */
/* server.c - the endpoint's part in the event loop: pages on request, retries, the text file */
#include "daemon/metrics/server.h"

#include "base/cleanup.h"
#include "base/json.h"
#include "base/time.h"
#include "daemon/metrics/exchange.h"
#include "daemon/metrics/listener.h"
#include "daemon/metrics/metrics.h"
#include "daemon/metrics/textfile.h"
#include "proc/step.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define RETRY_USEC (5 * UINT64_C(1000000))
#define TEXTFILE_TIMEOUT_S 60

struct metrics_server {
    sd_event *loop;
    struct metrics_source source;
    struct cfg *cfg;
    struct exchange exchange;
    struct listener *listener;
    struct steps *steps;
    struct step *writing; /* NULL: no step writes or removes the text file */
    char *written;        /* path that was written last, or is being written; NULL: none */
    struct err textfile_error;
    int64_t written_ns;
    sd_event_source *asks, *retry, *period;
};

/* ---- pages ---- */

static void add_own(json_t *samples)
{
    json_array_append_new(
        samples, json_pack("{s:s, s:f}", "name", "metrics_timestamp_seconds", "value", (double)now_ns() / 1e9));
}

static struct page *make_page(struct metrics_server *s)
{
    const struct cfg_metrics *c = cfg_metrics(s->cfg);
    struct metrics_options o = {.compat = c->compat, .series_max = c->series_max};
    CLEANUP_JSON json_t *facts = s->source.samples(s->source.arg);
    json_t *samples = jarr(facts, "samples");
    if (samples)
        add_own(samples);
    return page_new(json_incref(samples), &o);
}

/* Wakes the threads, with a page if one is requested. */
static void answer(struct metrics_server *s, bool always)
{
    uint64_t asked;
    char why[256] = "";
    bool wanted = exchange_take(&s->exchange, &asked);
    struct page *p = wanted || always ? make_page(s) : NULL;
    bool ready = s->source.ready(why, sizeof why, s->source.arg);
    exchange_answer(&s->exchange, asked, p, ready, why);
}

static int on_ask(sd_event_source *src, int fd, uint32_t events, void *arg)
{
    (void)src, (void)fd, (void)events;
    answer(arg, false);
    return 0;
}

/* ---- the text file ---- */

static void remove_old_textfile(struct metrics_server *s);

static void removed(struct step_result *r, void *arg)
{
    struct metrics_server *s = arg;
    s->writing = NULL;
    if (r->err.cls)
        log_warning("%s", r->err.msg);
}

static void written(struct step_result *r, void *arg)
{
    struct metrics_server *s = arg;
    s->writing = NULL;
    if (strcmp(s->written, cfg_metrics(s->cfg)->textfile) != 0) {
        remove_old_textfile(s); /* there was a reload meanwhile */
        return;
    }
    if (r->err.cls && strcmp(s->textfile_error.msg, r->err.msg) != 0)
        log_warning("%s", r->err.msg);
    s->textfile_error = r->err;
    if (r->err.cls)
        return;
    s->written_ns = now_ns();
}

/* A file that is no longer configured would show the last state to the collector indefinitely. */
static void remove_old_textfile(struct metrics_server *s)
{
    struct err e = ERR_INIT;
    if (s->writing || !s->written || !strcmp(s->written, cfg_metrics(s->cfg)->textfile))
        return;
    CLEANUP_JSON json_t *in = json_pack("{s:s}", "path", s->written);
    free(s->written);
    s->written = NULL;
    s->written_ns = 0;
    if (!in)
        err_nomem(&e);
    else
        step_start(s->steps, "remove the old text file", textfile_remove_step, in, TEXTFILE_TIMEOUT_S, removed, s,
                   &s->writing, &e);
    if (e.cls) {
        s->writing = NULL;
        log_warning("%s", e.msg);
    }
}

static void write_textfile(struct metrics_server *s)
{
    const struct cfg_metrics *c = cfg_metrics(s->cfg);
    struct err e = ERR_INIT;
    if (!c->textfile[0] || s->writing)
        return;
    answer(s, true);
    struct page *p = exchange_last(&s->exchange);
    size_t len = 0;
    const char *text = p ? page_text(p, &len) : NULL;
    CLEANUP_JSON json_t *in = text ? json_pack("{s:s, s:s%}", "path", c->textfile, "text", text, len) : NULL;
    page_unref(p);
    free(s->written);
    s->written = strdup(c->textfile);
    if (!in || !s->written)
        err_nomem(&e);
    else
        step_start(s->steps, "write the metrics", textfile_step, in, TEXTFILE_TIMEOUT_S, written, s, &s->writing, &e);
    if (e.cls) {
        s->writing = NULL;
        s->textfile_error = e;
    }
}

static int on_period(sd_event_source *src, uint64_t usec, void *arg)
{
    struct metrics_server *s = arg;
    (void)usec;
    write_textfile(s);
    sd_event_source_set_time_relative(src, (uint64_t)cfg_metrics(s->cfg)->textfile_period_s * 1000000);
    return sd_event_source_set_enabled(src, SD_EVENT_ONESHOT);
}

/* ---- the configuration ---- */

static void listen_again(struct metrics_server *s)
{
    exchange_release(&s->exchange);
    const bool again = !listener_apply(s->listener, cfg_metrics(s->cfg));
    if (again)
        sd_event_source_set_time_relative(s->retry, RETRY_USEC);
    sd_event_source_set_enabled(s->retry, again ? SD_EVENT_ONESHOT : SD_EVENT_OFF);
    answer(s, false);
}

static int on_retry(sd_event_source *src, uint64_t usec, void *arg)
{
    (void)src, (void)usec;
    listen_again(arg);
    return 0;
}

void metrics_server_apply(struct metrics_server *s, struct cfg *c)
{
    cfg_ref(c);
    cfg_free(s->cfg);
    s->cfg = c;
    answer(s, true);
    listen_again(s);
    if (!cfg_metrics(c)->textfile[0])
        s->textfile_error = (struct err)ERR_INIT;
    remove_old_textfile(s);
    sd_event_source_set_time_relative(s->period, 0);
    sd_event_source_set_enabled(s->period, cfg_metrics(c)->textfile[0] ? SD_EVENT_ONESHOT : SD_EVENT_OFF);
}

/* ---- what is told ---- */

static void tell(json_t *problems, const char *text, const char *hint)
{
    json_array_append_new(problems, json_pack("{s:s, s:s, s:s}", "severity", "warning", "text", text, "hint", hint));
}

json_t *metrics_server_json(const struct metrics_server *s, json_t *problems)
{
    const struct cfg_metrics *c = cfg_metrics(s->cfg);
    const char *address = listener_address(s->listener);
    const struct err *error = listener_error(s->listener);
    json_t *listen = json_array(), *file = NULL;
    char text[512];
    if (address[0])
        json_array_append_new(listen, json_pack("{s:s, s:s?}", "address", address, "error", error ? error->msg : NULL));
    if (error)
        tell(problems, error->msg,
             c->closed[0] ? error->hint : "retried every 5 s; [metrics] sets where metrics are served");
    for (const char *const *w = c->listen; w && *w && w[1]; w++) {
        snprintf(text, sizeof text, "metrics are not served at %s: one address since 0.2, which is %s", w[1], address);
        tell(problems, text, "use a reverse proxy, see snapferry-metrics(7), and name one address in [metrics]");
    }
    if (s->textfile_error.cls)
        tell(problems, s->textfile_error.msg, "it is tried again each textfile-period");
    if (c->textfile[0])
        file = json_pack("{s:s, s:I, s:s?}", "path", c->textfile, "written_ns", (json_int_t)s->written_ns, "error",
                         s->textfile_error.cls ? s->textfile_error.msg : NULL);
    return json_pack("{s:o, s:o?}", "listen", listen, "textfile", file);
}

void metrics_server_stopping(struct metrics_server *s, const char *why)
{
    if (s)
        exchange_close(&s->exchange, why);
}

/* ---- begin and end ---- */

static int add_sources(struct metrics_server *s, struct err *e)
{
    int rc = sd_event_add_io(s->loop, &s->asks, s->exchange.asks, EPOLLIN, on_ask, s);
    if (rc >= 0)
        rc = sd_event_add_time_relative(s->loop, &s->retry, CLOCK_MONOTONIC, RETRY_USEC, 0, on_retry, s);
    if (rc >= 0)
        rc = sd_event_add_time_relative(s->loop, &s->period, CLOCK_MONOTONIC, 0, 0, on_period, s);
    if (rc < 0)
        return err_set(e, ERR_GENERIC, -rc, "the event loop takes no more sources");
    sd_event_source_set_enabled(s->retry, SD_EVENT_OFF);
    sd_event_source_set_enabled(s->period, SD_EVENT_OFF);
    return 0;
}

int metrics_server_new(struct metrics_server **ret, sd_event *loop, const struct metrics_source *source, struct cfg *c,
                       struct err *e)
{
    struct metrics_server *s = calloc(1, sizeof *s);
    if (!s)
        return err_nomem(e);
    s->loop = loop;
    s->source = *source;
    int rc = exchange_init(&s->exchange, e);
    if (rc < 0) {
        free(s);
        return rc;
    }
    if ((rc = add_sources(s, e)) < 0 || (rc = steps_new(&s->steps, loop, e)) < 0 ||
        (rc = listener_new(&s->listener, &s->exchange, e)) < 0) {
        metrics_server_free(s);
        return rc;
    }
    metrics_server_apply(s, c);
    *ret = s;
    return 0;
}

void metrics_server_free(struct metrics_server *s)
{
    if (!s)
        return;
    exchange_close(&s->exchange, "the daemon ends");
    sd_event_source_disable_unref(s->asks);
    sd_event_source_disable_unref(s->retry);
    sd_event_source_disable_unref(s->period);
    listener_free(s->listener);
    steps_free(s->steps);
    exchange_clear(&s->exchange);
    cfg_free(s->cfg);
    free(s->written);
    free(s);
}
