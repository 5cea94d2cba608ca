#!/usr/bin/env perl
# SPDX-License-Identifier: GPL-2.0-or-later
# Changes the engine's decisions, one place at a time, and counts which changes the tests notice.
#   tests/mutants.pl [N]     N places, chosen at random with SEED (default 200; 0: all)
#   FILES="a.c b.c"          where (default: all files of daemon/decide)
#   TESTS="test_decide ..."  by which tests, in this order
#   AGAIN=build/mutants.txt  only those that lived then
#   JOBS=2 MODEL_SECONDS=8   at once; how long the model test plays with each
# A change is one of: a condition turned round, a comparison moved by one, && for ||, an assignment or a call left out, a
# constant moved. It is killed when one of the tests fails, crashes or does not end. What lives is listed, also in
# $BUILD/mutants.txt; exit code 1 if less than 85 % are killed. Needs a build (make test-programs); the change is compiled
# alone and linked in front of the library, and only with the tests that the ones before have not noticed it with.
#
# What the compiler refuses with the flags of the build is not counted. Not changed, as it decides nothing:
#   - what is only for people to read: texts of logs and errors (the scenarios compare those that are reached)
#   - what only frees memory, and the way out when there is none (sanitizers and reading are for those)
#   - places where the daemon may be killed by a test
use strict;
use warnings;
use File::Temp qw(tempdir);
use IO::Handle;
use POSIX qw(:sys_wait_h);

my $n = @ARGV ? $ARGV[0] : 200;
my $build = $ENV{BUILD} || 'build';
my $jobs = $ENV{JOBS} || 2;
my $seconds = $ENV{MODEL_SECONDS} || 8;
my @files = $ENV{FILES} ? split(' ', $ENV{FILES}) : map { s{.*/}{}r } sort glob('daemon/decide/*.c');
my @tests = split ' ', $ENV{TESTS} || 'test_decide test_natives test_board test_queue test_count_stages test_restore_source test_answers test_model';
srand($ENV{SEED} || 1);

