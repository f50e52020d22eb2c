#include <linux/aio_abi.h>
#include "feature.h"
int main(void) {
  aio_context_t context = 0;
  CHECK(syscall(SYS_io_setup, 16, &context) == 0);
  ready_and_wait();
  CHECK(syscall(SYS_io_destroy, context) == 0);
  return survived();
}
