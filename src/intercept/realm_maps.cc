// What the driver mapped, sorted by address; and its reservations (PROT_NONE, anonymous), which a
// new generation gets at the same addresses: a request of equal length is answered with the next
// recorded one.
#include <errno.h>
#include <sys/mman.h>

#include "common/address.h"
#include "common/heap.h"
#include "intercept/realm_internal.h"

namespace gpuckpt::realm_maps {
namespace {

struct Piece {
  uint64_t begin, end;
};
struct Reservation {
  uint64_t begin, bytes;
  uint64_t hint;
};

constexpr size_t kMaxPieces = 1 << 17;
constexpr size_t kMaxReservations = 1 << 12;
constexpr uint64_t kReservationBytes = 1
                                       << 20;  // smaller PROT_NONE mappings are guards and the like

struct State {
  RealmLock lock;
  Piece* piece;
  size_t pieces;
  Reservation* now;  // of this generation
  size_t nows;
  Reservation* before;  // of the generation before, not yet claimed
  size_t befores;
};
constinit State s{};

bool ready() {
  if (s.piece) return true;
  Region p = region_map(kMaxPieces * sizeof(Piece));
  Region r = region_map(2 * kMaxReservations * sizeof(Reservation));
  if (!p || !r) return false;
  s.now = reinterpret_cast<Reservation*>(r.data());
  s.before = s.now + kMaxReservations;
  s.piece = reinterpret_cast<Piece*>(p.data());
  return true;
}

// First piece that ends behind `at`.
size_t find(uint64_t at) {
  size_t low = 0, high = s.pieces;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (s.piece[middle].end <= at)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

void insert_at(size_t i, Piece p) {
  if (s.pieces == kMaxPieces) return;
  for (size_t k = s.pieces++; k > i; k--) s.piece[k] = s.piece[k - 1];
  s.piece[i] = p;
}
void erase(size_t i, size_t count) {
  for (size_t k = i; k + count < s.pieces; k++) s.piece[k] = s.piece[k + count];
  s.pieces -= count;
}

void forget(uint64_t begin, uint64_t end) {
  size_t i = find(begin);
  if (i < s.pieces && s.piece[i].begin < begin) {
    Piece& p = s.piece[i];
    if (p.end > end) {
      Piece tail{end, p.end};
      p.end = begin;
      insert_at(i + 1, tail);
      return;
    }
    p.end = begin;
    i++;
  }
  size_t count = 0;
  while (i + count < s.pieces && s.piece[i + count].end <= end) count++;
  erase(i, count);
  if (i < s.pieces && s.piece[i].begin < end) s.piece[i].begin = end;
}

void remember(uint64_t begin, uint64_t end) {
  forget(begin, end);
  size_t i = find(begin);
  // Neighbours are joined: who mapped them is the same, and that is all the list is for.
  if (i && s.piece[i - 1].end == begin) {
    s.piece[i - 1].end = end;
    if (i < s.pieces && s.piece[i].begin == end) {
      s.piece[i - 1].end = s.piece[i].end;
      erase(i, 1);
    }
    return;
  }
  if (i < s.pieces && s.piece[i].begin == end) {
    s.piece[i].begin = begin;
    return;
  }
  insert_at(i, {begin, end});
}

bool any_left(const Reservation& r) {
  size_t i = find(r.begin);
  return i < s.pieces && s.piece[i].begin < r.begin + r.bytes;
}

void note_reservation(uint64_t at, uint64_t bytes, uint64_t hint) {
  if (s.nows == kMaxReservations) {  // drop those that are gone
    size_t kept = 0;
    for (size_t i = 0; i < s.nows; i++)
      if (any_left(s.now[i])) s.now[kept++] = s.now[i];
    s.nows = kept;
    if (kept == kMaxReservations) return;
  }
  s.now[s.nows++] = {at, bytes, hint};
}

// The recorded reservation for this request, taken off the list; false: none.
bool claim(uint64_t bytes, uint64_t hint, Reservation* out) {
  size_t best = s.befores;
  for (size_t i = 0; i < s.befores; i++) {
    if (s.before[i].bytes != bytes) continue;
    if (s.before[i].hint == hint) {
      best = i;
      break;
    }
    if (best == s.befores) best = i;
  }
  if (best == s.befores) return false;
  *out = s.before[best];
  for (size_t k = best; k + 1 < s.befores; k++) s.before[k] = s.before[k + 1];
  s.befores--;
  return true;
}

bool is_reservation(size_t bytes, int prot, int flags) {
  return prot == PROT_NONE && (flags & MAP_ANONYMOUS) && !(flags & (MAP_FIXED | MAP_SHARED)) &&
         bytes >= kReservationBytes;
}

void* fail(long r) {
  errno = static_cast<int>(-r);
  return MAP_FAILED;
}

}  // namespace

void* map(void* hint, size_t bytes, int prot, int flags, int fd, long offset) {
  const auto wanted = reinterpret_cast<uint64_t>(hint);
  const uint64_t size = page_up(bytes);
  RealmLocked locked(&s.lock);
  if (!ready()) return fail(-ENOMEM);
  Reservation old;
  if (is_reservation(size, prot, flags) && claim(size, wanted, &old)) {
    // Our own placeholder lies there, or nothing; never somebody else's memory (see rewind).
    long r = sys::mmap(old.begin, size, prot, (flags & ~MAP_FIXED_NOREPLACE) | MAP_FIXED, fd,
                       static_cast<uint64_t>(offset));
    if (!sys::failed(r)) {
      remember(old.begin, old.begin + size);
      note_reservation(old.begin, size, wanted);
      return reinterpret_cast<void*>(r);
    }
  }
  long r = sys::mmap(wanted, bytes, prot, flags, fd, static_cast<uint64_t>(offset));
  if (sys::failed(r)) return fail(r);
  remember(static_cast<uint64_t>(r), static_cast<uint64_t>(r) + size);
  if (is_reservation(size, prot, flags)) note_reservation(static_cast<uint64_t>(r), size, wanted);
  return reinterpret_cast<void*>(r);
}

int unmap(void* at, size_t bytes) {
  const auto begin = reinterpret_cast<uint64_t>(at);
  RealmLocked locked(&s.lock);
  long r = sys::munmap(begin, bytes);
  if (r != 0) {
    errno = static_cast<int>(-r);
    return -1;
  }
  if (ready()) forget(begin, begin + page_up(bytes));
  return 0;
}

void* remap(void* at, size_t old_bytes, size_t bytes, int flags, void* to) {
  const auto begin = reinterpret_cast<uint64_t>(at);
  RealmLocked locked(&s.lock);
  long r = sys::call(SYS_mremap, sys::ptr(at), static_cast<long>(old_bytes),
                     static_cast<long>(bytes), flags, sys::ptr(to));
  if (sys::failed(r)) return fail(r);
  if (ready()) {
    forget(begin, begin + page_up(old_bytes));
    remember(static_cast<uint64_t>(r), static_cast<uint64_t>(r) + page_up(bytes));
  }
  return reinterpret_cast<void*>(r);
}

int protect(void* at, size_t bytes, int prot) {
  long r = sys::call(SYS_mprotect, sys::ptr(at), static_cast<long>(bytes), prot);
  if (r == 0) return 0;
  errno = static_cast<int>(-r);
  return -1;
}

bool owns(uint64_t at, uint64_t bytes) {
  size_t i = find(at);
  return i < s.pieces && s.piece[i].begin < at + bytes;
}

void rewind() {
  s.lock.reset();
  if (!s.piece) return;
  // What is still there of a reservation gets a placeholder; a range somebody else has in the
  // meantime is not ours.
  size_t kept = 0;
  for (size_t i = 0; i < s.nows; i++) {
    const Reservation& r = s.now[i];
    if (!any_left(r)) continue;
    long at = sys::mmap(r.begin, r.bytes, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE);
    if (sys::failed(at)) continue;
    if (static_cast<uint64_t>(at) != r.begin) {
      sys::munmap(static_cast<uint64_t>(at), r.bytes);
      continue;
    }
    s.before[kept++] = r;
  }
  s.befores = kept;
  s.nows = 0;
  s.pieces = 0;
}

void release_placeholders() {
  RealmLocked locked(&s.lock);
  for (size_t i = 0; i < s.befores; i++) sys::munmap(s.before[i].begin, s.before[i].bytes);
  s.befores = 0;
}

void after_fork() { s.lock.reset(); }
bool quiet() { return !s.lock.held(); }

}  // namespace gpuckpt::realm_maps
