// Steps.exe STEPS PACE_MS: threads of Mono's pool, and a collector that runs.
using System;
using System.Collections.Generic;
using System.Threading;
using System.Threading.Tasks;

class Steps {
  static long Mix(long value, int count) {
    for (int i = 0; i < count; i++) value = (value * 31 + i) % 1000003;
    return value;
  }

  static void Main(string[] given) {
    int steps = int.Parse(given[0]), pace = int.Parse(given[1]);
    long value = 1;
    var seen = new Dictionary<long, byte[]>();
    for (int step = 0; step < steps; step++) {
      value = Mix(value, 200000);
      seen[value % 500] = new byte[value % 50000];
      long[] parts = new long[8];
      Parallel.For(0, 8, k => { parts[k] = Mix(value + k, 5000); });
      long sum = 0;
      foreach (long part in parts) sum += part;
      if (step % 9 == 0) GC.Collect();
      Console.WriteLine(step + " " + value + " " + sum + " " + seen.Count);
      Console.Out.Flush();
      Thread.Sleep(pace);
    }
  }
}
