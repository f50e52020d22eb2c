#include "ring.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "store/io/env.h"

namespace gpuckpt::writer {

using store::Status;

Status Ring::map(int fd) {
  struct stat st;
  if (fstat(fd, &st) != 0 || static_cast<uint64_t>(st.st_size) < wire::kRingBytes) {
    return Status::Error(
        "the ring is not as large as this writer expects (library and writer of different "
        "builds?)");
  }
  void* at = mmap(nullptr, wire::kRingBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) return store::io_error("map", "the ring", errno);
  base_ = static_cast<uint8_t*>(at);
  if (header()->magic != wire::kMagic || header()->version != wire::kWireVersion) {
    return Status::Error("library and writer are of different builds: reinstall gpuckpt");
  }
  return Status::Ok();
}

void Ring::free(uint32_t i) {
  header()->state[i].store(wire::kSlotFree, std::memory_order_release);
  wake();
}

void Ring::give_up() {
  if (!base_) return;
  header()->writer_dead = 1;
  wake();
}

void Ring::wake() {
  ++header()->freed;
  syscall(SYS_futex, &header()->freed, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace gpuckpt::writer
