// Grids on CPU cores: units (blocks, or clusters of them) are handed to workers, time-sliced so
// that no block that waits for another can keep it from running. Small grids run on the thread that
// launches them.
//
// A unit runs until it is done, its time slice is used up, or every warp of it only polls memory.
// Then it goes to the end of its grid's waiting list. New units start first while fewer than
// `resident` are under way when the last one yielded because it polls; else old and new ones take
// turns, so that memory stays small for grids of long independent blocks.
//
// Kernels whose results depend on the order of their blocks (Function::depends_on_order) run one
// unit at a time, so that results do not depend on the number of threads.
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <x86intrin.h>

#include <initializer_list>

#include "ptx/handlers/device_launch.h"
#include "ptx/handlers/tensor_core.h"
#include "ptx/native/native.h"
#include "ptx/run/units.h"

namespace simgpu::ptx {

namespace {

constexpr int64_t kWarpSlice =
    20000;  // instructions of a warp before the next warp of the block runs
constexpr int64_t kUnitSlice = 4000000;  // instructions of a unit before another unit runs
constexpr uint64_t kResidentBytes = 1ull << 30;
// Grids this small run on the caller's thread, because waking a worker costs more than they do. One
// that turns out to take long is moved to the pool after a slice.
constexpr uint64_t kSmallUnits = 4, kSmallWarps = 8;
constexpr int64_t kSmallSlice = 100000;

enum class UnitState { kDone, kYield, kSpin, kError };

struct Job {
  Grid grid;
  Job* next = nullptr;
  uint64_t unit_count = 0, started = 0, finished = 0;
  uint32_t resident = 0, resident_limit = 0;
  Unit* waiting = nullptr;  // a queue
  Unit** waiting_end = &waiting;
  Unit* spare = nullptr;  // storage of finished units
  uint32_t running = 0;
  uint32_t turn = 0;
  uint32_t polls = 0;  // units in a row that only polled
  bool failed = false;
  std::atomic<bool> done{false};
  bool helped = false;  // the pool's threads have been woken for it
  uint64_t id = 0;
  Result result;
};

// Cycles to wait in a loop, which is cheaper than sleeping and being woken.
constexpr uint64_t kSpinCycles = 25000;
// Grids of more instructions than this wake other threads at once; others do when they turn out to
// take long.
constexpr uint64_t kManyInstructions = 4000;
constexpr uint64_t kLongCycles = 15000;

template <class F>
bool spin_until(F f) {
  const uint64_t begin = __rdtsc();
  do {
    for (int k = 0; k < 16; ++k) {
      if (f()) return true;
      _mm_pause();
    }
  } while (__rdtsc() - begin < kSpinCycles);
  return false;
}

}  // namespace

class Pool {
 public:
  explicit Pool(unsigned threads) : count_(threads) {
    pthread_mutex_init(&mutex_, nullptr);
    pthread_cond_init(&work_, nullptr);
    pthread_cond_init(&finished_, nullptr);
  }
  bool start() {
    threads_ = static_cast<pthread_t*>(calloc(count_, sizeof(pthread_t)));
    if (!threads_) return false;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 512 << 10);
    for (; alive_ < count_; ++alive_)
      if (pthread_create(&threads_[alive_], &attributes, &Pool::main, this) != 0) break;
    pthread_attr_destroy(&attributes);
    return alive_ > 0;
  }
  ~Pool() {
    pthread_mutex_lock(&mutex_);
    stop_ = true;
    pthread_cond_broadcast(&work_);
    pthread_mutex_unlock(&mutex_);
    for (unsigned k = 0; k < alive_; ++k) pthread_join(threads_[k], nullptr);
    free(threads_);
    pthread_mutex_destroy(&mutex_);
    pthread_cond_destroy(&work_);
    pthread_cond_destroy(&finished_);
  }

  Result run(Job* job) {
    job->id = ids_.fetch_add(1, std::memory_order_relaxed) + 1;
    if (!small(*job) || !run_here(job)) run_with_others(job);
    release(job);
    return job->result;
  }

