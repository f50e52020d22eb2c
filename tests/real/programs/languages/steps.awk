# gawk -v steps=STEPS -v pace=PACE_MS: an array that grows, and a program that sleeps in every step.
BEGIN {
  value = 1
  for (step = 0; step < steps; step++) {
    for (i = 0; i < 100000; i++) value = (value * 31 + i) % 1000003
    seen[value % 500] = value
    sum = 0
    for (k in seen) sum += seen[k]
    print step, value, sum
    fflush()
    system("sleep " pace / 1000)
  }
}
