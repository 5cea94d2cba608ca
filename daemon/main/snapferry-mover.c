/* SPDX-License-Identifier: GPL-2.0-or-later */
/* snapferry-mover.c - moves the data of one operation, for snapferryd */
#include "daemon/mover/agent/agent.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char usage[] = "usage: snapferry-mover --socket PATH --operation ID\n"
                            "       snapferry-mover --self-test-sandbox [--network | --dialer] [USER]\n"
                            "       snapferry-mover --version | --help\n"
                            "\n"
                            "Started by snapferryd, once for each operation. See snapferry-mover(8).\n";

static int self_test(const char *user, enum lockdown_of what)
{
    struct err e = ERR_INIT;
    int rc = lockdown_self_test(user, what, &e);
    if (rc < 0)
        fprintf(stderr, "snapferry-mover: %s\n", e.msg);
    return rc != 0;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"socket", required_argument, NULL, 's'},
        {"operation", required_argument, NULL, 'o'},
        {"self-test-sandbox", no_argument, NULL, 't'},
        {"network", no_argument, NULL, 'n'},
        {"dialer", no_argument, NULL, 'd'},
        {"version", no_argument, NULL, 'V'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    const char *socket = NULL, *operation = NULL;
    bool test = false, network = false, dialer = false;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 's':
            socket = optarg;
            break;
        case 'o':
            operation = optarg;
            break;
        case 't':
            test = true;
            break;
        case 'n':
            network = true;
            break;
        case 'd':
            dialer = true;
            break;
        case 'V':
            printf("snapferry-mover %s\n", SNAPFERRY_VERSION);
            return 0;
        case 'h':
            fputs(usage, stdout);
            return 0;
        default:
            fputs(usage, stderr);
            return ERR_USAGE;
        }
    }
    if (test && !(network && dialer) && argc - optind <= 1)
        return self_test(argv[optind], network ? LOCKDOWN_NETWORK : dialer ? LOCKDOWN_DIALER : LOCKDOWN_LOCAL);
    if (network || dialer || !socket || !operation || !*operation || optind != argc) {
        fputs(usage, stderr);
        return ERR_USAGE;
    }
    /* Nothing is left to do at exit, and nothing there may hold the end up. */
    _exit(agent_main(socket, operation));
}
