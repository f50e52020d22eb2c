# steps.pl STEPS PACE_MS: a hash that grows and is sorted, and a shell in every step.
use strict;
use warnings;
$| = 1;
my ($steps, $pace) = @ARGV;
my ($value, %seen) = (1);
for my $step (0 .. $steps - 1) {
    $value = ($value * 31 + $_) % 1000003 for 0 .. 49999;
    $seen{ "k" . $value % 500 } = [$value, "x" x ($value % 50)];
    my $sorted = join ",", sort { $a <=> $b } map { $_->[0] } values %seen;
    chomp(my $of_shell = `echo $value | wc -c`);
    print "$step $value ", unpack("%32C*", $sorted), " $of_shell\n";
    select undef, undef, undef, $pace / 1000;
}
