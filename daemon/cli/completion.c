/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * completion.c - the completion script for bash, from the tables of options and verbs
 *
 * Words after a verb or an option: <file>, <dir>, @KIND,... for names of names_print(), anything else literally.
 */
#include "chunker/hash.h"
#include "daemon/cli/bench.h"
#include "daemon/cli/options-table.h"
#include "daemon/records/records.h"
#include "repo/compress.h"
#include "repo/format.h"

#include <string.h>

/* ---- values of options ---- */

/* Not for free values (numbers, sizes, texts). */
static const struct {
    enum option_id id;
    const char *words;
    const char *(*name)(unsigned i); /* and names from the data path */
} values[] = {
    {OPT_REPO, "@repositories <dir>", NULL},
    {OPT_PASSWORD_FILE, "<file>", NULL},
    {OPT_CONFIG, "<file>", NULL},
    {OPT_CACHE_DIR, "<dir>", NULL},
    {OPT_PROGRESS, "auto yes no", NULL},
    {OPT_FORMAT_VERSION, "1 2 3", NULL},
    {OPT_BLOCK_HASH, "", hash_name},
    {OPT_ENCRYPTION, "", encryption_name},
    {OPT_SPLITTER, "", splitter_name},
    {OPT_KEY_DERIVATION, "", key_algo_name},
    {OPT_NEW_PASSWORD_FILE, "<file>", NULL},
    {OPT_COMPRESSION, "none", compress_writable},
    {OPT_BAD_READS, "fail map", NULL},
    {OPT_CHANGED_RANGES, "<file>", NULL},
    {OPT_PARENT, "@snapshots", NULL},
    {OPT_RUNTIME_DIR, "<dir>", NULL},
    {OPT_STATE_DIR, "<dir>", NULL},
    {OPT_CONFIG_DIR, "<dir>", NULL},
    {OPT_JOB, "@jobs", NULL},
    {OPT_MOVE_DATA, "yes no", NULL},
    {OPT_FROM, "auto native repository", NULL},
    {OPT_VOLUME, "@volumes", NULL},
    {OPT_BACKUP, "@backups", NULL},
    {OPT_STATE, BACKUP_STATES_SHOWN " Exposing Starting Running Retrying Cancelling CleaningUp", NULL},
    {OPT_CLASS, "@classes", NULL},
    {OPT_KIND, "driver mover", NULL},
    {OPT_SAFETY, "full none", NULL},
    {OPT_PACKS, "all missing", NULL},
    {OPT_DEVICE, "<file>", NULL},
    {OPT_DIR, "<dir>", NULL},
};

/* ---- arguments of verbs: the first, and the others ---- */

static const struct {
    enum verb verb;
    const char *first, *more;
} arguments[] = {
    {VERB_ASK_BACKUP, "@volumes", "@volumes"},
    {VERB_ASK_RESTORE, "@backups", "<file>"},
    {VERB_CANCEL, "@running", "@running"},
    {VERB_WAIT, "@running", ""},
    {VERB_DESCRIBE, "@backups,operations,natives,volumes", ""},
    {VERB_LOGS, "@operations", ""},
    {VERB_EXPLAIN, "@volumes", ""},
    {VERB_DELETE, "@backups", ""},
    {VERB_RETRY, "@backups", ""},
    {VERB_NATIVE_RELEASE, "@orphans", ""},
    {VERB_HOLD, "@natives,backups", ""},
    {VERB_UNHOLD, "@natives,backups", ""},
    {VERB_ASK_VERIFY, "@repositories", ""},
    {VERB_ASK_MAINTENANCE, "@repositories", ""},
    {VERB_ASK_COPY, "@copies", ""},
    {VERB_SCAN, "@repositories", ""},
    {VERB_REPO_DETACH, "@repositories", ""},
    {VERB_DEBUG_BUNDLE, "<file>", ""},
    {VERB_IMPORT_VELERO, "<file>", ""},
    {VERB_PLUGIN_CHECK, "<file>", ""},
    {VERB_REPO_EXPORT_KEY, "<file>", ""},
    {VERB_REPO_OPEN_KEY, "<file>", ""},
    {VERB_BACKUP, "<file>", ""},
    {VERB_SNAPSHOT_SHOW, "@snapshots", ""},
    {VERB_SNAPSHOT_PIN, "@snapshots", ""},
    {VERB_SNAPSHOT_UNPIN, "@snapshots", ""},
    {VERB_SNAPSHOT_DELETE, "@snapshots", "@snapshots"},
    {VERB_LS, "@snapshots", ""},
    {VERB_CAT, "@snapshots", ""},
    {VERB_RESTORE, "@snapshots", "<file>"},
    {VERB_VERIFY, "@snapshots", "@snapshots"},
};

/* ---- lists of words ---- */

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

/* Verbs with -r, or without. */
static bool of_form(const struct verb_info *v, bool repo)
{
    return repo == (v->form == FORM_REPO);
}

