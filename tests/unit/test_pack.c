/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The frame of pack blobs, local indexes of our own and of Kopia's, session ids, the table of pending contents. */
#include "tests/unit/test.h"

#include "repo/marker.h"
#include "repo/pack.h"
#include "repo/packset.h"
#include "repo/pending.h"
#include "repo/repo.h"

#include <ftw.h>
#include <jansson.h>
#include <openssl/hmac.h>
#include <sys/stat.h>
#include <time.h>

static struct err err;
static char scratch_dir[256];
static struct segments *segments;

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

static int group_setup(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    tmp = tmp ? tmp : access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(scratch_dir, sizeof scratch_dir, "%s/snapferry-pack-XXXXXX", tmp);
    return mkdtemp(scratch_dir) && segments_new(&segments, SEGMENT_SMALL, 4, &err) == 0 ? 0 : -1;
}

static int group_teardown(void **state)
{
    (void)state;
    segments_free(segments);
    nftw(scratch_dir, remove_one, 32, FTW_DEPTH | FTW_PHYS);
    return 0;
}

/* ---- packs of our own ---- */

struct made {
    struct blobs *blobs;
    struct repo_format *format;
    struct sealer *sealer;
    struct index_entry entries[3]; /* the third lies in another pack, deleted */
    char name[PACK_NAME_MAX];
    uint32_t start, end;
    uint8_t *bytes;
    size_t len;
};

static void make_pack(struct made *m, const char *what, const struct format_create *f)
{
    char dir[512];
    struct pack_writer *w;
    snprintf(dir, sizeof dir, "%s/%s", scratch_dir, what);
    assert_ok(blobs_open_dir(&m->blobs, dir, BLOBS_CREATE, NULL, 0, &err), &err);
    assert_ok(format_create(m->blobs, f, "password", &err), &err);
    assert_ok(format_load(&m->format, m->blobs, "password", &err), &err);
    assert_ok(sealer_new(&m->sealer, m->format, &err), &err);
    assert_ok(pack_name(m->name, 'p', "s0123456789abcdef144", &err), &err);
    assert_ok(pack_writer_new(&w, m->blobs, m->sealer, m->format, segments, m->name, &m->start, &err), &err);
    size_t id_len = hasher_size(sealer_hasher(m->sealer));
    m->end = m->start;
    static uint8_t sealed[4096], ecc[65536];
    uint64_t wait_ns = 0;
    for (int i = 0; i < 3; i++) {
        struct index_entry *n = &m->entries[i];
        uint8_t payload[128];
        memset(payload, 'a' + i, sizeof payload);
        *n = (struct index_entry){.id = {.len = (uint8_t)id_len}, .time = 1790000000 + i, .format_version = 1};
        memset(n->id.hash, 0x10 * (i + 1), id_len);
        n->length = 72;
        n->packed = (uint32_t)item_sealed_len(m->sealer, n->length);
        assert_true(n->packed <= sizeof sealed && item_scratch_len(m->sealer, n->length) <= sizeof ecc);
        if (i < 2) {
            strcpy(n->pack, m->name);
            n->offset = m->end;
            assert_ok(pack_writer_seal(w, m->end, n->id.hash, 16, payload, n->length, sealed, ecc, &wait_ns, &err),
                      &err);
            m->end += n->packed;
        } else {
            strcpy(n->pack, "p00000000000000000000000000000000-s0000000000000000144");
            n->offset = 5000;
            n->deleted = true;
        }
    }
    const struct index_entry *second = &m->entries[1];
    uint8_t back[sizeof sealed];
    assert_ok(pack_writer_read(w, second->offset, back, second->packed, &err), &err);
    assert_ok(pack_writer_close(w, m->end, m->entries, 3, &err), &err);
    assert_ok(pack_writer_commit(w, &err), &err);
    assert_ok(blobs_get(m->blobs, m->name, 1 << 20, &m->bytes, &m->len, &err), &err);
    assert_memory_equal(back, m->bytes + second->offset, second->packed);
}

static void made_free(struct made *m)
{
    free(m->bytes);
    sealer_free(m->sealer);
    format_free(m->format);
    blobs_free(m->blobs);
}

struct seen {
    const struct made *made;
    unsigned n;
};

static int see_entry(const struct index_entry *n, void *arg)
{
    struct seen *s = arg;
    const struct index_entry *want = &s->made->entries[s->n++];
    assert_true(content_id_equal(&n->id, &want->id));
    assert_string_equal(n->pack, want->pack);
    assert_int_equal(n->offset, want->offset);
    assert_int_equal(n->packed, want->packed);
    assert_int_equal(n->length, want->length);
    assert_int_equal(n->time, want->time);
    return 0;
}

