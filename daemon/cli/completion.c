/* SPDX-License-Identifier: GPL-2.0-or-later */
/* completion.c - a completion script for bash, made from the table of options */
#include "daemon/cli/options-table.h"

#include <string.h>

static void words_of(FILE *f, uint64_t mask)
{
    bool first = true;
    for (size_t i = 0; i < option_table_len; i++) {
        const struct option_info *t = &option_table[i];
        bool again = false;
        for (size_t j = 0; j < i; j++)
            again |= option_table[j].id == t->id && option_table[j].verbs & mask;
        if (!(t->verbs & mask) || again)
            continue;
        fprintf(f, "%s--%s", first ? "" : " ", t->name);
        first = false;
    }
}

/* First words (of == NULL), or the second words behind one. */
static void verbs_of(FILE *f, const char *of)
{
    bool first = true;
    for (size_t i = 0; i < verb_table_len; i++) {
        const char *w = of ? verb_table[i].words[1] : verb_table[i].words[0];
        if (!w || (of && strcmp(of, verb_table[i].words[0]) != 0))
            continue;
        bool again = false;
        for (size_t j = 0; j < i; j++) {
            const char *u = of ? verb_table[j].words[1] : verb_table[j].words[0];
            again |= u && !strcmp(u, w) && (!of || !strcmp(of, verb_table[j].words[0]));
        }
        if (again)
            continue;
        fprintf(f, "%s%s", first ? "" : " ", w);
        first = false;
    }
}

/* One line for each first word: its options, those of all its forms together. */
static void case_of(FILE *f, size_t at)
{
    const char *w = verb_table[at].words[0];
    for (size_t j = 0; j < at; j++)
        if (!strcmp(verb_table[j].words[0], w))
            return;
    uint64_t mask = 0;
    for (size_t j = 0; j < verb_table_len; j++)
        if (!strcmp(verb_table[j].words[0], w))
            mask |= UINT64_C(1) << verb_table[j].verb;
    fprintf(f, "    %s)\n        options=\"", w);
    words_of(f, mask);
    fputs("\"\n", f);
    if (verb_table[at].words[1]) {
        fputs("        second=\"", f);
        verbs_of(f, w);
        fputs("\"\n", f);
    }
    fputs("        ;;\n", f);
}

/* "--a | --b": options whose value is a file name, or which take some other value. */
static void valued(FILE *f, bool files)
{
    static const char *const kinds[] = {"FILE", "DIR", "REPO"};
    bool first = true;
    for (size_t i = 0; i < option_table_len; i++) {
        const struct option_info *t = &option_table[i];
        if (!t->arg || t->arg[0] == '[')
            continue;
        bool is_file = false, again = false;
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
            is_file |= !strcmp(t->arg, kinds[k]);
        for (size_t j = 0; j < i; j++)
            again |= option_table[j].id == t->id;
        if (is_file != files || again)
            continue;
        fprintf(f, "%s--%s", first ? "" : " | ", t->name);
        first = false;
    }
}

void options_completion(FILE *f)
{
    fputs(
        "# SPDX-License-Identifier: GPL-2.0-or-later\n"
        "# Completion of snapferry for bash, printed by `snapferry --bash-completion`.\n"
        "_snapferry()\n{\n"
        "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} verb= last= second= options= i w\n"
        "    COMPREPLY=()\n"
        "    case $prev in\n    -r | ",
        f);
    valued(f, true);
    fputs(")\n        mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n        return\n        ;;\n    ", f);
    valued(f, false);
    fputs(")\n        return\n        ;;\n    esac\n"
          "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
          "        w=${COMP_WORDS[i]}\n"
          "        case $w in\n        -r | ",
          f);
    valued(f, true);
    fputs(" | ", f);
    valued(f, false);
    fputs(")\n            i=$((i + 1))\n            ;;\n        -*) ;;\n"
          "        *)\n            if [ -z \"$verb\" ]; then verb=$w; elif [ -z \"$last\" ]; then last=$w; fi\n"
          "            ;;\n        esac\n    done\n"
          "    case $verb in\n    \"\")\n        options=\"-r ",
          f);
    words_of(f, ~UINT64_C(0));
    fputs("\"\n        second=\"", f);
    verbs_of(f, NULL);
    fputs("\"\n        ;;\n", f);
    for (size_t i = 0; i < verb_table_len; i++)
        case_of(f, i);
    fputs("    esac\n"
          "    if [ \"${cur:0:1}\" = - ]; then\n"
          "        mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$cur\")\n"
          "    elif [ -n \"$second\" ] && [ -z \"$last\" ]; then\n"
          "        mapfile -t COMPREPLY < <(compgen -W \"$second\" -- \"$cur\")\n"
          "    else\n"
          "        mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
          "    fi\n}\n"
          "complete -o filenames -F _snapferry snapferry\n",
          f);
}
