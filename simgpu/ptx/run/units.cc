#include "ptx/run/units.h"

#include "ptx/handlers/tensor_core.h"

#include <stdlib.h>
#include <string.h>

#include <new>

namespace simgpu::ptx {

namespace {

UnitShape shape_of(const Grid& g) {
  UnitShape s;
  s.blocks = g.cluster_size;
  s.warps = g.warps_per_block;
  s.registers = (g.kernel->function->reg_bytes + 127) & ~127u;
  s.shared = (g.shared_bytes + 127) & ~127u;
  s.tensor = g.kernel->uses_tensor_memory ? kTensorBytes : 0;
  memcpy(s.block, g.launch->block, sizeof s.block);
  return s;
}
bool same(const UnitShape& a, const UnitShape& b) {
  return a.blocks == b.blocks && a.warps == b.warps && a.registers == b.registers &&
         a.shared == b.shared && a.tensor == b.tensor &&
         memcmp(a.block, b.block, sizeof a.block) == 0;
}

constexpr size_t round_up(size_t n) { return (n + 127) & ~(size_t)127; }

Unit* make(const UnitShape& s) {
  const size_t block_bytes = round_up(sizeof(Block)), warp_bytes = round_up(sizeof(Warp));
  const size_t head = round_up(sizeof(Unit));
  const size_t total = head + s.blocks * (block_bytes + s.shared + s.tensor +
                                          s.warps * (warp_bytes + (size_t)s.registers));
  auto* memory = static_cast<uint8_t*>(aligned_alloc(128, total));
  if (!memory) return nullptr;
  auto* unit = new (memory) Unit();
  unit->shape = s;
  unit->bytes = total;
  unit->memory = memory;
  unit->block_count = s.blocks;
  uint8_t* p = memory + head;
  unit->blocks = reinterpret_cast<Block*>(p);
  for (uint32_t k = 0; k < s.blocks; ++k) new (&unit->blocks[k]) Block();
  p += s.blocks * block_bytes;
  for (uint32_t k = 0; k < s.blocks; ++k) {
    Block& b = unit->blocks[k];
    b.shared = p;
    p += s.shared;
    b.tensor = p;
    p += s.tensor;
    b.warps = reinterpret_cast<Warp*>(p);
    b.warp_count = s.warps;
    for (uint32_t w = 0; w < s.warps; ++w) {
      memset((void*)&b.warps[w], 0, sizeof(Warp));
      new (&b.warps[w]) Warp();
    }
    p += s.warps * warp_bytes;
    memset(p, 0, s.warps * (size_t)s.registers);
    for (uint32_t w = 0; w < s.warps; ++w, p += s.registers) b.warps[w].root.regs = p;
  }
  return unit;
}

void threads_of(const Grid& g, Warp& w, uint32_t id) {
  const uint32_t* size = g.launch->block;
  const uint32_t first = id * kLanes, left = g.threads_per_block - first;
  w.initial = left >= kLanes ? ~0u : (1u << left) - 1;
  uint32_t x = first % size[0], y = first / size[0] % size[1], z = first / size[0] / size[1];
  for (uint32_t l = 0; l < kLanes; ++l) {
    w.tid[0][l] = x;
    w.tid[1][l] = y;
    w.tid[2][l] = z;
    if (++x < size[0]) continue;
    x = 0;
    if (++y < size[1]) continue;
    y = 0;
    ++z;
  }
}

bool start_warp(const Grid& g, Block& b, Warp& w, uint32_t id) {
  w.block = &b;
  w.id = id;
  if (w.initial == 0) threads_of(g, w, id);  // storage of this shape used for the first time
  w.live = w.initial;
  w.done = false;
  w.ages = w.turns = w.spins = w.favoured = 0;
  w.waited = 0;
  w.cluster_phase = 0;
  w.clock = 0;
  memset(w.spin, 0, sizeof w.spin);
  const Function& f = *g.kernel->function;
  w.root.function = g.kernel->function;
  if (f.local_bytes != 0 && !reserve_local(w, f.local_bytes + 16)) return false;
  if (f.zero_registers) memset(w.root.regs, 0, f.reg_bytes);
  if (f.local_bytes != 0) memset(w.local, 0, (size_t)f.local_bytes * kLanes);
  w.root.lanes = w.live;
  w.root.local_top = f.local_bytes;
  w.groups[0] = Group{w.live, GroupState::kReady, 0, 0, f.code, &w.root};
  w.group_count = 1;
  return true;
}
void end_warp(Warp& w) {
  while (w.frames) {
    Frame* f = w.frames;
    w.frames = f->next;
    free(f);
  }
}

}  // namespace

bool start_unit(const Grid& g, Unit* unit, uint64_t index) {
  const uint32_t* grid = g.launch->grid;
  unit->grid = const_cast<Grid*>(&g);
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
    b.warps_done = 0;
    b.threads = g.threads_per_block;
    // Compilers load a whole vector of which they use a part (.pragma "used_bytes_mask").
    b.shared_bytes = (g.shared_bytes + 15) & ~15u;
    if (b.shared_bytes != 0) memset(b.shared, 0, b.shared_bytes);
    b.tensor_used = 0;
    for (; b.barriers_used != 0; b.barriers_used &= b.barriers_used - 1)
      b.barriers[__builtin_ctz(b.barriers_used)] = Barrier();
    for (uint32_t w = 0; w < b.warp_count; ++w) {
      Warp& warp = b.warps[w];
      if (!start_warp(g, b, warp, w)) return false;
    }
    unit->live_threads += g.threads_per_block;
  }
  return true;
}

void end_unit(Unit* unit) {
  for (uint32_t k = 0; k < unit->block_count; ++k)
    for (uint32_t w = 0; w < unit->blocks[k].warp_count; ++w) end_warp(unit->blocks[k].warps[w]);
}

UnitStore::~UnitStore() {
  for (Unit* u : kept_)
    if (u) destroy(u);
  pthread_mutex_destroy(&mutex_);
}

void UnitStore::destroy(Unit* u) {
  for (uint32_t k = 0; k < u->block_count; ++k)
    for (uint32_t w = 0; w < u->blocks[k].warp_count; ++w) free(u->blocks[k].warps[w].local);
  free(u->memory);
}

Unit* UnitStore::take(const Grid& g) {
  const UnitShape shape = shape_of(g);
  Unit* found = nullptr;
  pthread_mutex_lock(&mutex_);
  for (unsigned k = 0; k < kKept && kept_[k]; ++k) {
    if (!same(kept_[k]->shape, shape)) continue;
    found = kept_[k];
    for (; k + 1 < kKept && kept_[k + 1]; ++k) kept_[k] = kept_[k + 1];
    kept_[k] = nullptr;
    break;
  }
  pthread_mutex_unlock(&mutex_);
  return found ? found : make(shape);
}

void UnitStore::give(Unit* u) {
  size_t bytes = u->bytes;
  for (uint32_t k = 0; k < u->block_count; ++k)
    for (uint32_t w = 0; w < u->blocks[k].warp_count; ++w)
      bytes += (size_t)u->blocks[k].warps[w].local_bytes * kLanes;
  Unit* out = u;
  if (bytes <= kMostBytes) {
    pthread_mutex_lock(&mutex_);
    for (Unit*& place : kept_) {  // each one place further; the last one goes
      Unit* before = place;
      place = out;
      out = before;
      if (!out) break;
    }
    pthread_mutex_unlock(&mutex_);
  }
  if (out) destroy(out);
}

}  // namespace simgpu::ptx
