<?php
// steps.php STEPS PACE_MS: an array that grows, and a digest of all of it.
[, $steps, $pace] = $argv;
$value = 1;
$seen = [];
for ($step = 0; $step < $steps; $step++) {
    for ($i = 0; $i < 100000; $i++) $value = ($value * 31 + $i) % 1000003;
    $seen["k" . $value % 500] = [$value, str_repeat("x", $value % 500)];
    echo "$step $value " . md5(serialize($seen)) . "\n";
    usleep($pace * 1000);
}
