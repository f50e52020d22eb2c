// Storage of running blocks, kept from launch to launch, because making it costs more than most
// small grids do.
#pragma once

#include <pthread.h>

#include "ptx/run/ir.h"

namespace simgpu::ptx {

class UnitStore {
 public:
  UnitStore() { pthread_mutex_init(&mutex_, nullptr); }
  ~UnitStore();
  // Storage for a unit of the grid; null: no memory.
  Unit* take(const Grid& g);
  void give(Unit* u);

 private:
  static constexpr unsigned kKept = 24;
  static constexpr size_t kMostBytes = 4 << 20;  // of one unit that is kept

  static void destroy(Unit* u);
  pthread_mutex_t mutex_;
  Unit* kept_[kKept] = {};  // the one given back last comes first
};

// Initialises unit `index` of the grid. False: there is no memory.
bool start_unit(const Grid& g, Unit* unit, uint64_t index);
void end_unit(Unit* unit);

}  // namespace simgpu::ptx
