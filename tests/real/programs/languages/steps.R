# steps.R STEPS PACE_MS: products of matrices, random numbers, a linear model.
given <- as.numeric(commandArgs(TRUE))
set.seed(1)
x <- matrix(rnorm(10000), 100)
for (step in seq_len(given[1])) {
  x <- x %*% x
  x <- x / max(abs(x)) + rnorm(10000) * 0.01
  model <- lm(x[, 1] ~ x[, 2] + x[, 3])
  cat(step, format(sum(x), digits = 17), format(coef(model), digits = 15), "\n")
  flush(stdout())
  Sys.sleep(given[2] / 1000)
}
