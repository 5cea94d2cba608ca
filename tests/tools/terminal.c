/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * terminal - runs a command on a terminal and tells what a person sees there
 *
 * terminal [--size COLUMNSxROWS] [--resize COLUMNSxROWS@SECONDS]... [--every SECONDS] [--type TEXT] COMMAND...
 *
 * Standard output and error of the command are a pseudo terminal. What is on it at the end (with what has scrolled
 * away) is printed, colours as {red}text{/}; with --every also after each so many seconds, behind a line "== SECONDS".
 * --type: TEXT and Return are typed once the cursor is behind a question ("] "); an empty TEXT is Return alone, ^C and
 * ^D are the keys.
 * A change of size waits until nothing was printed for 60 ms: what a program draws for one size and the terminal shows
 * in another is folded as nobody can foresee, and a test of it would be one of who came first.
 * Lines that are longer than the terminal are folded, and folded anew when its size changes, as terminals do; a fold is
 * shown as "\" at the end of the line. Anything that is neither text nor one of the few sequences known here ends it
 * with code 99: such a thing must never come from a name. The exit status is the command's; 98 after 60 s.
 */
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

#define LINES_MAX 4000
#define CELLS_MAX 4000
#define LIMIT_S 60
#define QUIET_S 0.06

struct cell {
    char text[32]; /* a character and what is drawn over it; "" behind a wide one */
    uint8_t attr;
};
struct line {
    struct cell *cells;
    unsigned n;
};

static struct line lines[LINES_MAX];
static unsigned n_lines = 1, at_line, at_col, columns = 80, rows = 24;
static uint8_t attr;

static void die(const char *why, const char *what)
{
    fprintf(stderr, "terminal: %s %s\n", why, what);
    exit(99);
}

static unsigned folds(const struct line *l)
{
    return l->n > columns ? (l->n + columns - 1) / columns : 1;
}

static struct cell *cell_at(unsigned line, unsigned col)
{
    struct line *l = &lines[line];
    if (col >= CELLS_MAX)
        die("a line has no end", "");
    if (!l->cells && !(l->cells = calloc(CELLS_MAX, sizeof *l->cells)))
        die("no memory", "");
    for (; l->n <= col; l->n++)
        l->cells[l->n] = (struct cell){" ", 0};
    return &l->cells[col];
}

static void put(const char *utf8, size_t n, int width)
{
    if (width == 0) {
        if (at_col) {
            struct cell *c = cell_at(at_line, at_col - 1);
            if (!*c->text && at_col > 1)
                c = cell_at(at_line, at_col - 2);
            if (strlen(c->text) + n < sizeof c->text)
                strncat(c->text, utf8, n);
        }
        return;
    }
    struct cell *c = cell_at(at_line, at_col);
    snprintf(c->text, sizeof c->text, "%.*s", (int)n, utf8);
    c->attr = attr;
    for (int i = 1; i < width; i++)
        *cell_at(at_line, at_col + (unsigned)i) = (struct cell){"", attr};
    at_col += (unsigned)width;
}

static void down(void)
{
    if (at_col / columns + 1 < folds(&lines[at_line])) {
        at_col += columns;
        return;
    }
    if (++at_line == LINES_MAX)
        die("too many lines", "");
    at_col %= columns;
    if (at_line == n_lines)
        n_lines++;
}

static void up(void)
{
    if (at_col >= columns) {
        at_col -= columns;
    } else if (at_line) {
        at_line--;
        at_col += (folds(&lines[at_line]) - 1) * columns;
    }
}

static void erase(unsigned line, unsigned col)
{
    if (lines[line].n > col)
        lines[line].n = col;
}

static void sequence(char final, const unsigned *arg, unsigned n)
{
    unsigned first = n ? arg[0] : 0;
    char what[64];
    if (final == 'K' && !first) {
        unsigned end = (at_col / columns + 1) * columns;
        for (unsigned c = at_col; c < end && c < lines[at_line].n; c++)
            *cell_at(at_line, c) = (struct cell){" ", 0};
        if (lines[at_line].n <= end)
            erase(at_line, at_col);
    } else if (final == 'J' && !first) {
        erase(at_line, at_col);
        for (unsigned i = at_line + 1; i < n_lines; i++)
            lines[i].n = 0;
        n_lines = at_line + 1;
    } else if (final == 'A') {
        for (unsigned i = 0; i < (first ? first : 1); i++)
            up();
    } else if (final == 'm') {
        for (unsigned i = 0; i < (n ? n : 1); i++)
            attr = (uint8_t)(i < n ? arg[i] : 0);
    } else {
        snprintf(what, sizeof what, "ESC[...%c", final);
        die("unknown sequence", what);
    }
}

/* Takes bytes as they come; what is not complete waits. */
static void feed(const char *data, size_t n)
{
    static char held[64];
    static size_t n_held;
    for (size_t i = 0; i < n; i++) {
        if (n_held == sizeof held)
            die("unknown sequence", "that has no end");
        held[n_held++] = data[i];
        unsigned char c = (unsigned char)held[0];
        if (c == 033) {
            if (n_held >= 2 && held[1] != '[')
                die("unknown sequence", "ESC without [");
            if (n_held < 3 || (data[i] >= '0' && data[i] <= '9') || data[i] == ';')
                continue;
            unsigned arg[8] = {0}, count = 0;
            for (size_t k = 2; k + 1 < n_held; k++) {
                count = count ? count : 1;
                if (held[k] == ';')
                    count += count < 8;
                else
                    arg[count - 1] = arg[count - 1] * 10 + (unsigned)(held[k] - '0');
            }
            sequence(data[i], arg, count);
        } else if (c == '\r') {
            at_col -= at_col % columns;
        } else if (c == '\n') {
            down();
        } else if (c < 0x20 || c == 0x7f) {
            char what[16];
            snprintf(what, sizeof what, "\\x%02x", c);
            die("control character", what);
        } else {
            wchar_t w;
            mbstate_t st = {0};
            size_t used = mbrtowc(&w, held, n_held, &st);
            if (used == (size_t)-2)
                continue;
            if (used == (size_t)-1)
                die("no UTF-8", "");
            int width = wcwidth(w);
            if (width < 0)
                die("control character", "of Unicode");
            put(held, n_held, width);
        }
        n_held = 0;
    }
}