static void check_frame(const struct made *m)
{
    struct postamble p;
    struct seen s = {.made = m};
    size_t tail = m->len < 8192 ? m->len : 8192;
    for (int i = 0; i < 2; i++) {
        const struct index_entry *n = &m->entries[i];
        static uint8_t plain[65536], scratch[65536];
        bool repaired;
        assert_int_equal(
            item_open(m->sealer, n->id.hash, 16, m->bytes + n->offset, n->packed, plain, scratch, &repaired, &err), 72);
        assert_true(plain[0] == 'a' + i && plain[71] == 'a' + i);
    }
    assert_int_equal(postamble_parse(&p, m->bytes + m->len - tail, tail, m->len), 0);
    /* 1..4096 bytes of padding, never none */
    assert_int_equal(p.offset % 4096, 0);
    assert_true(p.offset > m->end && p.offset - m->end <= 4096);
    assert_int_equal(p.iv_len, hasher_size(sealer_hasher(m->sealer)));
    assert_ok(pack_read_local_index(m->blobs, m->sealer, m->name, m->len, see_entry, &s, &err), &err);
    assert_int_equal(s.n, 2); /* what lies in other packs is left out */
}

static void frame_of_a_pack(void **state)
{
    (void)state;
    struct made m = {0};
    make_pack(&m, "v3", &(struct format_create){.hash = "BLAKE2B-256"});
    assert_int_equal(m.start, 32); /* the preamble alone */
    check_frame(&m);
    made_free(&m);
    m = (struct made){0};
    make_pack(&m, "v1", &(struct format_create){.version = 1, .hash = "BLAKE2B-256-128"});
    check_frame(&m);
    made_free(&m);
    m = (struct made){0};
    make_pack(&m, "ecc", &(struct format_create){.version = 2, .hash = "HMAC-SHA224", .ecc_percent = 10});
    check_frame(&m);
    made_free(&m);
}

static void recovery_block_in_old_repositories(void **state)
{
    (void)state;
    struct made m = {0};
    make_pack(&m, "old", &(struct format_create){.version = 1});
    size_t n = m.format->blob_len;
    uint8_t mac[32];
    unsigned mac_len = sizeof mac;
    if (m.format->password_change) {
        /* Made where the password can be changed: none. The same again, as if it could not. */
        assert_int_equal(m.start, 32);
        struct pack_writer *w;
        char name[PACK_NAME_MAX];
        m.format->password_change = false;
        assert_ok(pack_name(name, 'p', "s0123456789abcdef144", &err), &err);
        assert_ok(pack_writer_new(&w, m.blobs, m.sealer, m.format, segments, name, &m.start, &err), &err);
        free(m.bytes);
        m.bytes = malloc(m.start);
        assert_non_null(m.bytes);
        assert_ok(pack_writer_read(w, 0, m.bytes, m.start, &err), &err);
        pack_writer_abort(w);
    }
    assert_int_equal(m.start, 2 + n + 32 + 2 + 32);
    assert_int_equal(get_le16(m.bytes), n + 32);
    assert_int_equal(get_le16(m.bytes + 2 + n + 32), n + 32);
    assert_memory_equal(m.bytes + 2, m.format->blob, n);
    assert_non_null(HMAC(EVP_sha256(), "kopia-repository", 16, m.bytes + 2, n, mac, &mac_len));
    assert_memory_equal(m.bytes + 2 + n, mac, 32);
    made_free(&m);
}

static int count_entry(const struct index_entry *n, void *arg)
{
    (void)n;
    ++*(unsigned *)arg;
    return 0;
}

/* Whatever is done to the end of a pack: the entries that were written, or a clear no. */
static void damaged_packs(void **state)
{
    (void)state;
    struct made m = {0};
    make_pack(&m, "damaged", &(struct format_create){.hash = "HMAC-SHA256"});
    struct postamble p;
    assert_int_equal(postamble_parse(&p, m.bytes + m.len - 1000, 1000, m.len), 0);
    const char *name = "p11111111111111111111111111111111-s0123456789abcdef144";
    for (size_t len = p.offset - 100; len < m.len; len++) {
        unsigned n = 0;
        assert_ok(blobs_put(m.blobs, name, m.bytes, len, &err), &err);
        assert_true(pack_read_local_index(m.blobs, m.sealer, name, len, count_entry, &n, &err) < 0);
        assert_int_equal(err.cls, ERR_DAMAGE);
        assert_int_equal(n, 0);
    }
    for (size_t i = p.offset; i < m.len; i++) {
        for (int bit = 0; bit < 8; bit += 3) {
            unsigned n = 0;
            m.bytes[i] ^= (uint8_t)(1 << bit);
            assert_ok(blobs_put(m.blobs, name, m.bytes, m.len, &err), &err);
            assert_true(pack_read_local_index(m.blobs, m.sealer, name, m.len, count_entry, &n, &err) < 0);
            assert_int_equal(err.cls, ERR_DAMAGE);
            assert_int_equal(n, 0);
            m.bytes[i] ^= (uint8_t)(1 << bit);
        }
    }
    /* Under another name it says nothing about itself. */
    unsigned n = 0;
    assert_ok(blobs_put(m.blobs, name, m.bytes, m.len, &err), &err);
    assert_ok(pack_read_local_index(m.blobs, m.sealer, name, m.len, count_entry, &n, &err), &err);
    assert_int_equal(n, 0);
    made_free(&m);
}

