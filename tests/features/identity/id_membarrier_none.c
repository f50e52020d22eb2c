// A process without registrations for membarrier(2) has none after a restore: the calls that need one fail.
#include <linux/membarrier.h>
#include "feature.h"
static long barrier(int command) { return syscall(SYS_membarrier, command, 0, 0); }
int main(void) {
  CHECK(barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == -1 && errno == EPERM);
  ready_and_wait();
  CHECK(barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == -1 && errno == EPERM);
  CHECK(barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE) == -1 && errno == EPERM);
  CHECK(barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0 && barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0);
  return survived();
}
