/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/kit.h"

#include "base/bytes.h"
#include "base/cleanup.h"

#include <ctype.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define LINE 30       /* bytes */
#define LINES_MAX 999 /* three digits */
#define GROUP 6       /* characters */
#define CHECK 4       /* likewise, 20 bits */
#define MAGIC "SFK1"
#define SUM 16 /* bytes of the checksum of all */

/* What the payload has: a letter, a length of 32 bits, the bytes. */
enum { PART_FORMAT = 'R', PART_BLOBCFG = 'C', PART_PASSWORD = 'P' };

static const char digits[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"; /* no I, L, O, U */

void kit_clear(struct kit *k)
{
    free(k->format);
    free(k->blobcfg);
    if (k->password)
        OPENSSL_cleanse(k->password, strlen(k->password));
    free(k->password);
    *k = (struct kit){.format = NULL};
}

/* ---- base 32 ---- */

/* Returns the number of characters. */
static size_t encode32(char *out, const uint8_t *in, size_t n)
{
    size_t len = 0;
    unsigned bits = 0, value = 0;
    for (size_t i = 0; i < n || bits > 0;) {
        if (bits < 5 && i < n) {
            value = value << 8 | in[i++];
            bits += 8;
        } else if (bits < 5) {
            value <<= 5 - bits;
            bits = 5;
        }
        out[len++] = digits[value >> (bits - 5) & 31];
        bits -= 5;
    }
    return len;
}

static int digit_of(char c)
{
    c = (char)toupper((unsigned char)c);
    if (c == 'O')
        c = '0';
    else if (c == 'I' || c == 'L')
        c = '1';
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* Returns the number of bytes, -1: there is another character, or bits behind the last byte. */
static int decode32(uint8_t *out, const char *in, size_t n)
{
    unsigned bits = 0, value = 0;
    int len = 0;
    for (size_t i = 0; i < n; i++) {
        const int d = digit_of(in[i]);
        if (d < 0)
            return -1;
        value = (value << 5 | (unsigned)d) & 0xffff;
        bits += 5;
        if (bits >= 8) {
            bits -= 8;
            out[len++] = (uint8_t)(value >> bits);
        }
    }
    return bits >= 5 || value & ((1u << bits) - 1) ? -1 : len;
}

static void sum_of(const void *a, size_t a_len, const void *b, size_t b_len, uint8_t out[32])
{
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    memset(out, 0, 32);
    if (c && EVP_DigestInit_ex(c, EVP_sha256(), NULL) == 1 && EVP_DigestUpdate(c, a, a_len) == 1 &&
        EVP_DigestUpdate(c, b, b_len) == 1)
        EVP_DigestFinal_ex(c, out, NULL);
    EVP_MD_CTX_free(c);
}

static void check_of(unsigned number, const uint8_t *bytes, size_t n, char out[CHECK + 1])
{
    uint8_t sum[32], head[sizeof MAGIC + 2] = MAGIC;
    put_be16(head + sizeof MAGIC, (uint16_t)number);
    sum_of(head, sizeof head, bytes, n, sum);
    sum[2] &= 0xf0;
    char text[8];
    encode32(text, sum, 3);
    memcpy(out, text, CHECK);
    out[CHECK] = '\0';
}

/* ---- writing ---- */

static uint8_t *put_part(uint8_t *at, uint8_t letter, const void *data, size_t n)
{
    *at = letter;
    put_be32(at + 1, (uint32_t)n);
    memcpy(at + 5, data, n);
    return at + 5 + n;
}

static void write_line(FILE *f, unsigned number, const uint8_t *bytes, size_t n)
{
    char text[2 * LINE], check[CHECK + 1];
    const size_t len = encode32(text, bytes, n);
    check_of(number, bytes, n, check);
    fprintf(f, "%03u ", number);
    for (size_t i = 0; i < len; i++)
        fprintf(f, "%s%c", i % GROUP ? "" : " ", text[i]);
    fprintf(f, "  / %s\n", check);
    OPENSSL_cleanse(text, sizeof text);
}

int kit_write(FILE *f, const struct kit *k, struct err *e)
{
    const size_t password = k->password ? strlen(k->password) + 5 : 0,
                 max = 4 + 4 + 5 + k->format_len + 5 + k->blobcfg_len + password + SUM;
    if (max > (size_t)LINE * LINES_MAX)
        return err_set(e, ERR_FORMAT, E2BIG, "the format of the repository is too long for a kit");
    uint8_t *all = calloc(1, max), *at, sum[32];
    if (!all)
        return err_nomem(e);
    at = put_part(all + 8, PART_FORMAT, k->format, k->format_len);
    if (k->blobcfg)
        at = put_part(at, PART_BLOBCFG, k->blobcfg, k->blobcfg_len);
    if (k->password)
        at = put_part(at, PART_PASSWORD, k->password, password - 5);
    const size_t len = (size_t)(at - all) + SUM;
    memcpy(all, MAGIC, 4);
    put_be32(all + 4, (uint32_t)len);
    sum_of(all, len - SUM, "", 0, sum);
    memcpy(at, sum, SUM);
    for (size_t i = 0; i < len; i += LINE)
        write_line(f, (unsigned)(i / LINE + 1), all + i, len - i < LINE ? len - i : LINE);
    OPENSSL_cleanse(all, max);
    free(all);
    return 0;
}

/* ---- reading ---- */

struct reading {
    uint8_t all[LINE * LINES_MAX];
    uint8_t len[LINES_MAX + 1]; /* of each line; 0: not there */
    unsigned last, bad;
    kit_bad_fn *report;
    void *arg;
};

static void report(struct reading *r, unsigned number, const char *why)
{
    r->bad++;
    if (r->report)
        r->report(number, why, r->arg);
}

/* A line with a slash that begins with a number, in which 0 and 1 may be letters as well. */
static void read_line(struct reading *r, const char *line, size_t len)
{
    char text[2 * LINE], check[CHECK + 1], want[CHECK + 1];
    uint8_t bytes[2 * LINE];
    size_t n = 0, c = 0, i = 0;
    unsigned number = 0;
    const char *slash = memchr(line, '/', len);
    while (i < len && isspace((unsigned char)line[i]))
        i++;
    const size_t from = i;
    for (int d; i < len && number <= LINES_MAX && (d = digit_of(line[i])) >= 0 && d < 10; i++)
        number = number * 10 + (unsigned)d;
    if (!slash || i == from || i == len || !isspace((unsigned char)line[i]))
        return; /* no line of a kit */
    if (!number || number > LINES_MAX) {
        report(r, 0, "its number is none");
        return;
    }
    bool fits = true;
    for (; i < len; i++) {
        const char x = line[i];
        if (isspace((unsigned char)x) || line + i == slash)
            continue;
        if (line + i < slash ? n < sizeof text : c < CHECK)
            *(line + i < slash ? &text[n++] : &check[c++]) = x;
        else
            fits = false;
    }
    const int got = fits && n ? decode32(bytes, text, n) : -1;
    if (got <= 0 || got > LINE || c != CHECK) {
        report(r, number, "a character is missing, or too many, or is none of the kit");
        return;
    }
    check_of(number, bytes, (size_t)got, want);
    for (size_t k = 0; k < CHECK; k++)
        if (digit_of(check[k]) != digit_of(want[k])) {
            report(r, number, "its checksum does not match: it, or its number, was typed wrong");
            return;
        }
    memcpy(r->all + (size_t)(number - 1) * LINE, bytes, (size_t)got);
    r->len[number] = (uint8_t)got;
    if (number > r->last)
        r->last = number;
}

static int take_parts(struct kit *k, const uint8_t *all, size_t len, struct err *e)
{
    for (size_t at = 8; at + 5 <= len;) {
        const size_t n = get_be32(all + at + 1);
        const uint8_t *data = all + at + 5;
        if (n > len - at - 5)
            break;
        uint8_t *copy = malloc(n + 1);
        if (!copy)
            return err_nomem(e);
        memcpy(copy, data, n);
        copy[n] = '\0';
        if (all[at] == PART_FORMAT && !k->format) {
            k->format = copy;
            k->format_len = n;
        } else if (all[at] == PART_BLOBCFG && !k->blobcfg) {
            k->blobcfg = copy;
            k->blobcfg_len = n;
        } else if (all[at] == PART_PASSWORD && !k->password) {
            k->password = (char *)copy;
        } else {
            free(copy); /* of a newer version */
        }
        at += 5 + n;
    }
    return k->format ? 0 : err_set(e, ERR_DAMAGE, EBADMSG, "the kit has no format of a repository");
}

static int take_all(struct reading *r, struct kit *k, struct err *e)
{
    uint8_t sum[32];
    for (unsigned i = 1; i < r->last; i++)
        if (r->len[i] != LINE)
            report(r, i, r->len[i] ? "it is too short" : "it is missing");
    if (r->bad)
        return err_set(e, ERR_DAMAGE, EBADMSG, "%u line%s of the kit %s wrong or missing", r->bad,
                       r->bad == 1 ? "" : "s", r->bad == 1 ? "is" : "are");
    if (!r->last)
        return err_set(e, ERR_USAGE, EINVAL, "there are no lines of a recovery kit");
    const size_t have = (size_t)(r->last - 1) * LINE + r->len[r->last];
    const size_t len = have >= 8 + SUM && !memcmp(r->all, MAGIC, 4) ? get_be32(r->all + 4) : 0;
    if (!len || len != have)
        return err_set(e, ERR_DAMAGE, EBADMSG,
                       len > have ? "lines are missing at the end of the kit"
                                  : "these are no lines of a recovery kit of this version");
    sum_of(r->all, len - SUM, "", 0, sum);
    if (memcmp(sum, r->all + len - SUM, SUM) != 0)
        return err_set(e, ERR_DAMAGE, EBADMSG, "the lines do not belong together: they are of several kits");
    return take_parts(k, r->all, len - SUM, e);
}

int kit_read(struct kit *ret, const char *text, kit_bad_fn *bad, void *arg, struct err *e)
{
    *ret = (struct kit){.format = NULL};
    struct reading *r = calloc(1, sizeof *r);
    if (!r)
        return err_nomem(e);
    r->report = bad;
    r->arg = arg;
    for (const char *line = text; *line;) {
        const size_t len = strcspn(line, "\n");
        read_line(r, line, len);
        line += len + (line[len] == '\n');
    }
    int rc = take_all(r, ret, e);
    OPENSSL_cleanse(r, sizeof *r);
    free(r);
    if (rc < 0)
        kit_clear(ret);
    return rc;
}