static const char *attr_name(uint8_t a)
{
    return a == 31 ? "{red}" : a == 32 ? "{green}" : a == 33 ? "{yellow}" : a == 2 ? "{dim}" : a == 0 ? "{/}" : "{?}";
}

static void print_screen(void)
{
    unsigned last = n_lines;
    while (last && !lines[last - 1].n)
        last--;
    for (unsigned i = 0; i < last; i++) {
        struct line *l = &lines[i];
        unsigned n = l->n;
        uint8_t a = 0;
        for (unsigned c = 0; c < n; c++) {
            if (l->cells[c].attr != a)
                fputs(attr_name(a = l->cells[c].attr), stdout);
            fputs(l->cells[c].text, stdout);
            if ((c + 1) % columns == 0 && c + 1 < n)
                fputs("\\\n", stdout);
        }
        printf("%s\n", a ? "{/}" : "");
    }
    fflush(stdout);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct resize {
    unsigned columns, rows;
    double at;
    bool done;
};

static void set_size(int fd, unsigned c, unsigned r)
{
    struct winsize ws = {.ws_col = (unsigned short)c, .ws_row = (unsigned short)r};
    columns = c;
    rows = r;
    ioctl(fd, TIOCSWINSZ, &ws);
}

/* The line of the cursor ends with "] ". */
static bool at_question(void)
{
    const struct line *l = &lines[at_line];
    return at_col >= 2 && l->n >= at_col && !strcmp(l->cells[at_col - 2].text, "]") &&
           !strcmp(l->cells[at_col - 1].text, " ");
}

static void type(int fd, const char *text)
{
    char keys[256];
    size_t n = (size_t)snprintf(keys, sizeof keys, "%s\n", text);
    if (!strcmp(text, "^C") || !strcmp(text, "^D"))
        n = (size_t)snprintf(keys, sizeof keys, "%c", text[1] - '@');
    if (write(fd, keys, n) != (ssize_t)n)
        die("cannot type:", strerror(errno));
}

static void watch(int fd, struct resize *resizes, unsigned n_resizes, double every, const char *text)
{
    double start = now_s(), next = every, heard = start;
    char data[65536];
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int n = poll(&p, 1, 20);
        if (n > 0) {
            ssize_t r = read(fd, data, sizeof data);
            if (r <= 0)
                return; /* EIO: nobody has it open any more */
            feed(data, (size_t)r);
            heard = now_s();
        }
        if (text && n == 0 && at_question()) {
            type(fd, text);
            text = NULL;
        }
        double t = now_s() - start;
        for (unsigned i = 0; i < n_resizes; i++)
            if (!resizes[i].done && t >= resizes[i].at && n == 0 && start + t - heard >= QUIET_S) {
                resizes[i].done = true;
                heard = start + t;
                set_size(fd, resizes[i].columns, resizes[i].rows);
            }
        if (every > 0 && t >= next) {
            printf("== %.1f\n", next);
            print_screen();
            next += every;
        }
        if (t > LIMIT_S)
            return;
    }
}

int main(int argc, char **argv)
{
    struct resize resizes[8];
    unsigned n_resizes = 0, c = 80, r = 24;
    double every = 0;
    const char *text = NULL;
    int i = 1, fd, status = 0;
    if (!setlocale(LC_CTYPE, "C.UTF-8"))
        die("there is no locale", "C.UTF-8");
    for (; i + 1 < argc && !strncmp(argv[i], "--", 2); i += 2) {
        if (!strcmp(argv[i], "--size") && sscanf(argv[i + 1], "%ux%u", &c, &r) == 2)
            continue;
        if (!strcmp(argv[i], "--every") && (every = strtod(argv[i + 1], NULL)) > 0)
            continue;
        if (!strcmp(argv[i], "--type")) {
            text = argv[i + 1];
            continue;
        }
        struct resize *x = &resizes[n_resizes];
        if (!strcmp(argv[i], "--resize") && n_resizes < 8 &&
            sscanf(argv[i + 1], "%ux%u@%lf", &x->columns, &x->rows, &x->at) == 3) {
            x->done = false;
            n_resizes++;
            continue;
        }
        die("wrong option", argv[i]);
    }
    if (i >= argc)
        die("which command?", "");
    struct winsize ws = {.ws_col = (unsigned short)c, .ws_row = (unsigned short)r};
    pid_t pid = forkpty(&fd, NULL, NULL, &ws);
    if (pid < 0)
        die("no terminal:", strerror(errno));
    if (pid == 0) {
        execvp(argv[i], argv + i);
        _exit(127);
    }
    columns = c;
    rows = r;
    watch(fd, resizes, n_resizes, every, text);
    for (unsigned k = 0; k < 100; k++) {
        pid_t w = waitpid(pid, &status, WNOHANG);
        if (w == pid) {
            if (every > 0)
                puts("== end");
            print_screen();
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
        usleep(20000);
    }
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    fprintf(stderr, "terminal: the command does not end\n");
    return 98;
}
