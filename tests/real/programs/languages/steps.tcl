# steps.tcl STEPS PACE_MS: a dictionary that grows.
lassign $argv steps pace
set value 1
for {set step 0} {$step < $steps} {incr step} {
    for {set i 0} {$i < 20000} {incr i} { set value [expr {($value * 31 + $i) % 1000003}] }
    dict set seen k[expr {$value % 500}] $value
    puts "$step $value [dict size $seen]"
    flush stdout
    after $pace
}
