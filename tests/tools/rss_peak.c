/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * rss_peak - runs a command and tells the most memory it held
 *
 *   rss_peak REPORT COMMAND [ARGUMENT...]
 *
 * Looks at /proc/PID/status every 5 ms and at /proc/PID/smaps every 100 ms, and writes one JSON object to the file
 * REPORT: own (most of RssAnon + RssShmem), file (most of RssFile), mapped (most of the resident pages of mapped files
 * that are neither program nor library), all in bytes; samples; seconds; exit (128 + signal if it was killed). Exits as
 * the command did.
 */
#include "base/cleanup.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STEP_NS 5000000
#define MAPS_EVERY 20 /* steps */

struct peak {
    uint64_t own, file, mapped;
    unsigned long samples;
};

static void most(uint64_t *peak, uint64_t n)
{
    if (n > *peak)
        *peak = n;
}

static void sample_status(pid_t pid, struct peak *p)
{
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    CLEANUP_FCLOSE FILE *f = fopen(path, "re");
    unsigned long anon = 0, shmem = 0, file = 0;
    while (f && fgets(line, sizeof line, f)) {
        sscanf(line, "RssAnon: %lu", &anon);
        sscanf(line, "RssShmem: %lu", &shmem);
        sscanf(line, "RssFile: %lu", &file);
    }
    if (anon)
        p->samples++;
    most(&p->own, (uint64_t)(anon + shmem) << 10);
    most(&p->file, (uint64_t)file << 10);
}

/* What is mapped of files that are neither the program nor a library: the cache directory's. */
static void sample_maps(pid_t pid, struct peak *p)
{
    char path[64], line[4400], program[4200];
    snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
    ssize_t n = readlink(path, program, sizeof program - 1);
    program[n > 0 ? n : 0] = '\0';
    snprintf(path, sizeof path, "/proc/%d/smaps", (int)pid);
    CLEANUP_FCLOSE FILE *f = fopen(path, "re");
    bool data = false;
    uint64_t sum = 0;
    while (f && fgets(line, sizeof line, f)) {
        char name[4200] = "";
        unsigned long from, to, rss;
        if (sscanf(line, "%lx-%lx %*s %*s %*s %*s %4199[^\n]", &from, &to, name) >= 2)
            data = name[0] == '/' && strcmp(name, program) != 0 && !strstr(name, ".so") &&
                   strncmp(name, "/dev/", 5) != 0 && strncmp(name, "/memfd:", 7) != 0;
        else if (data && sscanf(line, "Rss: %lu", &rss) == 1)
            sum += (uint64_t)rss << 10;
    }
    most(&p->mapped, sum);
}

static int report(const char *to, const struct peak *p, double seconds, int code)
{
    FILE *f = fopen(to, "we");
    if (!f)
        return -1;
    fprintf(f, "{\"own\":%llu,\"file\":%llu,\"mapped\":%llu,\"samples\":%lu,\"seconds\":%.3f,\"exit\":%d}\n",
            (unsigned long long)p->own, (unsigned long long)p->file, (unsigned long long)p->mapped, p->samples, seconds,
            code);
    return fclose(f);
}

static double monotonic(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fputs("usage: rss_peak REPORT COMMAND [ARGUMENT...]\n", stderr);
        return 2;
    }
    double began = monotonic();
    pid_t pid = fork();
    if (pid < 0) {
        perror("rss_peak: fork");
        return 126;
    }
    if (pid == 0) {
        execvp(argv[2], argv + 2);
        perror(argv[2]);
        _exit(127);
    }
    struct peak p = {0};
    int status = 0;
    pid_t ended = 0;
    for (unsigned step = 0; ended == 0; step++) {
        sample_status(pid, &p);
        if (step % MAPS_EVERY == 0)
            sample_maps(pid, &p);
        nanosleep(&(struct timespec){0, STEP_NS}, NULL);
        ended = waitpid(pid, &status, WNOHANG);
    }
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (ended < 0 || report(argv[1], &p, monotonic() - began, code) < 0) {
        perror(argv[1]);
        return 126;
    }
    return code;
}
