// A request of kernel AIO that is on its way, and would never complete after a restore.
#include <linux/aio_abi.h>
#include <sys/eventfd.h>
#include "feature.h"
int main(void) {
  aio_context_t context = 0;
  CHECK(syscall(SYS_io_setup, 16, &context) == 0);
  int event = eventfd(0, 0);
  struct iocb r = {.aio_data = 5,
                   .aio_fildes = (uint32_t)event,
                   .aio_lio_opcode = IOCB_CMD_POLL,
                   .aio_buf = 1},
              *list = &r;
  CHECK(syscall(SYS_io_submit, context, 1, &list) == 1);
  ready_and_wait();
  struct io_event e;
  struct timespec none = {0, 0}, patience = {20, 0};
  CHECK(syscall(SYS_io_getevents, context, 0, 1, &e, &none) == 0);
  CHECK(write(event, "1234567", 8) == 8);
  CHECK(syscall(SYS_io_getevents, context, 1, 1, &e, &patience) == 1 && e.data == 5 && e.res == 1);
  return survived();
}
