// Kernel AIO: completions that were not read, where the ring stands after a while, a thread that
// waits for a completion, and that the context works afterwards as before.
#include <linux/aio_abi.h>
#include <sys/eventfd.h>
#include "feature.h"
static int file;
static char buffer[16];
static void submit(aio_context_t context, uint64_t name, size_t bytes) {
  struct iocb r = {.aio_data = name,
                   .aio_fildes = (uint32_t)file,
                   .aio_lio_opcode = IOCB_CMD_PREAD,
                   .aio_buf = (uint64_t)buffer,
                   .aio_nbytes = bytes},
              *list = &r;
  CHECK(syscall(SYS_io_submit, context, 1, &list) == 1);
}
static void expect(aio_context_t context, uint64_t name, int64_t bytes) {
  struct io_event e;
  struct timespec patience = {20, 0};
  CHECK(syscall(SYS_io_getevents, context, 1, 1, &e, &patience) == 1);
  CHECK(e.data == name && e.res == bytes);
}
static void* wait_for_one(void* context) {
  expect((aio_context_t)context, 99, 7);
  return NULL;
}
int main(void) {
  file = open("file", O_RDWR | O_CREAT, 0600);
  CHECK(file >= 0 && write(file, "0123456789", 10) == 10);
  aio_context_t used = 0, waited = 0, fresh = 0;
  CHECK(syscall(SYS_io_setup, 16, &used) == 0 && syscall(SYS_io_setup, 300, &waited) == 0);
  CHECK(syscall(SYS_io_setup, 1, &fresh) == 0);
  for (int i = 0; i < 1000; ++i) submit(used, (uint64_t)i, 5), expect(used, (uint64_t)i, 5);
  for (size_t i = 0; i < 5; ++i) submit(used, 2000 + i, i);
  pthread_t thread = start_thread(wait_for_one, (void*)waited);
  sleep_ms(50);
  ready_and_wait();
  submit(used, 3000, 8);
  for (size_t i = 0; i < 5; ++i) expect(used, 2000 + i, (int64_t)i);
  expect(used, 3000, 8);
  struct timespec none = {0, 0};
  struct io_event e;
  CHECK(syscall(SYS_io_getevents, used, 0, 1, &e, &none) == 0);
  for (int i = 0; i < 1000; ++i) submit(used, (uint64_t)i, 5), expect(used, (uint64_t)i, 5);
  submit(waited, 99, 7);
  CHECK(pthread_join(thread, NULL) == 0);
  // A request that stays on its way.
  int event = eventfd(0, 0);
  struct iocb r = {.aio_data = 5,
                   .aio_fildes = (uint32_t)event,
                   .aio_lio_opcode = IOCB_CMD_POLL,
                   .aio_buf = 1},
              *list = &r;
  CHECK(syscall(SYS_io_submit, fresh, 1, &list) == 1);
  CHECK(syscall(SYS_io_getevents, fresh, 0, 1, &e, &none) == 0 && write(event, "1234567", 8) == 8);
  expect(fresh, 5, 1);
  CHECK(syscall(SYS_io_destroy, used) == 0 && syscall(SYS_io_destroy, waited) == 0);
  CHECK(syscall(SYS_io_destroy, fresh) == 0);
  return survived();
}
