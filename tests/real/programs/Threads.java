// Threads STEPS PACE_MS: a pool of threads, locks, a heap that is collected all the time, exceptions that are caught.
import java.util.*;
import java.util.concurrent.*;

public class Threads {
  static long work(long seed) {
    Map<Long, List<Long>> map = new HashMap<>();
    for (long i = 0; i < 3000; ++i) {
      seed = seed * 6364136223846793005L + 1442695040888963407L;
      map.computeIfAbsent((seed >>> 33) % 500, k -> new ArrayList<>()).add(seed);
      if (i % 1000 == 0)
        try {
          List<Long> none = map.get(-1L);
          seed += none.size();
        } catch (NullPointerException expected) {
          seed ^= i;
        }
    }
    long sum = 0;
    for (long k = 0; k < 500; ++k)
      for (long v : map.getOrDefault(k, List.of())) sum = sum * 31 + v;
    return sum;
  }

  public static void main(String[] arguments) throws Exception {
    int steps = Integer.parseInt(arguments[0]), pace = Integer.parseInt(arguments[1]);
    ExecutorService pool = Executors.newFixedThreadPool(4);
    long total = 0;
    for (int step = 1; step <= steps; ++step) {
      List<Future<Long>> parts = new ArrayList<>();
      for (int i = 0; i < 8; ++i) {
        final long seed = total + step * 1000 + i;
        parts.add(pool.submit(() -> work(seed)));
      }
      for (Future<Long> part : parts) total = total * 31 + part.get();
      System.out.println("step " + step + " " + Long.toHexString(total));
      Thread.sleep(pace);
    }
    System.out.println("done");
    pool.shutdown();
  }
}
