/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * init.c - the first and only process of an emulated machine (tests/emulated/run.sh)
 *
 * Runs the programs in /tests by name, one after another, with their output on the serial port, each followed by
 * "== exit NAME STATUS"; then writes "== end" and asks the emulator to stop.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

static char line[8192];

/* The name and the flags of the CPU, as the system has found them. */
static void show_cpu(void)
{
    FILE *f = fopen("/proc/cpuinfo", "r");
    for (; f && fgets(line, sizeof line, f);)
        if (!strncmp(line, "model name", 10) || !strncmp(line, "flags", 5))
            printf("== %s", line);
    if (f)
        fclose(f);
    fflush(stdout);
}

static void run(const char *name)
{
    char path[300];
    snprintf(path, sizeof path, "/tests/%s", name);
    printf("== run %s\n", name);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        char *argv[] = {path, NULL};
        execv(path, argv);
        perror(path);
        _exit(127);
    }
    int status = -1;
    if (pid > 0)
        waitpid(pid, &status, 0);
    printf("== exit %s %d\n", name, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + (status & 0x7f));
    fflush(stdout);
    tcdrain(STDOUT_FILENO);
}

static int is_program(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

/* What is written to this port ends Bochs. */
static void stop(void)
{
    static const char word[] = "Shutdown";
    if (iopl(3) == 0)
        for (const char *p = word; *p; p++)
            outb((unsigned char)*p, 0x8900);
    for (;;)
        pause();
}

int main(void)
{
    mkdir("/proc", 0755);
    mkdir("/dev", 0755);
    mkdir("/tmp", 01777);
    mount("proc", "/proc", "proc", 0, NULL);
    mount("dev", "/dev", "devtmpfs", 0, NULL);
    int fd = open("/dev/ttyS0", O_RDWR);
    if (fd < 0)
        stop();
    for (int to = 0; to < 3; to++)
        dup2(fd, to);
    struct termios t;
    tcgetattr(fd, &t);
    cfmakeraw(&t);
    tcsetattr(fd, TCSANOW, &t);

    setenv("CMOCKA_MESSAGE_OUTPUT", "TAP", 1);
    setenv("SNAPFERRY_FIXTURES", "/fixtures", 1);
    show_cpu();
    struct dirent **names;
    int n = scandir("/tests", &names, is_program, alphasort);
    for (int i = 0; i < n; i++)
        run(names[i]->d_name);
    printf("== end\n");
    fflush(stdout);
    tcdrain(STDOUT_FILENO);
    stop();
}