 private:
  static bool small(const Job& job) {
    const Grid& g = job.grid;
    return job.unit_count == 1 ||
           (job.unit_count <= kSmallUnits &&
            job.unit_count * g.cluster_size * g.warps_per_block <= kSmallWarps);
  }

  // The launching thread works, too, as long as its blocks run to their ends, so that no thread has
  // to be woken. A block that waits or takes long is left to the pool's threads.
  void run_with_others(Job* job) {
    pthread_mutex_lock(&mutex_);
    job->next = jobs_;
    jobs_ = job;
    if (job->waiting || (count_ > 1 && expects_much(*job))) call_others(job);
    const bool whole = assist(job);
    if (!whole) call_others(job);
    if (!job->done && whole) {
      pthread_mutex_unlock(&mutex_);
      spin_until([&] { return job->done.load(std::memory_order_acquire); });
      pthread_mutex_lock(&mutex_);
    }
    while (!job->done) pthread_cond_wait(&finished_, &mutex_);
    for (Job** p = &jobs_; *p; p = &(*p)->next)
      if (*p == job) {
        *p = job->next;
        break;
      }
    pthread_mutex_unlock(&mutex_);
  }

  static bool expects_much(const Job& job) {
    const Grid& g = job.grid;
    const uint64_t warps = job.unit_count * g.cluster_size * g.warps_per_block;
    const Function& f = *g.kernel->function;
    return job.unit_count > 1 && (f.loops || warps * f.code_count > kManyInstructions);
  }