/* Authentic, and wrong: entries that reach beyond the contents. */
static void impossible_entries(void **state)
{
    (void)state;
    const char *name = "p22222222222222222222222222222222-s0123456789abcdef144";
    struct index_entry n = {.id = {.len = 16, .hash = {1}}, .packed = 100, .length = 72, .format_version = 3};
    strcpy(n.pack, name);
    for (int bad = 0; bad < 4; bad++) {
        CLEANUP_FREE uint8_t *index = NULL;
        size_t len;
        unsigned seen = 0;
        n.offset = bad == 1 ? 3997 : bad == 3 ? (1u << 30) - 1 : 3996;
        n.packed = bad == 2 ? (1 << 28) - 1 : 100;
        assert_ok(index_build(&n, 1, 2, true, &index, &len, &err), &err);
        int rc = pack_local_entries(index, len, name, 4096, count_entry, &seen, &err);
        assert_int_equal(rc < 0, bad != 0);
        assert_int_equal(seen, bad == 0);
    }
}

/* ---- packs of Kopia's ---- */

struct golden_local {
    char *text; /* pack-local-indexes.tsv */
    unsigned found;
};

static int find_line(const struct index_entry *n, void *arg)
{
    struct golden_local *g = arg;
    char id[CONTENT_ID_TEXT], line[512];
    snprintf(line, sizeof line, "\n%s\t%s\t0\t%s\t%u\t%u\t%u\t0x%x\t%u\t%lld\n", n->pack, content_id_text(&n->id, id),
             n->pack, n->offset, n->packed, n->length, n->compression, n->format_version, (long long)n->time);
    if (!strstr(g->text, line))
        fail_msg("not in the list: %s", line + 1);
    g->found++;
    return 0;
}

struct golden_repo {
    struct repo *repo;
    struct golden_local local;
};

static int read_golden_pack(const struct blob_info *info, void *arg)
{
    struct golden_repo *g = arg;
    assert_ok(pack_read_local_index(repo_blobs(g->repo), repo_sealer(g->repo), info->name, info->length, find_line,
                                    &g->local, &err),
              &err);
    return 0;
}

static void local_indexes_of_kopia(void **state)
{
    (void)state;
    static const struct {
        const char *name, *password;
    } all[] = {{"compress-all", "compress me"}, {"ecc-2", "ecc"}, {"enc-chacha20", "Zwölf Boxkämpfer"}};
    const char *golden = getenv("SNAPFERRY_GOLDEN");
    if (!golden)
        golden = "build/golden";
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char path[1024], cache[512];
        struct blobs *b;
        struct golden_repo g = {0};
        snprintf(path, sizeof path, "%s/%s.expected/pack-local-indexes.tsv", golden, all[i].name);
        CLEANUP_FCLOSE FILE *f = fopen(path, "re");
        if (!f)
            fail_msg("%s is missing: run `make build/golden/.done` or set SNAPFERRY_GOLDEN", path);
        g.local.text = calloc(1, 1 << 20);
        assert_non_null(g.local.text);
        assert_true(fread(g.local.text, 1, (1 << 20) - 1, f) > 0);
        snprintf(path, sizeof path, "%s/%s", golden, all[i].name);
        snprintf(cache, sizeof cache, "%s/cache", scratch_dir);
        struct repo_opts o = {.cache_dir = cache};
        assert_ok(blobs_open_dir(&b, path, BLOBS_OPEN, NULL, 0, &err), &err);
        assert_ok(repo_open(&g.repo, b, all[i].password, &o, &err), &err);
        assert_ok(blobs_list(b, "p", read_golden_pack, &g, &err), &err);
        assert_ok(blobs_list(b, "q", read_golden_pack, &g, &err), &err);
        assert_true(g.local.found >= 10);
        free(g.local.text);
        repo_free(g.repo);
    }
}

/* ---- session ids ---- */

