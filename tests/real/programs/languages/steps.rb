# steps.rb STEPS PACE_MS: two threads are given work by queues, a hash grows, the garbage collector runs.
steps, pace = ARGV[0].to_i, ARGV[1].to_f / 1000
value, seen = 1, {}
jobs, results = Queue.new, Queue.new
2.times do
  Thread.new do
    while (job = jobs.pop)
      results << job.reduce(0) { |a, b| (a * 31 + b) % 1_000_003 }
    end
  end
end
steps.times do |step|
  20_000.times { |i| value = (value * 31 + i) % 1_000_003 }
  seen["k#{value % 500}"] = [value, step, "x" * (value % 50)]
  2.times { |k| jobs << (0..500).map { |x| x * value + k } }
  both = [results.pop, results.pop].sort
  GC.start if step % 7 == 0
  puts "#{step} #{value} #{seen.size} #{both}"
  $stdout.flush
  sleep pace
end
