// What the driver mapped; and its reservations (PROT_NONE, anonymous), which a new generation gets
// at the same addresses: rewind leaves placeholders there, and only a request that means one of
// them replaces it:
//   - without a wanted address (a hint does not count: drivers may choose it at random): the next
//   recorded reservation
//     of the same length;
//   - with MAP_FIXED_NOREPLACE: the wanted address, as if the placeholders were free memory.
// Drivers reserve more than they need and give back both ends, to align what is left. By now the
// program may have memory where those ends were. The request is answered with its old address all
// the same, and those parts of it are only promised (`promised`): giving one back is a note here,
// and one that is not given back must be free by the time the driver uses it or the replay ends.
#include <errno.h>
#include <sys/mman.h>

#include <initializer_list>

#include "base/address.h"
#include "base/heap.h"
#include "base/text/log.h"
#include "intercept/realm/realm_internal.h"

namespace gpuckpt::realm_maps {
namespace {

struct Piece {
  uint64_t begin, end;
};

// Disjoint ranges sorted by address; neighbours are joined.
class PieceList {
 public:
  void use(Piece* room, size_t count) {
    piece_ = room;
    room_ = count;
  }
  size_t size() const { return size_; }
  const Piece& operator[](size_t i) const { return piece_[i]; }
  void clear() { size_ = 0; }