/* First words (of == NULL), or the second words of one. */
static void verbs_of(FILE *f, bool repo, const char *of)
{
    bool first = true;
    for (size_t i = 0; i < verb_table_len; i++) {
        const char *w = of ? verb_table[i].words[1] : verb_table[i].words[0];
        if (!w || !of_form(&verb_table[i], repo) || (of && strcmp(of, verb_table[i].words[0]) != 0))
            continue;
        bool again = false;
        for (size_t j = 0; j < i; j++) {
            const char *u = of ? verb_table[j].words[1] : verb_table[j].words[0];
            again |=
                u && of_form(&verb_table[j], repo) && !strcmp(u, w) && (!of || !strcmp(of, verb_table[j].words[0]));
        }
        if (again)
            continue;
        fprintf(f, "%s%s", first ? "" : " ", w);
        first = false;
    }
}

/* First words of all verbs. */
static void all_first_words(FILE *f)
{
    for (size_t i = 0; i < verb_table_len; i++) {
        bool again = false;
        for (size_t j = 0; j < i; j++)
            again |= !strcmp(verb_table[j].words[0], verb_table[i].words[0]);
        if (!again)
            fprintf(f, "%s%s", i ? " " : "", verb_table[i].words[0]);
    }
}

/* "--a | --b": options with a value: all, or those that set places. */
static void options_with_value(FILE *f, bool places)
{
    static const enum option_id place[] = {OPT_REPO,        OPT_PASSWORD_FILE, OPT_CONFIG,    OPT_CACHE_DIR,
                                           OPT_RUNTIME_DIR, OPT_CONFIG_DIR,    OPT_STATE_DIR, 0};
    fputs("-r", f);
    for (size_t i = 0; i < option_table_len; i++) {
        const struct option_info *t = &option_table[i];
        bool again = false, wanted = !places;
        for (size_t j = 0; j < i; j++)
            again |= option_table[j].id == t->id;
        for (size_t j = 0; place[j]; j++)
            wanted |= place[j] == t->id;
        if (t->arg && t->arg[0] != '[' && !again && wanted)
            fprintf(f, " | --%s", t->name);
    }
}

static void option_values(FILE *f)
{
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        const struct option_info *t = option_table;
        while (t->id != values[i].id)
            t++;
        fprintf(f, "        %s--%s) want=\"%s", t->id == OPT_REPO ? "-r | " : "", t->name, values[i].words);
        for (unsigned k = 0; values[i].name && values[i].name(k); k++)
            fprintf(f, "%s%s", k || *values[i].words ? " " : "", values[i].name(k));
        fputs("\" ;;\n", f);
    }
}

/* ---- one case for each verb, with -r or without ---- */

static void case_of(FILE *f, const struct verb_info *v)
{
    fprintf(f, "    \"%s %s%s%s\")\n        options=\"", v->form == FORM_REPO ? "-r" : "", v->words[0],
            v->words[1] ? " " : "", v->words[1] ? v->words[1] : "");
    words_of(f, UINT64_C(1) << v->verb);
    fputs("\"\n", f);
    if (v->verb == VERB_BENCH) {
        fputs("        want=\"", f);
        for (unsigned g = 0; g < BENCH_GROUPS; g++)
            fprintf(f, "%s ", bench_group_name(g));
        fputs("device pipeline\" more=$want\n", f);
    }
    if (v->verb == VERB_HELP) {
        fputs("        want=\"", f);
        all_first_words(f);
        fputs("\"\n", f);
    }
    for (size_t i = 0; i < sizeof arguments / sizeof *arguments; i++)
        if (arguments[i].verb == v->verb)
            fprintf(f, "        want=\"%s\" more=\"%s\"\n", arguments[i].first, arguments[i].more);
    fputs("        ;;\n", f);
}

/* No verb, or the first of two words. */
static void case_of_words(FILE *f, bool repo, const char *first)
{
    uint64_t mask = 0;
    for (size_t i = 0; i < verb_table_len; i++)
        if (of_form(&verb_table[i], repo) && (!first || !strcmp(first, verb_table[i].words[0])))
            mask |= UINT64_C(1) << verb_table[i].verb;
    if (!mask)
        return;
    fprintf(f, "    \"%s %s\")\n        options=\"%s", repo ? "-r" : "", first ? first : "",
            first || repo ? "" : "-r --repo ");
    words_of(f, mask);
    fputs("\"\n        want=\"", f);
    verbs_of(f, repo, first);
    fputs("\"\n        ;;\n", f);
}

/* First words of verbs with two words; separated by " | ", or a case for each. */
static void two_words(FILE *f, bool cases)
{
    bool first = true;
    for (size_t i = 0; i < verb_table_len; i++) {
        const char *w = verb_table[i].words[0];
        bool again = false;
        for (size_t j = 0; j < i; j++)
            again |= !strcmp(verb_table[j].words[0], w);
        if (!verb_table[i].words[1] || again)
            continue;
        if (!cases)
            fprintf(f, "%s%s", first ? "" : " | ", w);
        for (int repo = 0; cases && repo < 2; repo++)
            case_of_words(f, repo, w);
        first = false;
    }
}

