// Grids on CPU cores: units (blocks, or clusters of them) are handed to workers, time-sliced so
// that no block that waits for another can keep it from running. Small grids run on the thread that
// launches them.
//
// A unit runs until it is done, its time slice is used up, or every warp of it only polls memory.
// Then it goes to the end of its grid's waiting list. New units start first while fewer than
// `resident` are under way when the last one gave way because it polls; else old and new ones take
// turns, so that memory stays small for grids of long independent blocks.
//
// Kernels whose results depend on the order of their blocks (Function::depends_on_order) run one
// unit at a time: what they leave does not depend on the number of threads.
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <initializer_list>

#include "ir.h"

namespace simgpu::ptx {

namespace {

constexpr int64_t kWarpSlice =
    20000;  // instructions of a warp before the next warp of the block runs
constexpr int64_t kUnitSlice = 4000000;  // instructions of a unit before another unit runs
constexpr uint64_t kResidentBytes = 1ull << 30;
// Grids this small run on the caller's thread: to wake a worker costs more than they do. One that
// turns out to be long goes to the pool after a slice.
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
  bool failed = false, done = false;
  Result result;
};

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
    if (threads_ == nullptr) return false;
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
    if (small(*job) && run_here(job)) {
      release(job);
      return job->result;
    }
    pthread_mutex_lock(&mutex_);
    job->next = jobs_;
    jobs_ = job;
    pthread_cond_broadcast(&work_);
    while (!job->done) pthread_cond_wait(&finished_, &mutex_);
    for (Job** p = &jobs_; *p != nullptr; p = &(*p)->next)
      if (*p == job) {
        *p = job->next;
        break;
      }
    pthread_mutex_unlock(&mutex_);
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