  // First piece that ends behind `at`.
  size_t find(uint64_t at) const {
    size_t low = 0, high = size_;
    while (low < high) {
      size_t middle = (low + high) / 2;
      if (piece_[middle].end <= at)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }
  bool touches(uint64_t begin, uint64_t end) const {
    size_t i = find(begin);
    return i < size_ && piece_[i].begin < end;
  }

  void remove(uint64_t begin, uint64_t end) {
    size_t i = find(begin);
    if (i < size_ && piece_[i].begin < begin) {
      uint64_t old_end = piece_[i].end;
      piece_[i].end = begin;
      if (old_end > end) return insert(i + 1, {end, old_end});
      i++;
    }
    size_t count = 0;
    while (i + count < size_ && piece_[i + count].end <= end) count++;
    erase(i, count);
    if (i < size_ && piece_[i].begin < end) piece_[i].begin = end;
  }

  void add(uint64_t begin, uint64_t end) {
    remove(begin, end);
    size_t i = find(begin);
    if (i && piece_[i - 1].end == begin) {
      piece_[i - 1].end = end;
      if (i < size_ && piece_[i].begin == end) {
        piece_[i - 1].end = piece_[i].end;
        erase(i, 1);
      }
    } else if (i < size_ && piece_[i].begin == end) {
      piece_[i].begin = begin;
    } else {
      insert(i, {begin, end});
    }
  }

 private:
  void insert(size_t i, Piece p) {
    if (size_ == room_) return;
    for (size_t k = size_++; k > i; k--) piece_[k] = piece_[k - 1];
    piece_[i] = p;
  }
  void erase(size_t i, size_t count) {
    if (!count) return;
    for (size_t k = i; k + count < size_; k++) piece_[k] = piece_[k + count];
    size_ -= count;
  }

  Piece* piece_ = nullptr;
  size_t room_ = 0, size_ = 0;
};

struct Reservation {
  uint64_t begin, bytes;
  uint64_t kept_begin, kept_end;  // what is left after both ends were given back
  uint64_t end() const { return begin + bytes; }
};

constexpr size_t kMaxPieces = 1 << 17;
constexpr size_t kMaxReservations = 1 << 12;
constexpr uint64_t kReservationBytes = 1
                                       << 20;  // smaller PROT_NONE mappings are guards and the like
constexpr int kPlaceholder = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

struct State {
  Mutex lock;
  bool ready;
  PieceList mapped;        // the driver's, in this generation
  PieceList placeholders;  // ours, where the dead generation had reservations
  PieceList promised;      // parts of this generation's reservations that are not mapped
  Reservation* now;        // of this generation, in order
  size_t nows;
  Reservation* before;  // of the dead generation, in order, not yet claimed
  size_t befores;
};
constinit State s{};

bool ready() {
  if (s.ready) return true;
  Region p = region_map(3 * kMaxPieces * sizeof(Piece));
  Region r = region_map(2 * kMaxReservations * sizeof(Reservation));
  if (!p || !r) return false;
  auto* pieces = reinterpret_cast<Piece*>(p.data());
  s.mapped.use(pieces, kMaxPieces);
  s.placeholders.use(pieces + kMaxPieces, kMaxPieces);
  s.promised.use(pieces + 2 * kMaxPieces, kMaxPieces);
  s.now = reinterpret_cast<Reservation*>(r.data());
  s.before = s.now + kMaxReservations;
  return s.ready = true;
}

bool any_left(const Reservation& r) {
  return r.kept_begin < r.kept_end && s.mapped.touches(r.kept_begin, r.kept_end);
}

// The ends of a reservation are given back to align it. Something else, of the driver's or of the
// program's, may come to lie there: what was given back as a whole is no reservation any more, and
// the next generation's first request of that length means another one.
void note_given_back(uint64_t begin, uint64_t end) {
  size_t kept = 0;
  for (size_t i = 0; i < s.nows; i++) {
    Reservation& r = s.now[i];
    if (begin <= r.kept_begin && end > r.kept_begin) r.kept_begin = end;
    if (begin < r.kept_end && end >= r.kept_end) r.kept_end = begin;
    if (any_left(r)) s.now[kept++] = r;
  }
  s.nows = kept;
}

void note_reservation(uint64_t at, uint64_t bytes, bool again) {
  log_line(LogLevel::kDebug, "the driver reserves %lu bytes: 0x%lx%s", bytes, at,
           again ? ", as before" : "");
  if (s.nows == kMaxReservations) return;
  s.now[s.nows++] = {at, bytes, at, at + bytes};
}

void remember(uint64_t begin, uint64_t end) {
  s.mapped.add(begin, end);
  s.placeholders.remove(begin, end);
  s.promised.remove(begin, end);
}

// Calls f(begin, end) for each part of [begin, end) that is not only promised, until one fails.
template <typename F>
bool each_mapped_part(uint64_t begin, uint64_t end, F f) {
  while (begin < end) {
    const size_t i = s.promised.find(begin);
    const bool more = i < s.promised.size() && s.promised[i].begin < end;
    const uint64_t stop = more ? s.promised[i].begin : end;
    if (begin < stop && !f(begin, stop)) return false;
    begin = more ? s.promised[i].end : end;
  }
  return true;
}

bool placed_at(long r, uint64_t begin, uint64_t bytes) {
  if (sys::failed(r)) return false;
  if (static_cast<uint64_t>(r) == begin) return true;
  sys::munmap(static_cast<uint64_t>(r), bytes);  // a kernel that does not know MAP_FIXED_NOREPLACE
  return false;
}

// Is [begin, end) made of placeholders and free memory only? Then all of it is placeholders
// afterwards.
bool fill_with_placeholders(uint64_t begin, uint64_t end) {
  for (uint64_t at = begin; at < end;) {
    size_t i = s.placeholders.find(at);
    uint64_t next = i < s.placeholders.size() ? s.placeholders[i].begin : end;
    if (next <= at) {
      at = s.placeholders[i].end;
      continue;
    }
    uint64_t gap = (next < end ? next : end) - at;
    if (!placed_at(sys::mmap(at, gap, PROT_NONE, kPlaceholder | MAP_FIXED_NOREPLACE), at, gap))
      return false;
    s.placeholders.add(at, at + gap);
    at += gap;
  }
  return true;
}

void forget_before(size_t i) {
  for (size_t k = i; k + 1 < s.befores; k++) s.before[k] = s.before[k + 1];
  s.befores--;
}

// Placeholders over all of [begin, end) that is free; the rest is promised.
void fill_or_promise(uint64_t begin, uint64_t end) {
  for (uint64_t at = begin; at < end;) {
    size_t i = s.placeholders.find(at);
    const bool more = i < s.placeholders.size() && s.placeholders[i].begin < end;
    const uint64_t stop = more ? s.placeholders[i].begin : end;
    const uint64_t next = more ? s.placeholders[i].end : end;
    if (at < stop && !fill_with_placeholders(at, stop)) s.promised.add(at, stop);
    at = next;
  }
}

// The address of the oldest recorded reservation of this length; 0: none.
uint64_t claim(uint64_t bytes) {
  for (size_t i = 0; i < s.befores; i++) {
    if (s.before[i].bytes != bytes) continue;
    const Reservation r = s.before[i];
    forget_before(i);
    if (r.begin < r.kept_begin) s.promised.add(r.begin, r.kept_begin);
    if (r.kept_end < r.end()) s.promised.add(r.kept_end, r.end());
    fill_or_promise(r.kept_begin, r.kept_end);
    return r.begin;
  }
  return 0;
}

// Maps what was only promised of [begin, end). False: there is other memory by now.
bool keep_promises(uint64_t begin, uint64_t end) {
  for (;;) {
    const size_t i = s.promised.find(begin);
    if (i == s.promised.size() || s.promised[i].begin >= end) return true;
    const uint64_t from = s.promised[i].begin > begin ? s.promised[i].begin : begin;
    const uint64_t to = s.promised[i].end < end ? s.promised[i].end : end;
    if (!fill_with_placeholders(from, to)) return false;
    remember(from, to);
  }
}

// The place demanded, when what lies there are placeholders.
uint64_t claim_at(uint64_t begin, uint64_t bytes) {
  if (!s.placeholders.touches(begin, begin + bytes)) return 0;
  if (!fill_with_placeholders(begin, begin + bytes)) return 0;
  for (size_t i = 0; i < s.befores; i++) {
    if (s.before[i].begin == begin && s.before[i].bytes == bytes) {
      forget_before(i);
      break;
    }
  }
  return begin;
}

bool is_reservation(size_t bytes, int prot, int flags) {
  return prot == PROT_NONE && (flags & MAP_ANONYMOUS) && !(flags & (MAP_FIXED | MAP_SHARED)) &&
         bytes >= kReservationBytes;
}

// Where a request of the new generation must go because the dead one had it there; 0: anywhere.
uint64_t recorded_place(uint64_t wanted, uint64_t bytes, int prot, int flags) {
  if (!s.placeholders.size()) return 0;
  if (flags & MAP_FIXED_NOREPLACE) return claim_at(wanted, bytes);
  return is_reservation(bytes, prot, flags) ? claim(bytes) : 0;
}

void* fail(long r) {
  errno = static_cast<int>(-r);
  return MAP_FAILED;
}

void* reserve_at(uint64_t place, uint64_t bytes, int flags) {
  const bool done = each_mapped_part(place, place + bytes, [&](uint64_t begin, uint64_t end) {
    long r = sys::mmap(begin, end - begin, PROT_NONE, flags | MAP_FIXED, -1, 0);
    if (sys::failed(r)) return false;
    s.mapped.add(begin, end);
    s.placeholders.remove(begin, end);
    return true;
  });
  if (!done) return fail(-ENOMEM);
  note_reservation(place, bytes, true);
  return reinterpret_cast<void*>(place);
}

}  // namespace

void* map(void* hint, size_t bytes, int prot, int flags, int fd, long offset) {
  const auto wanted = reinterpret_cast<uint64_t>(hint);
  const uint64_t size = page_up(bytes);
  MutexLock locked(s.lock);
  if (!ready()) return fail(-ENOMEM);
  uint64_t place = recorded_place(wanted, size, prot, flags);
  if (place && is_reservation(size, prot, flags) && !(flags & MAP_FIXED_NOREPLACE))
    return reserve_at(place, size, flags);
  if ((flags & MAP_FIXED) && !keep_promises(wanted, wanted + size)) return fail(-ENOMEM);
  long r = place ? sys::mmap(place, size, prot, (flags & ~MAP_FIXED_NOREPLACE) | MAP_FIXED, fd,
                             static_cast<uint64_t>(offset))
                 : sys::mmap(wanted, bytes, prot, flags, fd, static_cast<uint64_t>(offset));
  if (sys::failed(r)) return fail(r);
  const auto at = static_cast<uint64_t>(r);
  remember(at, at + size);
  if (is_reservation(size, prot, flags)) note_reservation(at, size, place != 0);
  return reinterpret_cast<void*>(r);
}

int unmap(void* at, size_t bytes) {
  const auto begin = reinterpret_cast<uint64_t>(at);
  const uint64_t end = begin + page_up(bytes);
  MutexLock locked(s.lock);
  long r = 0;
  each_mapped_part(begin, end, [&](uint64_t from, uint64_t to) {
    r = sys::munmap(from, to - from);
    if (r == 0) s.placeholders.remove(from, to);
    return r == 0;
  });
  if (r != 0) {
    errno = static_cast<int>(-r);
    return -1;
  }
  if (!ready()) return 0;
  s.mapped.remove(begin, end);
  s.promised.remove(begin, end);
  note_given_back(begin, end);
  return 0;
}

void* remap(void* at, size_t old_bytes, size_t bytes, int flags, void* to) {
  const auto begin = reinterpret_cast<uint64_t>(at);
  MutexLock locked(s.lock);
  if (!ready()) return fail(-ENOMEM);
  long r = sys::call(SYS_mremap, sys::ptr(at), static_cast<long>(old_bytes),
                     static_cast<long>(bytes), flags, sys::ptr(to));
  if (sys::failed(r)) return fail(r);
  s.mapped.remove(begin, begin + page_up(old_bytes));
  remember(static_cast<uint64_t>(r), static_cast<uint64_t>(r) + page_up(bytes));
  return reinterpret_cast<void*>(r);
}

int protect(void* at, size_t bytes, int prot) {
  long r = sys::call(SYS_mprotect, sys::ptr(at), static_cast<long>(bytes), prot);
  if (r == 0) return 0;
  errno = static_cast<int>(-r);
  return -1;
}

namespace {
constexpr size_t kMaxAttached = 64;
constinit Piece g_attached[kMaxAttached] = {};
}  // namespace

void attached(void* at, size_t bytes) {
  const auto begin = reinterpret_cast<uint64_t>(at);
  MutexLock locked(s.lock);
  if (!ready()) return;
  remember(begin, begin + page_up(bytes));
  for (Piece& p : g_attached) {
    if (p.end) continue;
    p = {begin, begin + page_up(bytes)};
    break;
  }
}

void detached(const void* at) {
  MutexLock locked(s.lock);
  for (Piece& p : g_attached) {
    if (!p.end || p.begin != reinterpret_cast<uint64_t>(at)) continue;
    s.mapped.remove(p.begin, p.end);
    p = {};
    break;
  }
}

bool owns_first(uint64_t at, uint64_t end, uint64_t* until) {
  *until = end;
  for (const PieceList* list : {&s.mapped, &s.placeholders}) {
    const size_t i = list->find(at);
    if (i == list->size()) continue;
    const Piece& p = (*list)[i];
    const bool ours = p.begin <= at;
    const uint64_t border = ours ? p.end : p.begin;
    if (border < *until) *until = border;
    if (ours) return true;
  }
  return false;
}

bool owns(uint64_t at, uint64_t bytes) {
  uint64_t until;
  return owns_first(at, at + bytes, &until) || until < at + bytes;
}

namespace {

void block_what_is_left(const Reservation& r) {
  for (size_t k = s.mapped.find(r.kept_begin);
       k < s.mapped.size() && s.mapped[k].begin < r.kept_end; k++) {
    uint64_t from = s.mapped[k].begin > r.kept_begin ? s.mapped[k].begin : r.kept_begin;
    uint64_t to = s.mapped[k].end < r.kept_end ? s.mapped[k].end : r.kept_end;
    if (placed_at(sys::mmap(from, to - from, PROT_NONE, kPlaceholder | MAP_FIXED_NOREPLACE), from,
                  to - from)) {
      s.placeholders.add(from, to);
    }
  }
}

}  // namespace

// The restore has put inaccessible memory where the driver's mappings were (or nothing); either way
// the ranges are ours to decide about. What was a reservation stays blocked, the rest is given
// back.
void rewind() {
  s.lock.reset();
  if (!s.ready) return;
  s.promised.clear();
  release_placeholders();
  for (size_t i = 0; i < s.mapped.size(); i++)
    sys::munmap(s.mapped[i].begin, s.mapped[i].end - s.mapped[i].begin);
  size_t kept = 0;
  for (size_t i = 0; i < s.nows; i++) {
    if (!any_left(s.now[i])) continue;
    block_what_is_left(s.now[i]);
    s.before[kept++] = s.now[i];
  }
  s.befores = kept;
  s.nows = 0;
  s.mapped.clear();
  for (Piece& p : g_attached) p = {};
}

void expect_at(uint64_t address) {
  MutexLock locked(s.lock);
  for (size_t i = 0; i < s.befores; i++) {
    const auto found = s.before[i];
    if (address - found.begin >= found.bytes) continue;
    for (; i > 0; i--) s.before[i] = s.before[i - 1];
    s.before[0] = found;
    return;
  }
}

bool release_placeholders() {
  MutexLock locked(s.lock);
  for (size_t i = 0; i < s.placeholders.size(); i++) {
    sys::munmap(s.placeholders[i].begin, s.placeholders[i].end - s.placeholders[i].begin);
  }
  s.placeholders.clear();
  s.befores = 0;
  return keep_promises(0, ~0ull);
}

void after_fork() { s.lock.reset(); }
bool unlocked() { return !s.lock.held(); }

}  // namespace gpuckpt::realm_maps
