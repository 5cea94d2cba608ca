#!/usr/bin/env perl
# SPDX-License-Identifier: GPL-2.0-or-later
# The law of dependencies (docs/architecture.md): holds what the compiler read (*.d), what the sources include and the symbols
# of the objects and programs (nm) against tests/law/rooms. Prints one line for each violation, with the include or the symbol,
# and for each exception that no longer occurs; exits with 1 if there is one. With --list: the exceptions that would be needed.
# usage: law.pl [--list] RULES EXCEPTIONS ROOT BUILD [ROOT BUILD]...     the product is what is found in all roots
use strict;
use warnings FATAL => 'all';
no warnings 'recursion';

my $list = @ARGV && $ARGV[0] eq '--list' && shift @ARGV;
my ($rules, $exceptions, @places) = @ARGV;
die "usage: law.pl [--list] RULES EXCEPTIONS ROOT BUILD...\n" if @places < 2 || @places % 2;

sub lines { # of a file, without comments and empty ones
    open my $f, '<', $_[0] or die "$_[0]: $!\n";
    return grep { /\S/ } map { chomp; s/^#.*//; $_ } <$f>;
}
sub room { return $_[0] =~ s{/[^/]*$}{}r }

# ---- what is allowed ----

my (%may, %never);
for (lines($rules)) {
    if (/^never (\S+): *(.*)/) { $never{$1} = [split ' ', $2]; next }
    my ($name, $uses) = /^(\S+): *(.*)/ or die "$rules: $_\n";
    die "$rules: $name stands there twice\n" if $may{$name};
    $may{$name} = {map { $_ => 1 } split ' ', $uses};
}
for my $name (keys %may) { exists $may{$_} or die "$rules: $name uses $_, which is no room\n" for keys %{$may{$name}} }

my (%excepted, %circle_of, %circle_why, %used);
for (lines($exceptions)) {
    if (/^(\S+ -> \S+): +\S/) { die "$exceptions: $1 stands there twice\n" if $excepted{$1}++ }
    elsif (/^circle (\S+): +\S/) { $circle_why{$1} = 1 }
    elsif (/^  (\S+) in (\S+)$/ && $circle_why{$2}) { $circle_of{$1} = $2 }
    elsif (/^twice (\S+): +\S/) { $excepted{"twice $1"} = 1 }
    else { die "$exceptions: $_\n" }
}

# ---- what is there ----

my (%file, %name_of, %object, @problems); # file of the product -> path, and back; C file -> object
while (my ($root, $build) = splice @places, 0, 2) {
    my @rooms = grep { !/^(?:tests|perf|examples|build.*)$/ } map { m{([^/]+)/$} } glob("$root/*/");
    for my $name (@rooms ? split(/\n/, `cd '$root' && find @rooms -name '*.[ch]'`) : ()) {
        $file{$name} = "$root/$name";
        $name_of{"$root/$name"} = $name;
        $object{$name} = "$build/" . ($name =~ s{c$}{o}r) if $name =~ /\.c$/;
    }
    $object{"program $_"} = "$build/$_" for grep { -e "$build/$_" } keys %never;
}
for (sort keys %file) {
    push @problems, "$_ lies in no room" if !$may{room($_)};
    push @problems, "$_ was not built: no $object{$_}" if /\.c$/ && !-e $object{$_};
}
for (keys %never) { push @problems, "$_ was not built" if !$object{"program $_"} }

my (%include, %read); # direct includes as written; what the compiler read of each C file
for my $name (sort keys %file) {
    open my $f, '<', $file{$name} or die "$file{$name}: $!\n";
    while (<$f>) {
        next unless /^\s*#\s*include\s+"([^"]+)"/;
        my $beside = room($name) . "/$1";
        my $is = $file{$1} ? $1 : $file{$beside} ? $beside : undef;
        if ($is) { $include{$name}{$is} = 1 } else { push @problems, "$name includes $1, which is not of the product" }
    }
    next unless $object{$name} && -e $object{$name};
    my $d = $object{$name} =~ s/o$/d/r;
    open my $deps, '<', $d or do { push @problems, "$name: no $d"; next };
    local $/;
    my ($prerequisites) = <$deps> =~ /^[^:]+:((?:[^\n\\]|\\\n)*)/;
    for my $read (split /[\s\\]+/, $prerequisites) {
        $read =~ s{^\./}{};
        $read = $name_of{$read} // $read;
        $read{$name}{$read} = 1 if $file{$read};
    }
}
# The includes as written explain all that was read: none is hidden in a macro.
for my $name (sort keys %read) {
    my %seen;
    my @todo = ($name);
    while (my $next = pop @todo) { push @todo, keys %{$include{$next} || {}} if !$seen{$next}++ }
    push @problems, "$name: the compiler read $_, and no include shows why" for grep { !$seen{$_} } sort keys %{$read{$name}};
}

my (%defined, %wanted, %symbol); # symbol -> C files; C file -> symbols; C file -> C file -> symbols
my @built = grep { -e $object{$_} } sort keys %object;
my %by_object = map { $object{$_} => $_ } @built;
open my $nm, '-|', 'nm', '-A', '--extern-only', map { $object{$_} } @built or die "nm: $!\n";
while (<$nm>) {
    my ($object, $type, $name) = /^(.*?):[0-9a-f ]+ ([A-Za-z]) (\S+)$/ or next;
    $name =~ s/@.*//;
    next if $name eq 'main' || $name =~ /^__(odr_)?asan/;
    if ($type =~ /[Uwv]/) { $wanted{$by_object{$object}}{$name} = 1 } else { push @{$defined{$name}}, $by_object{$object} }
}
close $nm or die "nm failed\n";
for my $name (sort keys %defined) {
    my @by = grep { !/^program / } @{$defined{$name}};
    excuse("twice $name", "$name is defined twice: @by") if @by > 1;
    for my $program (map { substr $_, 8 } grep { /^program / } @{$defined{$name}}) {
        for my $by (@by) {
            push @problems, "$program contains $name of $by" if @by == 1 && grep { $_ eq room($by) } @{$never{$program}};
        }
    }
}
for my $user (keys %wanted) {
    for my $name (keys %{$wanted{$user}}) {
        my @by = grep { !/^program / } @{$defined{$name} || []};
        # Of two with that name it is the one that may be used.
        my @may = grep { !forbidden($user, $_) } @by;
        @by = @may if @may;
        $symbol{$user}{$_}{$name} = 1 for grep { $_ ne $user } @by;
    }
}

# ---- the judgement ----

sub excuse { # KEY PROBLEM
    my ($key, $problem) = @_;
    $used{$key} = 1;
    if ($list) { print "$key: ...\n" } elsif (!$excepted{$key}) { push @problems, $problem }
}
sub few { my @s = sort @_; return @s > 6 ? "@s[0 .. 4] and " . (@s - 5) . ' more' : "@s" }
sub forbidden { my ($from, $to) = @_; return room($from) ne room($to) && !($may{$from} || $may{room($from)} || {})->{room($to)} }

for my $user (sort keys %include) {
    excuse("$user -> $_", "$user may not use " . room($_) . ": includes $_") for grep { forbidden($user, $_) } sort keys %{$include{$user}};
}
for my $user (sort keys %symbol) {
    for my $by (grep { forbidden($user, $_) } sort keys %{$symbol{$user}}) {
        excuse("$user -> $by", "$user may not use " . room($by) . ": symbols of $by: " . few(keys %{$symbol{$user}{$by}}));
    }
}
for ([\%include, 'includes', sub { '' }], [\%symbol, 'symbols', sub { ' (' . few(keys %{$symbol{$_[0]}{$_[1]}}) . ')' }]) {
    my ($edges, $kind, $label) = @$_;
    for my $circle (circles($edges)) {
        my %groups = map { ($circle_of{$_} // '') => 1 } @$circle;
        $used{"circle $_"} = 1 for @$circle;
        my $text = "circle of " . @$circle . " files by $kind: " . one_circle($edges, $label, @$circle);
        if ($list) { print "circle NAME: ...\n", map { "  $_ in NAME\n" } @$circle }
        elsif (keys %groups > 1) { push @problems, "$text; not among the exceptions: " . (join(' ', grep { !$circle_of{$_} } @$circle) || 'two circles are now one') }
        elsif ($groups{''}) { push @problems, $text }
    }
}
my %rooms = map { $_ => $may{$_} } keys %may;
push @problems, "circle of rooms in $rules: @$_" for circles(\%rooms);
push @problems, map { "no longer occurs, strike it off $exceptions: $_" } grep { !$used{$_} } sort keys %excepted;
push @problems, map { "no longer in a circle, strike it off $exceptions: $_" } grep { !$used{"circle $_"} } sort keys %circle_of;
my %named = map { $_ => 1 } values %circle_of;
push @problems, map { "no longer occurs, strike it off $exceptions: circle $_" } grep { !$named{$_} } sort keys %circle_why;

# Strongly connected components of more than one file, after Tarjan.
sub circles {
    my ($edges) = @_;
    my ($n, %index, %low, %on, @stack, @found) = (0);
    my $visit;
    $visit = sub {
        my ($v) = @_;
        $index{$v} = $low{$v} = $n++;
        push @stack, $v;
        $on{$v} = 1;
        for my $w (sort keys %{$edges->{$v} || {}}) {
            if (!defined $index{$w}) {
                $visit->($w);
                $low{$v} = $low{$w} if $low{$w} < $low{$v};
            } elsif ($on{$w}) {
                $low{$v} = $index{$w} if $index{$w} < $low{$v};
            }
        }
        return if $low{$v} != $index{$v};
        my @one;
        do { push @one, pop @stack; delete $on{$one[-1]} } until $one[-1] eq $v;
        push @found, [sort @one] if @one > 1;
    };
    for (sort keys %$edges) { $visit->($_) if !defined $index{$_} }
    return sort { @$b <=> @$a || $a->[0] cmp $b->[0] } @found;
}
# A shortest way round from the first file of a circle, with what leads from each to the next.
sub one_circle {
    my ($edges, $label, @members) = @_;
    my %member = map { $_ => 1 } @members;
    my ($start, @todo, %from) = ($members[0], $members[0]);
    while (my $v = shift @todo) {
        for my $w (grep { $member{$_} } sort keys %{$edges->{$v}}) {
            next if exists $from{$w};
            $from{$w} = $v;
            push @todo, $w;
        }
    }
    my ($text, $v) = ($start, $start);
    do {
        my $u = $from{$v};
        $text = "$u -> " . $label->($u, $v) . ($label->($u, $v) ? ' ' : '') . $text;
        $v = $u;
    } until $v eq $start;
    return $text =~ s/  +/ /gr;
}

exit 0 if $list;
print "$_\n" for @problems;
printf "# %d C files, %d in circles, %d exceptions\n", scalar(grep { /\.c$/ } keys %file), scalar(grep { /\.c$/ } keys %circle_of),
    scalar(keys %excepted) + scalar(keys %circle_why);
exit(@problems ? 1 : 0);