  // With the mutex held.
  void call_others(Job* job) {
    job->helped = true;
    call();
  }
  void call() {
    calls_.store(calls_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    if (asleep_ != 0) pthread_cond_broadcast(&work_);
  }

  // With the mutex held: runs units of the job until there are none to begin. False when one did
  // not end in its slice.
  bool assist(Job* job) {
    uint32_t before;
    asm volatile("stmxcsr %0" : "=m"(before));
    set_rounding();
    Ctx c;
    memset((void*)&c, 0, offsetof(Ctx, vectors));
    bool whole = true;
    const uint64_t begin = __rdtsc();
    while (whole && !job->done && active_ < count_) {
      if (job->running != 0 && job->grid.kernel->depends_on_order) break;
      if (job->failed || job->waiting || job->started == job->unit_count ||
          job->resident >= job->resident_limit)
        break;
      if (!job->helped && count_ > 1 && __rdtsc() - begin > kLongCycles) call_others(job);
      if ((jobs_ != job || job->next) &&
          __rdtsc() - begin > 100 * kLongCycles) {  // other units are waiting for the thread
        whole = false;
        break;
      }
      Unit* unit = job->spare;
      if (unit) job->spare = unit->next;
      ++job->resident;
      const UnitState state =
          run_slice(&c, job, unit, true, job->helped ? kUnitSlice : kSmallSlice);
      whole = state == UnitState::kDone || state == UnitState::kError;
    }
    asm volatile("ldmxcsr %0" ::"m"(before));
    if (jobs_ != job || job->next) call();  // this core is free for other grids
    return whole;
  }

  // With the mutex held, which it gives up while the unit runs.
  UnitState run_slice(Ctx* c, Job* job, Unit* unit, bool fresh, int64_t slice) {
    ++active_;
    ++job->running;
    const uint64_t index = fresh ? job->started++ : 0;
    const unsigned pause = job->polls <= job->resident + 1        ? 0
                           : job->polls <= 64 + 8 * job->resident ? 50
                                                                  : 500;
    pthread_mutex_unlock(&mutex_);
    if (pause != 0) usleep(pause);
    UnitState state = UnitState::kError;
    Result result;
    if (fresh)
      state = begin(c, job, &unit, index, slice, &result);
    else
      state = run_unit(c, job, unit, slice, &result);
    pthread_mutex_lock(&mutex_);
    --active_;
    finish_slice(job, unit, state, result);
    return state;
  }

  // Runs the grid's units one after the other, on a thread outside of the pool. False when one
  // waits for others or takes long: the pool, which does not know the job yet, can continue from
  // its state.
  bool run_here(Job* job) {
    uint32_t before;
    asm volatile("stmxcsr %0" : "=m"(before));
    set_rounding();
    Ctx c;
    memset((void*)&c, 0, offsetof(Ctx, vectors));
    const int64_t slice = job->unit_count == 1 ? kUnitSlice : kSmallSlice;
    bool whole = true;
    while (whole && job->started < job->unit_count && !job->failed) {
      Unit* unit = job->spare;
      if (unit) job->spare = unit->next;
      ++job->resident;
      ++job->running;
      Result result;
      UnitState state = begin(&c, job, &unit, job->started++, slice, &result);
      whole = state == UnitState::kDone || state == UnitState::kError;
      finish_slice(job, unit, state, result);
    }
    asm volatile("ldmxcsr %0" ::"m"(before));
    return whole;
  }

  static void set_rounding() {
    const uint32_t csr = 0x1f80;  // round to nearest, nothing flushed, whatever the creator had
    asm volatile("ldmxcsr %0" ::"m"(csr));
  }

  // Starts unit `index` in the given storage, or in new one, and runs its first slice.
  UnitState begin(Ctx* c, Job* job, Unit** unit, uint64_t index, int64_t slice, Result* result) {
    if (!*unit) *unit = units_.take(job->grid);
    if (*unit && start_unit(job->grid, *unit, index)) return run_unit(c, job, *unit, slice, result);
    result->outcome = Outcome::kTrap;
    snprintf(result->text, sizeof result->text, "%s: no memory to run a block",
             job->grid.kernel->info.name);
    if (*unit) end_unit(*unit);
    return UnitState::kError;
  }

  static void* main(void* self) {
    static_cast<Pool*>(self)->work();
    return nullptr;
  }

  void work() {
    set_rounding();
    auto* c = static_cast<Ctx*>(aligned_alloc(64, (sizeof(Ctx) + 63) & ~(size_t)63));
    if (!c) return;
    memset((void*)c, 0, sizeof *c);
    pthread_mutex_lock(&mutex_);
    while (!stop_) {
      Job* job = nullptr;
      bool fresh = false;
      const uint32_t calls = calls_.load(std::memory_order_relaxed);
      Unit* unit = active_ < count_ ? take(&job, &fresh) : nullptr;
      if (!unit && !job) {
        wait_for_work(calls);
        continue;
      }
      const bool ordered = job->grid.kernel->depends_on_order;
      run_slice(c, job, unit, fresh, kUnitSlice);
      // This worker may take a unit of another grid next.
      if (ordered && jobs_ && jobs_->next) call();
    }
    pthread_mutex_unlock(&mutex_);
    free(c);
  }

  void wait_for_work(uint32_t calls) {
    if (count_ > 1) {
      pthread_mutex_unlock(&mutex_);
      const bool called =
          spin_until([&] { return calls_.load(std::memory_order_acquire) != calls; });
      pthread_mutex_lock(&mutex_);
      if (called) return;
    }
    if (stop_ || calls_.load(std::memory_order_relaxed) != calls) return;
    ++asleep_;
    pthread_cond_wait(&work_, &mutex_);
    --asleep_;
  }

  // With the mutex held: what to run next. A new unit has *fresh set and may be null (no spare
  // storage).
  Unit* take(Job** job, bool* fresh) {
    unsigned n = 0;
    for (Job* j = jobs_; j; j = j->next) ++n;
    if (n == 0) return nullptr;
    unsigned skip = turn_++ % n;
    for (unsigned k = 0; k < n; ++k) {
      Job* j = jobs_;
      for (unsigned s = (skip + k) % n; s > 0; --s) j = j->next;
      if (j->done || j->failed) continue;
      if (j->running != 0 && j->grid.kernel->depends_on_order) continue;
      bool can_start = j->started < j->unit_count && j->resident < j->resident_limit;
      if (can_start && (!j->waiting || j->polls > 0 || (j->turn++ & 3) == 3)) {
        *job = j;
        *fresh = true;
        ++j->resident;
        Unit* u = j->spare;
        if (u) j->spare = u->next;
        return u;
      }
      if (j->waiting) {
        Unit* u = j->waiting;
        j->waiting = u->next;
        if (!j->waiting) j->waiting_end = &j->waiting;
        *job = j;
        *fresh = false;
        return u;
      }
    }
    return nullptr;
  }

  void finish_slice(Job* job, Unit* unit, UnitState state, const Result& result) {
    --job->running;
    if (state == UnitState::kYield || state == UnitState::kSpin) {
      job->polls = state == UnitState::kSpin ? job->polls + 1 : 0;
      unit->next = nullptr;
      *job->waiting_end = unit;
      job->waiting_end = &unit->next;
      if (job->running + 1 < job->resident) call();
    } else {
      job->polls = 0;
      --job->resident;
      ++job->finished;
      if (unit) {
        unit->next = job->spare;
        job->spare = unit;
      }
      if (state == UnitState::kError && !job->failed) {
        job->failed = true;
        job->result = result;
        job->grid.stop.store(true, std::memory_order_relaxed);
      }
    }
    const bool over = job->failed ? job->running == 0 : job->finished == job->unit_count;
    if (over && !job->done) {
      job->done = true;
      pthread_cond_broadcast(&finished_);
    }
  }

  static bool cancelled(const Grid& g, Result* result) {
    if (g.launch->cancel && g.launch->cancel->load(std::memory_order_relaxed)) {
      result->outcome = Outcome::kCancelled;
      return true;
    }
    return g.stop.load(std::memory_order_relaxed);
  }

  static UnitState run_unit(Ctx* c, Job* job, Unit* unit, int64_t slice, Result* result) {
    Grid& g = job->grid;
    c->grid = &g;
    c->module = g.module;
    c->base[1] = g.module->constants;
    c->error = result;
    c->params = g.params;
    c->shape = g.shape;
    c->epoch_now = &g.memory->epoch;
    if (c->job != job->id) {  // perhaps another context's memory
      for (Segment& s : c->cache) s = Segment{0, 0, nullptr, false};
      for (Segment& s : c->sites) s = Segment{0, 0, nullptr, false};
      c->job = job->id;
      c->epoch = g.memory->epoch.load(std::memory_order_acquire);
    }
    int64_t left = slice;
    for (;;) {
      bool polled = true, ran = false;
      for (uint32_t k = 0; k < unit->block_count; ++k) {
        Block& b = unit->blocks[k];
        c->block = &b;
        c->sites[kSharedSite] = Segment{0, b.shared_bytes, b.shared, true};
        for (uint32_t w = 0; w < b.warp_count; ++w) {
          Warp& warp = b.warps[w];
          if (warp.done) continue;
          if (cancelled(g, result)) {
            end_unit(unit);
            return UnitState::kError;
          }
          const bool ready = can_run(warp);
          WarpState state = run_warp(*c, warp, kWarpSlice);
          switch (state) {
            case WarpState::kError:
              if (result->outcome == Outcome::kAssert) let_others_assert(c, unit, &warp);
              end_unit(unit);
              return UnitState::kError;
            case WarpState::kDone:
              warp.done = true;
              ran = true;
              polled = false;
              left -= 100;
              if (++b.warps_done == b.warp_count) ++unit->blocks_done;
              break;
            case WarpState::kBlocked:
              left -= 10;
              if (!ready) break;  // it waits still
              ran = true;
              polled = false;
              break;
            case WarpState::kYield:
              left -= kWarpSlice;
              ran = true;
              polled = false;
              break;
            case WarpState::kSpin:
              left -= 200;
              ran = true;
              break;
          }
        }
      }
      if (unit->blocks_done == unit->block_count) return UnitState::kDone;
      if (!ran && !runnable(*unit)) {
        deadlock(c, unit);
        end_unit(unit);
        return UnitState::kError;
      }
      if (ran && polled) return UnitState::kSpin;
      if (left <= 0) return UnitState::kYield;
    }
  }

  // After a failed assertion: the other warps of the unit go on for a while, as they would on a GPU
  // until the failure has got round, and tell of their failed assertions. The first one counts.
  static void let_others_assert(Ctx* c, Unit* unit, const Warp* failed) {
    Result ignored, *const error = c->error;
    c->error = &ignored;
    for (uint32_t k = 0; k < unit->block_count; ++k) {
      Block& b = unit->blocks[k];
      c->block = &b;
      c->sites[kSharedSite] = Segment{0, b.shared_bytes, b.shared, true};
      for (uint32_t w = 0; w < b.warp_count; ++w)
        if (&b.warps[w] != failed && !b.warps[w].done && can_run(b.warps[w]))
          run_warp(*c, b.warps[w], kWarpSlice);
    }
    c->error = error;
  }

  static bool can_run(const Warp& warp) {
    for (uint32_t g = 0; g < warp.group_count; ++g)
      if (warp.groups[g].state == GroupState::kReady) return true;
    return false;
  }
  static bool runnable(const Unit& unit) {
    for (uint32_t k = 0; k < unit.block_count; ++k)
      for (uint32_t w = 0; w < unit.blocks[k].warp_count; ++w) {
        if (can_run(unit.blocks[k].warps[w])) return true;
      }
    return false;
  }
  static void deadlock(Ctx* c, Unit* unit) {
    for (uint32_t k = 0; k < unit->block_count; ++k)
      for (uint32_t w = 0; w < unit->blocks[k].warp_count; ++w) {
        Warp& warp = unit->blocks[k].warps[w];
        if (warp.group_count == 0) continue;
        c->block = &unit->blocks[k];
        c->warp = &warp;
        fault(*c, warp.groups[0].pc, Outcome::kTrap, 0,
              "deadlock: every thread of the block waits at a barrier");
        return;
      }
  }

  void release(Job* job) {
    for (Unit* list : {job->spare, job->waiting})
      while (list) {
        Unit* u = list;
        list = u->next;
        end_unit(u);
        units_.give(u);
      }
  }

  UnitStore units_;
  pthread_mutex_t mutex_;
  pthread_cond_t work_, finished_;
  pthread_t* threads_ = nullptr;
  unsigned count_, alive_ = 0, turn_ = 0;
  unsigned active_ = 0;  // threads that run a unit, the launching ones among them: at most count_
  unsigned asleep_ = 0;
  std::atomic<uint64_t> ids_{0};
  std::atomic<uint32_t> calls_{0};  // to the threads that look for work
  bool stop_ = false;
  Job* jobs_ = nullptr;
};

Pool* create_pool(unsigned threads) {
  void* memory = calloc(1, sizeof(Pool));
  if (!memory) return nullptr;
  auto* pool = new (memory) Pool(threads == 0 ? 1 : threads);
  if (pool->start()) return pool;
  pool->~Pool();
  free(memory);
  return nullptr;
}
void destroy_pool(Pool* pool) {
  if (!pool) return;
  pool->~Pool();
  free(pool);
}

static bool refuse(Result* r, const char* kernel, const char* why) {
  r->outcome = Outcome::kIllegalInstruction;
  snprintf(r->text, sizeof r->text, "%s: %s", kernel, why);
  return false;
}

static bool prepare(Job* job, const Launch& l, Result* r) {
  Grid& g = job->grid;
  if (l.kernel >= l.module->kernels.size()) return refuse(r, "?", "no such kernel");
  g.launch = &l;
  g.clock_start = __rdtsc();
  g.module = l.module;
  g.kernel = l.module->kernels[l.kernel];
  g.memory = l.memory;
  const char* name = g.kernel->info.name;
  g.params = static_cast<const uint8_t*>(l.params);
  if (!g.params && g.kernel->info.param_bytes != 0)
    return refuse(r, name, "launched without parameters");
  uint64_t threads = 1, blocks = 1;
  for (int d = 0; d < 3; ++d) {
    if (l.grid[d] == 0 || l.block[d] == 0 || l.cluster[d] == 0)
      return refuse(r, name, "launched with a zero dimension");
    threads *= l.block[d];
    blocks *= l.grid[d];
    g.cluster[d] = l.cluster[d];
  }
  if (g.cluster[0] * g.cluster[1] * g.cluster[2] == 1 && g.kernel->cluster[0] != 0)
    memcpy(g.cluster, g.kernel->cluster, sizeof g.cluster);
  for (int d = 0; d < 3; ++d)
    if (l.grid[d] % g.cluster[d] != 0)
      return refuse(r, name, "launched with a grid that clusters do not divide");
  g.cluster_size = g.cluster[0] * g.cluster[1] * g.cluster[2];
  if (threads > 1024) return refuse(r, name, "launched with more than 1024 threads per block");
  if (g.cluster_size > 64) return refuse(r, name, "launched with clusters of more than 64 blocks");
  g.threads_per_block = (uint32_t)threads;
  g.warps_per_block = (uint32_t)(threads + kLanes - 1) / kLanes;
  g.shared_bytes = g.kernel->dynamic_offset + l.dynamic_shared_bytes;
  if (g.shared_bytes < g.kernel->static_shared) g.shared_bytes = g.kernel->static_shared;
  if (g.shared_bytes > 1u << 23) return refuse(r, name, "launched with too much shared memory");
  memset(g.workspace, 0, sizeof g.workspace);
  job->unit_count = blocks / g.cluster_size;
  uint64_t per_unit =
      (uint64_t)g.cluster_size *
      (g.shared_bytes + (g.kernel->uses_tensor_memory ? kTensorBytes : 0) +
       (uint64_t)g.warps_per_block * (g.kernel->function->reg_bytes + sizeof(Warp) +
                                      (uint64_t)g.kernel->function->local_bytes * kLanes));
  // As many as 132 multiprocessors of 2048 threads hold, if memory allows; never fewer than one per
  // multiprocessor.
  uint64_t limit = 132 * (2048 / (g.warps_per_block * kLanes));
  if (limit > 132 * 32) limit = 132 * 32;
  uint64_t memory_limit = kResidentBytes / (per_unit + 1);
  if (memory_limit < 132) memory_limit = 132;
  if (limit > memory_limit) limit = memory_limit;
  if (l.cooperative) limit = job->unit_count;
  job->resident_limit = (uint32_t)(limit < job->unit_count ? limit : job->unit_count);
  if (job->resident_limit == 0) job->resident_limit = 1;
  const WarpShape shape = warp_shape(l);
  g.shape = (uint32_t)shape;
  translate(*g.module, *g.kernel, shape);
  return true;
}

static Result run_grid(Pool* pool, const Launch& launch, Launches* launches) {
  Result result;
  Job job{};
  job.grid.launches = launches;
  if (prepare(&job, launch, &result)) result = pool->run(&job);
  return result;
}

Result run(Pool* pool, const Launch& launch) {
  Launches launches;
  Result result = run_grid(pool, launch, &launches);
  while (result.outcome == Outcome::kDone) {
    launches.collect();
    Launches::Work* work = launches.next();
    if (!work) break;
    if (work->kind == Launches::Kind::kGrid) {
      result = run_grid(pool, work->launch, &launches);
    } else if (!perform(*launch.memory, *work)) {
      result.outcome = Outcome::kIllegalAddress;
      result.address = work->to;
      snprintf(result.text, sizeof result.text,
               "a copy that a kernel asked for, of %llu bytes from 0x%llx to 0x%llx, is outside "
               "every allocation",
               (unsigned long long)work->bytes, (unsigned long long)work->from,
               (unsigned long long)work->to);
    }
    Launches::drop(work);
  }
  return result;
}

}  // namespace simgpu::ptx
