#include "restore/entry/entry_aio.h"

#include "base/descriptors/aio_dummies.h"
#include "base/syscall.h"

namespace gpuckpt {
namespace {

// Lets `n` requests complete, and reads their completions unless `stay`.
bool turn(AioRing* ring, AioDummies* dummies, uint32_t n, bool stay) {
  while (n) {
    const uint32_t got = dummies->complete(n);
    if (!got) return false;
    n -= got;
    if (!stay) ring->head = ring->tail.load();
  }
  return true;
}

}  // namespace

long restore_aio(const process::Aio& a, const char* events) {
  uint64_t context = 0;
  // The kernel makes room for twice as many requests and two more.
  const long made = sys::call(SYS_io_setup, (a.nr - 2) / 2, sys::ptr(&context));
  if (sys::failed(made)) return made;
  auto* ring = reinterpret_cast<AioRing*>(context);
  if (ring->nr != a.nr) return -7 /* E2BIG */;
  // The next completion must go to the position of the ring where it would have gone.
  AioDummies dummies(ring);
  if (!dummies.open() || !turn(ring, &dummies, a.head, false) ||
      !turn(ring, &dummies, a.unread, true) || ring->unread() != a.unread)
    return -5 /* EIO */;
  for (uint32_t i = 0, at = a.head; i < a.unread; ++i, at = ring->next(at))
    __builtin_memcpy(&ring->event[at], events + i * sizeof(io_event), sizeof(io_event));
  const long bytes = static_cast<long>(a.end - a.start);
  const long moved = sys::call(SYS_mremap, static_cast<long>(context), bytes, bytes,
                               3 /* MAYMOVE|FIXED */, static_cast<long>(a.start));
  return sys::failed(moved) ? moved : 0;
}

}  // namespace gpuckpt