# What can be changed in a line of code.
my @rules = (
    ['turned round', qr/\bif \((?!!)/, sub { 'if (!!!(' }, 'if'],
    ['== for !=', qr/ == /, sub { ' != ' }],
    ['!= for ==', qr/ != /, sub { ' == ' }],
    ['&& for ||', qr/ && /, sub { ' || ' }],
    ['|| for &&', qr/ \|\| /, sub { ' && ' }],
    ['moved by one', qr/ < (?=\w)/, sub { ' <= ' }],
    ['moved by one', qr/ > (?=\w)/, sub { ' >= ' }],
    ['moved by one', qr/ >= /, sub { ' > ' }],
    ['not left out', qr/(?<=[( ])!(?=[a-z])/, sub { '' }],
    ['constant moved', qr/(?<= [-+*\/=<>] )(\d+)\b(?!\.)/, sub { $1 + 1 }],
    ['true for false', qr/ = false;/, sub { ' = true;' }],
    ['false for true', qr/ = true;/, sub { ' = false;' }],
    ['assignment left out', qr/^    +[a-z][\w.>\[\]-]* [-+|]?= [^;]*;$/, sub { ';' }],
    ['call left out', qr/^    +\w+\([^;]*\);$/, sub { ';' }],
);

my @places;
for my $f (@files) {
    open my $h, '<', "daemon/decide/$f" or die "daemon/decide/$f: $!\n";
    my @lines = <$h>;
    my $in = 0; # inside a function
    for my $i (0 .. $#lines) {
        $in = 1 if $lines[$i] =~ /^\{/;
        $in = 0 if $lines[$i] =~ /^\}/;
        next if !$in || $lines[$i] =~ m{^\s*(/\*|\*|//|\#)} || $lines[$i] =~ /CLEANUP|^\s*for \(/;
        next if $lines[$i] =~ /plan_log|plan_crash_point|log_\w+\(|LOG_LVL|snprintf|err_set|err_hint|json_pack|\bm > 0 \?/;
        next if $lines[$i] =~ /\bfree\(|_free\(|_freep\(|json_decref|_clear\((?:&|a->|o\b|x\b)|operation_clear|intent_clear|va_(?:start|end)/;
        next if $lines[$i] =~ /ENOMEM|err_nomem|plan\.failed = true|!(?:copy|more|a|l|h|v|t|r|in|ids|e|op)\b(?: \|\||\))|if \((?:rc|room\(.*\)) < 0\)$/;
        next if $i < $#lines && $lines[$i + 1] =~ /plan_crash_point/ && $lines[$i] =~ /^\s*if /;
        for my $r (@rules) {
            my ($name, $from, $to, $kind) = @$r;
            # rc < 0 ? rc : 0 and, where rc is never 0, rc < 0 ? rc : 1 mean the same with <=.
            next if $name eq 'constant moved' && $lines[$i] =~ /\b(\w+) < 0 \? \1 : [01]\b/;
            next if $name eq 'moved by one' && $lines[$i] =~ /\b(\w+) < 0 \? \1 : [01]\b/;
            # The greater of two is the same with >=.
            next if $name eq 'moved by one' && $lines[$i] =~ /([\w.>\[\]-]+) > ([\w.>\[\]-]+) \? \1 : \2/;
            my $line = $lines[$i];
            chomp $line;
            $line =~ s{/\*.*?\*/}{};
            $line =~ s/\s+$//;
            next unless $line =~ $from;
            my ($before, $after) = (substr($line, 0, $-[0]), substr($line, $+[0]));
            my $new;
            if ($kind) { # the whole condition, where it ends on this line
                next unless $line =~ /^(\s*(?:\} else )?if \()(.*)(\)(?: \{)?)$/;
                my ($a, $b, $c) = ($1, $2, $3);
                next if ($b =~ tr/(//) != ($b =~ tr/)//);
                $new = "$a!($b)$c";
            } else {
                $new = $before . $to->() . $after;
            }
            push @places, { file => $f, line => $i, name => $name, new => $new, old => $lines[$i] };
        }
    }
}
if ($ENV{AGAIN}) { # the same changes, wherever their lines are now
    open my $h, '<', $ENV{AGAIN} or die "$ENV{AGAIN}: $!\n";
    my %lived = map { m{^lives: daemon/decide/(\S+?):\d+: (.*)} ? ("$1: $2" => 1) : () } <$h>;
    @places = grep { my $old = $_->{old} =~ s/^\s+|\s+$//gr; $lived{"$_->{file}: $_->{name}: $old"} } @places;
}
if ($n && $n < @places) {
    for my $i (0 .. $n - 1) {
        my $k = $i + int rand(@places - $i);
        @places[$i, $k] = @places[$k, $i];
    }
    $#places = $n - 1;
}

my $work = tempdir(CLEANUP => 1);
my ($cflags, $libs) = map { my $v = `make -s BUILD=$build print-$_`; chomp $v; $v } qw(cflags libs);
# A copy of all that is used, so that the tree may be worked on meanwhile.
mkdir "$work/tests";
mkdir "$work/tree";
system("find base cfg io proc daemon -name '*.h' | xargs cp --parents -t $work/tree && cp -r daemon/decide $work/source && " .
    "cp -r tests/decide $work/scenarios && cp $build/lib*.a $work") == 0 or die "no copy\n";
system("cp $build/tests/unit/$_.o $work/tests") == 0 or die "$_ is not built\n" for @tests;
$libs =~ s{\Q$build/\E(\S+\.a)}{$work/$1}g;
$ENV{SCENARIOS} = "$work/scenarios";
$ENV{STOP} = 1;
# What takes longer than all other scenarios together is played when they have noticed nothing.
mkdir "$work/long" and rename "$work/scenarios/aside.txt", "$work/long/aside.txt" or die "aside.txt: $!\n";
my @runs = map { [$_, ''] } @tests;
splice @runs, $#runs, 0, ['test_decide', "SCENARIOS=$work/long"] if grep { $_ eq 'test_decide' } @tests;
my %wraps = (test_decide => '-Wl,--wrap=natives_gather'); # as the Makefile links it
$wraps{$_} //= '' for @tests;
for my $t (@tests) { # what fails by itself notices nothing
    system("cc -o $work/$t $wraps{$t} $work/tests/$t.o $libs && MODEL_SECONDS=1 $work/$t >$work/out 2>&1") == 0
        or die "$t fails without a change:\n" . `tail -n 20 $work/out`;
}
sub run_one {
    my ($p, $id) = @_;
    my $dir = "$work/$id";
    mkdir $dir;
    open my $h, '<', "$work/source/$p->{file}" or return 'error';
    my @lines = <$h>;
    $lines[$p->{line}] = "$p->{new}\n";
    open my $o, '>', "$dir/$p->{file}" or return 'error';
    print $o @lines;
    close $o;
    system("cd $work/tree && cc $cflags -c -o $dir/changed.o $dir/$p->{file} >$dir/log 2>&1") == 0 or return 'invalid';
    # Most are noticed soon: a short game of the model first, and the whole one with what lives.
    my %linked;
    for my $play ($seconds > 2 ? (2, $seconds) : $seconds) {
        for my $run (@runs) {
            my ($t, $with) = @$run;
            next if $t ne 'test_model' && $play != 2 && $seconds > 2; # the same each time
            $linked{$t} //= system("cc -o $dir/$t $wraps{$t} $work/tests/$t.o $dir/changed.o $libs >>$dir/log 2>&1") == 0;
            return 'invalid' if !$linked{$t};
            my $limit = $play + 40;
            my $seed = $play == 2 ? 1 : 100001;
            # CPU time, as others may use the machine; one that sleeps for ever ends, too.
            my $limits = "ulimit -t $limit; timeout -k 5 " . 10 * $limit;
            system("$limits env $with MODEL_SEED=$seed MODEL_SECONDS=$play $dir/$t >$dir/out 2>&1") == 0 or return 'killed';
        }
    }
    return 'lives';
}

open my $report, '>', "$build/mutants.txt" or die "$build/mutants.txt: $!\n";
$report->autoflush(1);
sub note {
    printf @_;
    printf $report @_;
}
my (%running, %result, $next);
$next = 0;
$| = 1;
while ($next < @places || %running) {
    while ($next < @places && keys %running < $jobs) {
        my $id = $next++;
        my $pid = fork // die "fork: $!\n";
        if (!$pid) {
            my %code = (killed => 0, lives => 10, invalid => 11, error => 12);
            POSIX::_exit($code{ run_one($places[$id], $id) });
        }
        $running{$pid} = $id;
    }
    my $pid = wait;
    my $id = delete $running{$pid};
    my $what = { 0 => 'killed', 10 => 'lives', 11 => 'invalid' }->{ $? >> 8 } || 'error';
    $result{$what}++;
    printf STDERR "%d of %d\r", ($result{killed} || 0) + ($result{lives} || 0), scalar @places if -t STDERR;
    system("rm -rf $work/$id");
    my $p = $places[$id];
    if ($what eq 'lives') {
        my $old = $p->{old};
        $old =~ s/^\s+|\s+$//g;
        note("lives: daemon/decide/%s:%d: %s: %s\n", $p->{file}, $p->{line} + 1, $p->{name}, $old);
    }
}
my $killed = $result{killed} || 0;
my $lives = $result{lives} || 0;
my $all = $killed + $lives;
note("%d of %d changes noticed (%.1f %%), %d did not compile, %d errors\n", $killed, $all, $all ? 100 * $killed / $all : 0,
    $result{invalid} || 0, $result{error} || 0);
exit($all && $killed >= 0.85 * $all && !$result{error} ? 0 : 1);
