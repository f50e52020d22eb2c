// Registrations for membarrier(2): without them the calls fail, and runtimes take that for a bug.
#include <linux/membarrier.h>
#include "feature.h"
static long barrier(int command) { return syscall(SYS_membarrier, command, 0, 0); }
int main(void) {
  CHECK(barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0);
  CHECK(barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE) == 0);
  CHECK(barrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) == 0);
  ready_and_wait();
  CHECK(barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0);
  CHECK(barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE) == 0);
  CHECK(barrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED) == 0);
  return survived();
}
