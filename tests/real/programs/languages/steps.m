% steps.m STEPS PACE_MS: products, random numbers and singular values in GNU Octave.
given = argv();
steps = str2num(given{1});
pace = str2num(given{2}) / 1000;
rand("twister", 1);
x = rand(200);
for step = 1:steps
  x = x * x;
  x = x / max(abs(x(:))) + rand(200) * 0.01;
  values = svd(x(1:50, 1:50));
  printf("%d %.17g %.17g\n", step, sum(x(:)), values(1));
  fflush(stdout);
  pause(pace);
end