static void session_ids(void **state)
{
    (void)state;
    char id[SESSION_ID_TEXT], other[SESSION_ID_TEXT];
    /* month 324 since 2000, of 30 days each (section 10) */
    int64_t september = INT64_C(1788220800) * 1000000000;
    assert_ok(session_id_new(id, september, &err), &err);
    assert_ok(session_id_new(other, september, &err), &err);
    assert_int_equal(strlen(id), 20);
    assert_string_equal(id + 17, "144");
    assert_string_not_equal(id, other);
    CLEANUP_FCLOSE FILE *f = fopen(fixture_path("vectors/session-id.jsonl"), "re");
    assert_non_null(f);
    unsigned n = 0;
    for (json_t *j; (j = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL)); json_decref(j)) {
        const char *blob = json_string_value(json_object_get(j, "blob"));
        const char *want = json_string_value(json_object_get(j, "session"));
        assert_non_null(blob);
        assert_non_null(want);
        assert_int_equal(session_id_of_blob(blob, id), want[0] != '\0');
        assert_string_equal(id, want);
        n++;
    }
    assert_true(n >= 5);
    assert_false(session_id_of_blob("p00-sabcdefabcdefabcdefabcdefabcdefabcdefabcdef", id));
}

/* ---- pending contents ---- */

/* Against a plain array of what is in it; ids chosen so that many share their place. */
static void pending_table(void **state)
{
    (void)state;
    enum { CAP = 100, IDS = 300 };
    struct pending t;
    uint32_t where[IDS];
    uint64_t rnd = 42;
    unsigned count = 0, full = 0;
    memset(where, 0xff, sizeof where);
    assert_ok(pending_init(&t, CAP, &err), &err);
    for (int step = 0; step < 20000; step++) {
        unsigned k = (unsigned)(splitmix64(&rnd) % IDS);
        struct content_id id = {.prefix = k % 3 ? 0 : 'k', .len = 16, .hash = {(uint8_t)(k % 7)}}, back;
        id.hash[5] = (uint8_t)(k / 7);
        assert_int_equal(pending_find(&t, &id), where[k]);
        if (where[k] != PENDING_NONE) {
            pending_id(&t.entries[where[k]], &back);
            assert_true(content_id_equal(&id, &back));
            pending_remove(&t, where[k]);
            where[k] = PENDING_NONE;
            count--;
        } else {
            where[k] = pending_add(&t, &id);
            assert_int_equal(where[k] == PENDING_NONE, count == CAP);
            count += where[k] != PENDING_NONE;
            full += where[k] == PENDING_NONE;
        }
        assert_int_equal(t.count, count);
    }
    assert_true(full > 100);
    pending_clear(&t);
}

/* Few packs are asked for one by one; where there are more all are listed, once. */
static void packs_are_asked_for_then_listed(void **state)
{
    (void)state;
    enum { N = PACKS_ASKED + 200 };
    char dir[300], name[40];
    struct blobs *b;
    struct pack_set *x;
    snprintf(dir, sizeof dir, "%s/packs", scratch_dir);
    err = (struct err)ERR_INIT;
    assert_int_equal(blobs_open_dir(&b, dir, BLOBS_CREATE, NULL, 0, &err), 0);
    for (unsigned i = 0; i < N; i++) {
        snprintf(name, sizeof name, "%c%032x", i % 2 ? 'p' : 'q', i * 7919);
        assert_int_equal(blobs_put(b, name, "0123456789", 10, &err), 0);
    }
    assert_int_equal(pack_set_new(&x, b, scratch_dir, &err), 0);
    for (unsigned i = 0; i < N; i++) {
        snprintf(name, sizeof name, "%c%032x", i % 2 ? 'p' : 'q', i * 7919);
        const bool gone = i % 10 == 3;
        if (gone) /* each just before it is looked for: what was listed before is believed */
            assert_int_equal(blobs_delete(b, name, &err), 0);
        assert_int_equal(pack_set_has(x, name, 10, &err), gone && i < PACKS_ASKED ? 0 : 1);
        assert_int_equal(pack_set_has(x, name, 11, &err), 0);
        assert_int_equal(pack_set_has(x, name, 10, &err), gone && i < PACKS_ASKED ? 0 : 1);
    }
    /* Written since: asked for. */
    assert_int_equal(pack_set_has(x, "p00000000000000000000000000000abc", 1, &err), 0);
    assert_int_equal(blobs_put(b, "p00000000000000000000000000000def", "01", 2, &err), 0);
    assert_int_equal(pack_set_has(x, "p00000000000000000000000000000def", 2, &err), 1);
    pack_set_free(x);
    blobs_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frame_of_a_pack),        cmocka_unit_test(recovery_block_in_old_repositories),
        cmocka_unit_test(damaged_packs),          cmocka_unit_test(impossible_entries),
        cmocka_unit_test(local_indexes_of_kopia), cmocka_unit_test(session_ids),
        cmocka_unit_test(pending_table),          cmocka_unit_test(packs_are_asked_for_then_listed),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
