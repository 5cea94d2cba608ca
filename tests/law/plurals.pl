# SPDX-License-Identifier: GPL-2.0-or-later
# plurals.pl FILE...: texts in C in which a number is followed by a word that is always plural, as in "1 snapshots".
use strict;
use warnings;
local $/;
my $words = join '|', qw(attempts backups blobs chunks contents copies days entries epochs errors files groups hours
    intermediates jobs lines locks logs manifests marks minutes movers nodes objects operations outcomes packs pieces
    problems ranges records repositories restores slots snapshots sources steps times volumes warnings workers);
for my $file (@ARGV) {
    open my $h, '<', $file or die "$file: $!\n";
    my $text = <$h>;
    $text =~ s/" *PRI[a-z0-9]+ *"/d/g;
    $text =~ s/"\s*\n\s*"//g;
    while ($text =~ /"((?:[^"\\\n]|\\.)*)"/g) {
        my $literal = $1;
        while ($literal =~ /((?:\S+ ){0,2})%\d*(?:z|l|ll)?[du]((?: [a-z'-]+){0,2}? (?:$words))\b/g) {
            print "$file: $1%d$2\n";
        }
    }
}
