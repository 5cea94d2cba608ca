#!/usr/bin/env perl
# SPDX-License-Identifier: GPL-2.0-or-later
# Global symbols of the product that nothing of the product uses: only tests call them, or nobody does. Read from the symbols
# and relocations of the objects; where the compiler has put a function into its callers, from the text of its own file.
# Prints "FILE SYMBOL" for each; exits with 1 if there is one. A name that ends in _test, or that a header *-test.h declares, is
# meant for tests.
# usage: unused.pl ROOT BUILD [ROOT BUILD]...     the product is what is found in all roots
use strict;
use warnings FATAL => 'all';

die "usage: unused.pl ROOT BUILD...\n" if @ARGV < 2 || @ARGV % 2;
my (%source, %path, %roots); # object -> C file, and its path; root -> rooms
while (my ($root, $build) = splice @ARGV, 0, 2) {
    my @rooms = grep { !/^(?:tests|perf|examples|build.*)$/ } map { m{([^/]+)/$} } glob("$root/*/");
    $roots{$root} = "@rooms" if @rooms;
    for my $name (@rooms ? split(/\n/, `cd '$root' && find @rooms -name '*.c'`) : ()) {
        my $object = "$build/" . ($name =~ s{c$}{o}r);
        die "$name was not built: no $object\n" if !-e $object;
        $source{$object} = $name;
        $path{$name} = "$root/$name";
    }
}
sub each_line { # COMMAND: its lines with the object that they are of
    my ($take, @command) = @_;
    open my $out, '-|', @command, sort keys %source or die "$command[0]: $!\n";
    my $object = '';
    while (<$out>) {
        if (/^File: (.*)$/ || /^(\S.*\.o):$/) { $object = $1 } else { $take->($source{$object}, $_) if $object }
    }
    close $out or die "@command failed\n";
}

my %for_tests; # declared in a header for tests
for my $root (keys %roots) {
    for my $header (split /\n/, `cd '$root' && find $roots{$root} -name '*-test.h'`) {
        open my $f, '<', "$root/$header" or die "$root/$header: $!\n";
        while (<$f>) { $for_tests{$1} = 1 if /^\w[\w *]*\b(\w+)\(/ }
    }
}

my (%by, %used); # symbol -> file; symbol -> 1
each_line(sub {
    my ($file, $line) = @_;
    my ($type, $name) = $line =~ /^[0-9a-f ]+ ([A-Za-z]) (\S+)$/ or return;
    if ($type =~ /[Uwv]/) { $used{$name} = 1 } else { $by{$name} = $file }
}, 'nm', '--extern-only');
each_line(sub { $used{$1} = 1 if $_[1] =~ /^[0-9a-f]+ +[0-9a-f]+ +R_\S+ +[0-9a-f]+ +(\S+)/ }, 'readelf', '-rW');

my %text; # file -> its text without comments and strings
sub text_of {
    my ($file) = @_;
    return $text{$file} //= do {
        open my $f, '<', $path{$file} or die "$path{$file}: $!\n";
        local $/;
        <$f> =~ s{/\*.*?\*/|//[^\n]*|"(?:[^"\\]|\\.)*"}{ }gsr;
    };
}
my @unused;
for my $name (sort grep { !$used{$_} } keys %by) {
    next if $name eq 'main' || $for_tests{$name} || $name =~ /_test$/ || $name =~ /^__|\./; # of sanitizers
    my @there = text_of($by{$name}) =~ /\b\Q$name\E\b/g;
    push @unused, "$by{$name} $name" if @there < 2;
}
print "$_\n" for sort @unused;
printf "# %d global symbols, %d unused\n", scalar(keys %by), scalar(@unused);
exit(@unused ? 1 : 0);
