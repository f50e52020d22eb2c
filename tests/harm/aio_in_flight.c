// Requests of kernel AIO complete all the time, also while a snapshot looks at their ring: each
// completion comes once, and no other.
#include <linux/aio_abi.h>
#include <poll.h>
#include <sys/timerfd.h>

#include "../features/feature.h"

enum { kRequests = 500 };

static aio_context_t context;
static struct iocb requests[kRequests], *list[kRequests];
static struct io_event events[kRequests];
static int timers[kRequests];
static uint64_t round_number;

static void submit_all(void) {
  memset(requests, 0, sizeof(requests));
  for (int i = 0; i < kRequests; ++i) {
    struct itimerspec soon = {{0, 0}, {0, 1 + rand() % 100000000}};
    CHECK(timerfd_settime(timers[i], 0, &soon, NULL) == 0);
    requests[i].aio_data = round_number * kRequests + (uint64_t)i;
    requests[i].aio_lio_opcode = IOCB_CMD_POLL;
    requests[i].aio_fildes = (uint32_t)timers[i];
    requests[i].aio_buf = POLLIN;
    list[i] = &requests[i];
  }
  for (long n = 0, r; n < kRequests; n += r) CHECK((r = syscall(SYS_io_submit, context, kRequests - n, list + n)) > 0);
}

static void take_all(void) {
  int seen[kRequests] = {0};
  for (int left = kRequests; left;) {
    long got = syscall(SYS_io_getevents, context, 1, left, events, NULL);
    if (got < 0 && errno == EINTR) continue;
    CHECK(got > 0);
    for (long i = 0; i < got; ++i) {
      const uint64_t request = events[i].data - round_number * kRequests;
      CHECK(request < kRequests && !seen[request]++ && events[i].res == POLLIN);
    }
    left -= (int)got;
  }
}

int main() {
  CHECK(syscall(SYS_io_setup, kRequests, &context) == 0);
  for (int i = 0; i < kRequests; ++i) CHECK((timers[i] = timerfd_create(CLOCK_MONOTONIC, 0)) >= 0);
  CHECK(write(1, "ready\n", 6) == 6);
  for (; access("go_on", F_OK) != 0; ++round_number) {
    submit_all();
    take_all();
  }
  return survived();
}