void options_completion(FILE *f)
{
    fputs("# SPDX-License-Identifier: GPL-2.0-or-later\n"
          "# Completion of snapferry for bash, printed by `snapferry --bash-completion`.\n"
          "_snapferry()\n{\n"
          "    local IFS=$' \\t\\n' words=() given=() list=() form= verb= opt= want= more= options=\n"
          "    local args=0 cur base val prefix= files= i n w\n"
          "    COMPREPLY=()\n"
          "    # Readline takes words apart at = and : that are whole for the command.\n"
          "    for ((i = 0; i <= COMP_CWORD; i++)); do\n"
          "        w=${COMP_WORDS[i]} n=${#words[@]}\n"
          "        if [[ $n -gt 1 && ($w == [=:]* || (-n $w && ${words[n - 1]} == *[=:])) ]]; then\n"
          "            words[n - 1]+=$w\n"
          "        else\n"
          "            words+=(\"$w\")\n"
          "        fi\n"
          "    done\n"
          "    n=$((${#words[@]} - 1)) cur=${words[n]} w=${COMP_WORDS[COMP_CWORD]}\n"
          "    [[ $w == [=:]* ]] && w=\n"
          "    base=${cur%\"$w\"} val=$cur\n"
          "    case $cur in --*=*) opt=${cur%%=*} prefix=${cur%%=*}= val=${cur#*=} ;; esac\n"
          "    for ((i = 1; i < n; i++)); do\n"
          "        w=${words[i]}\n"
          "        case $w in -r* | --repo | --repo=*) form=-r ;; esac\n"
          "        case $w in\n        ",
          f);
    options_with_value(f, true);
    fputs(")\n            i=$((i + 1))\n"
          "            if [ \"$i\" -eq \"$n\" ]; then opt=$w; else given+=(\"$w\" \"${words[i]/#\\~\\//$HOME/}\"); fi\n"
          "            ;;\n        ",
          f);
    options_with_value(f, false);
    fputs(")\n            i=$((i + 1))\n"
          "            [ \"$i\" -eq \"$n\" ] && opt=$w\n"
          "            ;;\n"
          "        -r* | --repo=* | --password-file=* | --config=* | --*-dir=*) given+=(\"$w\") ;;\n"
          "        -*) ;;\n"
          "        *)\n"
          "            case $verb in\n"
          "            \"\") verb=$w ;;\n            ",
          f);
    two_words(f, false);
    fputs(") verb=\"$verb $w\" ;;\n"
          "            *) args=$((args + 1)) ;;\n"
          "            esac\n"
          "            ;;\n"
          "        esac\n    done\n"
          "    case \"$form $verb\" in\n",
          f);
    case_of_words(f, false, NULL);
    case_of_words(f, true, NULL);
    two_words(f, true);
    for (size_t i = 0; i < verb_table_len; i++)
        case_of(f, &verb_table[i]);
    fputs("    esac\n"
          "    [ \"$args\" -gt 0 ] && want=$more\n"
          "    if [ -n \"$opt\" ]; then\n"
          "        want=\n"
          "        case $opt in\n",
          f);
    option_values(f);
    fputs("        esac\n"
          "    elif [ \"${cur:0:1}\" = - ]; then\n"
          "        want=$options\n"
          "    fi\n"
          "    case $val in \\\"* | \\'*) val=${val:1} files=quoted ;; *) val=${val//\\\\/} ;; esac\n"
          "    for w in $want; do\n"
          "        case $w in\n"
          "        \"<file>\") mapfile -t -O \"${#list[@]}\" list < <(compgen -f -- \"$val\") ;;\n"
          "        \"<dir>\") mapfile -t -O \"${#list[@]}\" list < <(compgen -d -- \"$val\") ;;\n"
          "        @*)\n"
          "            mapfile -t -O \"${#list[@]}\" list < <(\n"
          "                \"${words[0]/#\\~\\//$HOME/}\" \"${given[@]}\" --complete \"${w#@}\" 2>/dev/null\n"
          "            )\n"
          "            ;;\n"
          "        *) list+=(\"$w\") ;;\n"
          "        esac\n"
          "        case $w in \"<\"*) compopt -o filenames 2>/dev/null && files=readline ;; esac\n"
          "    done\n"
          "    # What the shell would take apart is quoted; readline does it by itself for files.\n"
          "    for w in \"${list[@]}\"; do\n"
          "        [[ $w == \"$val\"* ]] || continue\n"
          "        w=$prefix$w\n"
          "        w=${w#\"$base\"}\n"
          "        [[ -z $files && $w == *[[:space:]\\'\\\"\\\\\\$\\`\\&\\;\\(\\)\\<\\>\\|\\*\\?\\[\\#\\!]* ]] &&\n"
          "            printf -v w %q \"$w\"\n"
          "        COMPREPLY+=(\"$w\")\n"
          "    done\n}\n"
          "complete -F _snapferry snapferry\n",
          f);
}