  // Runs the grid's units one after the other, on a thread that is not the pool's. False when one
  // waits for others or takes long: the job, not yet known to the pool, is left in a state to go on
  // from.
  bool run_here(Job* job) {
    uint32_t before;
    asm volatile("stmxcsr %0" : "=m"(before));
    set_rounding();
    Ctx c;
    memset((void*)&c, 0, sizeof c);
    const int64_t slice = job->unit_count == 1 ? kUnitSlice : kSmallSlice;
    bool whole = true;
    while (whole && job->started < job->unit_count && !job->failed) {
      Unit* unit = job->spare;
      if (unit != nullptr) job->spare = unit->next;
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
  static UnitState begin(Ctx* c, Job* job, Unit** unit, uint64_t index, int64_t slice,
                         Result* result) {
    if (*unit == nullptr) *unit = make_unit(job);
    if (*unit != nullptr && start_unit(job, *unit, index))
      return run_unit(c, job, *unit, slice, result);
    result->outcome = Outcome::kTrap;
    snprintf(result->text, sizeof result->text, "%s: no memory to run a block",
             job->grid.kernel->info.name);
    if (*unit != nullptr) end_unit(*unit);
    return UnitState::kError;
  }

  static void* main(void* self) {
    static_cast<Pool*>(self)->work();
    return nullptr;
  }

  void work() {
    set_rounding();
    auto* c = static_cast<Ctx*>(aligned_alloc(64, (sizeof(Ctx) + 63) & ~(size_t)63));
    if (c == nullptr) return;
    memset((void*)c, 0, sizeof *c);
    pthread_mutex_lock(&mutex_);
    while (!stop_) {
      Job* job = nullptr;
      bool fresh = false;
      Unit* unit = take(&job, &fresh);
      if (unit == nullptr && job == nullptr) {
        pthread_cond_wait(&work_, &mutex_);
        continue;
      }
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
        state = begin(c, job, &unit, index, kUnitSlice, &result);
      else
        state = run_unit(c, job, unit, kUnitSlice, &result);
      pthread_mutex_lock(&mutex_);
      const bool ordered = job->grid.kernel->depends_on_order;
      finish_slice(job, unit, state, result);
      // This worker may take a unit of another grid next.
      if (ordered && jobs_->next != nullptr) pthread_cond_signal(&work_);
    }
    pthread_mutex_unlock(&mutex_);
    free(c);
  }

  // With the mutex held: what to run next. A new unit has *fresh set and may be null (no spare
  // storage).
  Unit* take(Job** job, bool* fresh) {
    unsigned n = 0;
    for (Job* j = jobs_; j != nullptr; j = j->next) ++n;
    if (n == 0) return nullptr;
    unsigned skip = turn_++ % n;
    for (unsigned k = 0; k < n; ++k) {
      Job* j = jobs_;
      for (unsigned s = (skip + k) % n; s > 0; --s) j = j->next;
      if (j->done || j->failed) continue;
      if (j->running != 0 && j->grid.kernel->depends_on_order) continue;
      bool can_start = j->started < j->unit_count && j->resident < j->resident_limit;
      if (can_start && (j->waiting == nullptr || j->polls > 0 || (j->turn++ & 3) == 3)) {
        *job = j;
        *fresh = true;
        ++j->resident;
        Unit* u = j->spare;
        if (u != nullptr) j->spare = u->next;
        return u;
      }
      if (j->waiting != nullptr) {
        Unit* u = j->waiting;
        j->waiting = u->next;
        if (j->waiting == nullptr) j->waiting_end = &j->waiting;
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
      if (job->running + 1 < job->resident) pthread_cond_signal(&work_);
    } else {
      job->polls = 0;
      --job->resident;
      ++job->finished;
      if (unit != nullptr) {
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

  static Unit* make_unit(Job* job) {
    const Grid& g = job->grid;
    const uint32_t blocks = g.cluster_size, warps = g.warps_per_block;
    const size_t registers = ((size_t)g.kernel->function->reg_bytes + 127) & ~(size_t)127;
    const size_t shared = ((size_t)g.shared_bytes + 127) & ~(size_t)127;
    const size_t block_bytes = (sizeof(Block) + 127) & ~(size_t)127,
                 warp_bytes = (sizeof(Warp) + 127) & ~(size_t)127;
    const size_t head = (sizeof(Unit) + 127) & ~(size_t)127;
    const size_t total = head + blocks * (block_bytes + shared + warps * (warp_bytes + registers));
    auto* memory = static_cast<uint8_t*>(aligned_alloc(128, total));
    if (memory == nullptr) return nullptr;
    memset(memory, 0, total);
    auto* unit = new (memory) Unit();
    unit->memory = memory;
    unit->block_count = blocks;
    uint8_t* p = memory + head;
    unit->blocks = reinterpret_cast<Block*>(p);
    for (uint32_t k = 0; k < blocks; ++k) new (&unit->blocks[k]) Block();
    p += blocks * block_bytes;
    for (uint32_t k = 0; k < blocks; ++k) {
      Block& b = unit->blocks[k];
      b.shared = p;
      p += shared;
      b.warps = reinterpret_cast<Warp*>(p);
      for (uint32_t w = 0; w < warps; ++w) new (&b.warps[w]) Warp();
      p += warps * warp_bytes;
      for (uint32_t w = 0; w < warps; ++w, p += registers) b.warps[w].root.regs = p;
    }
    return unit;
  }

  static bool start_unit(Job* job, Unit* unit, uint64_t index) {
    Grid& g = job->grid;
    const uint32_t* grid = g.launch->grid;
    unit->grid = &g;
    unit->blocks_done = 0;
    unit->live_threads = 0;
    unit->cluster_arrived = unit->cluster_phase = 0;
    const uint64_t cx = grid[0] / g.cluster[0], cy = grid[1] / g.cluster[1];
    const uint64_t at[3] = {index % cx, index / cx % cy, index / cx / cy};
    for (uint32_t k = 0; k < unit->block_count; ++k) {
      Block& b = unit->blocks[k];
      const uint32_t in[3] = {k % g.cluster[0], k / g.cluster[0] % g.cluster[1],
                              k / g.cluster[0] / g.cluster[1]};
      for (int d = 0; d < 3; ++d) b.ctaid[d] = (uint32_t)at[d] * g.cluster[d] + in[d];
      b.unit = unit;
      b.rank = k;
      b.slot = (uint32_t)(index * unit->block_count + k);
      b.warp_count = g.warps_per_block;
      b.warps_done = 0;
      b.threads = g.threads_per_block;
      b.shared_bytes = g.shared_bytes;
      if (g.shared_bytes != 0) memset(b.shared, 0, g.shared_bytes);
      for (Barrier& bar : b.barriers) bar = Barrier();
      for (uint32_t w = 0; w < b.warp_count; ++w) {
        Warp& warp = b.warps[w];
        warp.root.function = g.kernel->function;
        if (!start_warp(g, b, warp, w)) return false;
        unit->live_threads += (uint32_t)__builtin_popcount(warp.live);
      }
    }
    return true;
  }

  static void end_unit(Unit* unit) {
    for (uint32_t k = 0; k < unit->block_count; ++k)
      for (uint32_t w = 0; w < unit->blocks[k].warp_count; ++w) end_warp(unit->blocks[k].warps[w]);
  }

  static bool cancelled(const Grid& g, Result* result) {
    if (g.launch->cancel != nullptr && g.launch->cancel->load(std::memory_order_relaxed)) {
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
    for (Segment& s : c->cache)
      s = Segment{0, 0, nullptr, false};  // perhaps another context's memory
    c->epoch = g.memory->epoch.load(std::memory_order_acquire);
    int64_t left = slice;
    for (;;) {
      bool polled = true, ran = false;
      for (uint32_t k = 0; k < unit->block_count; ++k) {
        Block& b = unit->blocks[k];
        c->block = &b;
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

  static void release(Job* job) {
    for (Unit* list : {job->spare, job->waiting})
      while (list != nullptr) {
        Unit* u = list;
        list = u->next;
        end_unit(u);
        for (uint32_t k = 0; k < u->block_count; ++k)
          for (uint32_t w = 0; w < job->grid.warps_per_block; ++w)
            free(u->blocks[k].warps[w].local);
        free(u->memory);
      }
  }

  pthread_mutex_t mutex_;
  pthread_cond_t work_, finished_;
  pthread_t* threads_ = nullptr;
  unsigned count_, alive_ = 0, turn_ = 0;
  bool stop_ = false;
  Job* jobs_ = nullptr;
};

Pool* create_pool(unsigned threads) {
  void* memory = calloc(1, sizeof(Pool));
  if (memory == nullptr) return nullptr;
  auto* pool = new (memory) Pool(threads == 0 ? 1 : threads);
  if (pool->start()) return pool;
  pool->~Pool();
  free(memory);
  return nullptr;
}
void destroy_pool(Pool* pool) {
  if (pool == nullptr) return;
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
  g.module = l.module;
  g.kernel = l.module->kernels[l.kernel];
  g.memory = l.memory;
  const char* name = g.kernel->info.name;
  g.params = static_cast<const uint8_t*>(l.params);
  if (g.params == nullptr && g.kernel->info.param_bytes != 0)
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
  uint64_t per_unit = (uint64_t)g.cluster_size *
                      (g.shared_bytes + (uint64_t)g.warps_per_block *
                                            (g.kernel->function->reg_bytes + sizeof(Warp) +
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
  return true;
}

Result run(Pool* pool, const Launch& launch) {
  void* memory = aligned_alloc(64, (sizeof(Job) + 63) & ~(size_t)63);
  Result result;
  if (memory == nullptr) {
    result.outcome = Outcome::kTrap;
    snprintf(result.text, sizeof result.text, "no memory to launch");
    return result;
  }
  memset(memory, 0, sizeof(Job));
  auto* job = new (memory) Job();
  if (prepare(job, launch, &result)) result = pool->run(job);
  free(memory);
  return result;
}

}  // namespace simgpu::ptx
