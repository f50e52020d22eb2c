// The driver's heap. One address range per process for all generations; memory is handed out
// upwards, freed blocks go to lists by size class and come back from there. A new generation
// forgets the lists and continues at higher addresses, so that a new pointer never equals an old
// one. No libc, no locks of libc.
//
// The exception are recorded calls (RealmRecording): a context's address is known to NVIDIA's
// runtime through tables that we never touch, so the new context has to come out there. Blocks
// taken in such a call are noted in order; when the call is repeated in a later generation, a
// request gets the first noted block of its size that is not taken yet. Sizes, not positions, are
// matched: drivers allocate a little more or less from run to run. What was freed meanwhile keeps
// its position only.
//
// What a dead generation has left stays, because the program may hold pointers into it. Of the
// generations after the first, big blocks are emptied: they are copies of code that a replay has
// loaded, which no program has a pointer into (names of functions are ours, hooks_module.cc), and a
// program that is restored again and again would grow by them each time.
#include <string.h>
#include <sys/mman.h>

#include "base/address.h"
#include "base/heap.h"
#include "intercept/gate/gate.h"
#include "intercept/realm/realm.h"
#include "intercept/realm/realm_internal.h"

namespace gpuckpt::realm_heap {
namespace {

// Before every block. An aligned block's header points back into the real one.
struct Header {
  uint32_t size_class : 8;
  uint32_t place : 24;  // 0: taken outside of recorded calls
  uint32_t back;     // bytes from the block to the start of the real block; 0: this is the real one
  uint64_t payload;  // bytes asked for, rounded up to 16
};
static_assert(sizeof(Header) == 16);
struct Free {
  Header header;
  Free* next;
};

// Sizes with header: multiples of 16 up to 128, then four steps per doubling.
constexpr uint32_t kSmall = 8;
constexpr uint32_t kClasses = kSmall + 1 + 4 * 34;

uint32_t class_of(uint64_t total) {
  if (total <= 128) return static_cast<uint32_t>((total + 15) / 16);
  uint32_t top =
      63 - static_cast<uint32_t>(__builtin_clzll(total - 1));  // 2^top < total <= 2^(top+1)
  uint64_t step = 1ull << (top - 2);
  uint64_t quarter = (total - (1ull << top) + step - 1) / step;  // 1..4
  return kSmall + (top - 7) * 4 + static_cast<uint32_t>(quarter);
}
uint64_t class_bytes(uint32_t c) {
  if (c <= kSmall) return c * 16ull;
  uint32_t top = 7 + (c - kSmall - 1) / 4, quarter = (c - kSmall - 1) % 4 + 1;
  return (1ull << top) + quarter * (1ull << (top - 2));
}

static_assert(kClasses < 256);

constexpr uint64_t kCommit = 4ull << 20;      // made readable at a time
constexpr uint64_t kGiveBack = 256ull << 10;  // freed blocks this big give their pages back
constexpr uint64_t kEmptied = 64ull << 10;    // blocks this big are emptied with their generation

// A block that a recorded call took.
struct Place {
  uint64_t at;  // its payload; 0: given back since, only the position counts
  uint64_t payload;
  uint32_t next;        // of the same recording; 0: the last
  uint32_t generation;  // in which it was last taken
};
constexpr uint32_t kPlaces = 1u << 18;   // with more than that nothing more is recorded
constexpr uint32_t kOutside = 1u << 14;  // blocks of tables' calls

struct State {
  Mutex lock;
  uint64_t begin, end;     // the reservation
  uint64_t at, committed;  // next address to hand out; accessible up to here
  uint64_t used;           // bytes in blocks that are alive
  Free* list[kClasses];
  uint32_t generation;
  Place* place;  // from 1 on
  uint32_t places;
  // Calls through private tables pass no door of ours: what they take in threads that we know.
  RealmPlaces outside;
  uint32_t outsides;
};
constinit State s{};
[[gnu::tls_model("initial-exec")]] constinit thread_local RealmPlaces* t_recording = nullptr;

bool reserve() {
  for (uint64_t base = kRealmHeapBase; base < kRealmHeapBase + (8ull << 40); base += 1ull << 40) {
    for (uint64_t size = 1ull << 40; size >= 1ull << 32; size >>= 2) {
      long r = sys::mmap(base, size, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE);
      if (sys::failed(r)) continue;
      if (static_cast<uint64_t>(r) != base) {  // a kernel that does not know MAP_FIXED_NOREPLACE
        sys::munmap(static_cast<uint64_t>(r), size);
        continue;
      }
      s.begin = s.at = s.committed = base;
      s.end = base + size;
      return true;
    }
  }
  return false;
}

bool commit(uint64_t up_to) {
  if (up_to <= s.committed) return true;
  uint64_t to = (up_to + kCommit - 1) & ~(kCommit - 1);
  if (to > s.end) return false;
  if (sys::call(SYS_mprotect, static_cast<long>(s.committed), static_cast<long>(to - s.committed),
                PROT_READ | PROT_WRITE) != 0) {
    return false;
  }
  s.committed = to;
  return true;
}

Header* header_of(const void* block) {
  return reinterpret_cast<Header*>(const_cast<void*>(block)) - 1;
}

// -- recording, with the lock held

bool make_places() {
  if (s.place) return s.places + 1 < kPlaces;
  // Between guards: beside a mapping of the driver the two would look like one.
  Region r = region_map(kPlaces * sizeof(Place));
  if (!r) return false;
  s.place = reinterpret_cast<Place*>(r.data());
  return true;
}

// What this thread takes now belongs to: a recorded call, a call of a private table, or nothing.
RealmPlaces* recording() {
  if (t_recording) return t_recording;
  const ThreadRecord* thread = this_thread_record();
  return thread && thread->depth == 0 && s.outsides < kOutside ? &s.outside : nullptr;
}

// The first place of that size which this generation has not taken yet; 0: none.
uint32_t untaken(RealmPlaces* in, uint64_t payload) {
  if (in->generation != s.generation) {
    in->generation = s.generation;
    in->from = in->first;
  }
  while (in->from && s.place[in->from].generation == s.generation)
    in->from = s.place[in->from].next;
  for (uint32_t i = in->from; i; i = s.place[i].next)
    if (s.place[i].payload == payload && s.place[i].generation != s.generation) return i;
  return 0;
}

uint32_t new_place(RealmPlaces* in, uint64_t payload) {
  if (!make_places()) return 0;
  uint32_t i = ++s.places;
  s.place[i] = {0, payload, 0, s.generation};
  (in->first ? s.place[in->last].next : in->first) = i;
  in->last = i;
  if (in == &s.outside) ++s.outsides;
  return i;
}

uint32_t place_for(RealmPlaces* in, uint64_t payload) {
  if (in == &s.outside) return new_place(in, payload);  // nothing repeats the calls of tables
  if (uint32_t i = untaken(in, payload)) return i;
  // The runtime may have asked for it through a table before the call that makes it now.
  if (uint32_t i = untaken(&s.outside, payload); i && s.place[i].at) return i;
  return new_place(in, payload);
}

// `fresh`: the memory was never used (zero).
void* take(uint64_t payload, bool* fresh) {
  *fresh = false;
  if (payload > 1ull << 38) return nullptr;
  payload = (payload + 15) & ~15ull;
  uint32_t c =
      class_of(payload + sizeof(Header) < sizeof(Free) ? sizeof(Free) : payload + sizeof(Header));
  MutexLock locked(s.lock);
  if (!s.begin && !reserve()) return nullptr;
  RealmPlaces* in = recording();
  uint32_t place = in ? place_for(in, payload) : 0;
  if (place && s.place[place].at) {  // of an older generation: the same block again
    s.place[place].generation = s.generation;
    s.used += class_bytes(c);
    Header* h = header_of(reinterpret_cast<void*>(s.place[place].at));
    *h = {c, place, 0, payload};
    return h + 1;
  }
  Header* h;
  if (Free* f = s.list[c]) {
    s.list[c] = f->next;
    h = &f->header;
  } else {
    uint64_t bytes = class_bytes(c);
    if (s.end - s.at < bytes || !commit(s.at + bytes)) return nullptr;
    h = reinterpret_cast<Header*>(s.at);
    s.at += bytes;
    *fresh = true;
  }
  s.used += class_bytes(c);
  *h = {c, place, 0, payload};
  if (place) {
    s.place[place].at = reinterpret_cast<uint64_t>(h + 1);
    s.place[place].generation = s.generation;
  }
  return h + 1;
}

}  // namespace

void* allocate(size_t bytes, size_t align) {
  bool fresh;
  if (align <= 16) return take(bytes, &fresh);
  if (align & (align - 1)) return nullptr;
  char* block = static_cast<char*>(take(bytes + align, &fresh));
  if (!block) return nullptr;
  auto at = (reinterpret_cast<uint64_t>(block) + align - 1) & ~(static_cast<uint64_t>(align) - 1);
  char* aligned = reinterpret_cast<char*>(at);
  if (aligned != block) {
    // The gap is at least 16 bytes: both are multiples of 16.
    auto back = static_cast<uint32_t>(aligned - block);
    *header_of(aligned) = {0, 0, back, header_of(block)->payload - back};
  }
  return aligned;
}

void* allocate_zeroed(size_t bytes) {
  bool fresh;
  void* block = take(bytes, &fresh);
  if (block && !fresh) memset(block, 0, header_of(block)->payload);
  return block;
}

namespace {

void give_pages_back(const Header* h) {
  uint64_t from = page_up(reinterpret_cast<uint64_t>(h) + sizeof(Free));
  uint64_t to = page_down(reinterpret_cast<uint64_t>(h) + class_bytes(h->size_class));
  if (to > from)
    sys::call(SYS_madvise, static_cast<long>(from), static_cast<long>(to - from), MADV_DONTNEED);
}

void empty_big_blocks() {
  for (uint64_t at = s.begin; at < s.at;) {
    const auto* h = reinterpret_cast<const Header*>(at);
    const uint64_t bytes = class_bytes(h->size_class);
    if (!bytes) return;  // a block that was being taken when the process was snapshotted
    if (bytes >= kEmptied) give_pages_back(h);
    at += bytes;
  }
}

}  // namespace

void release(void* block) {
  Header* h = header_of(block);
  if (h->back) h = header_of(static_cast<char*>(block) - h->back);
  uint64_t bytes = class_bytes(h->size_class);
  if (bytes >= kGiveBack) give_pages_back(h);
  auto* f = reinterpret_cast<Free*>(h);
  MutexLock locked(s.lock);
  uint32_t size_class = h->size_class;
  Place* place = h->place ? &s.place[h->place] : nullptr;
  bool taken_again = place && place->generation == s.generation;
  if (taken_again) place->at = 0;
  h->place = 0;
  // A block of a dead generation stays as it is: the application may keep a pointer into it.
  bool old = reinterpret_cast<uint64_t>(h) < s.begin;
  if (!old || taken_again) s.used -= bytes;
  if (old) return;
  f->next = s.list[size_class];
  s.list[size_class] = f;
}

size_t usable(const void* block) { return header_of(block)->payload; }

bool contains(const void* p) {
  auto at = reinterpret_cast<uint64_t>(p);
  return at >= kRealmHeapBase && at < s.at && s.begin != 0;
}

void new_generation() {
  if (!s.begin) return;
  if (s.generation) empty_big_blocks();
  s.begin = s.at = page_up(s.at);
  s.used = 0;
  s.generation++;
  for (Free*& f : s.list) f = nullptr;
  s.lock.reset();
}

void after_fork() { s.lock.reset(); }
bool unlocked() { return !s.lock.held(); }

}  // namespace gpuckpt::realm_heap

namespace gpuckpt {
uint64_t realm_heap_bytes() { return realm_heap::s.used; }
uint64_t realm_heap_high_water() {
  return realm_heap::s.at ? realm_heap::s.at - kRealmHeapBase : 0;
}
bool realm_heap_contains(const void* p) { return realm_heap::contains(p); }

RealmRecording::RealmRecording(RealmPlaces* places) : before_(realm_heap::t_recording) {
  realm_heap::t_recording = places;
}
RealmRecording::~RealmRecording() { realm_heap::t_recording = before_; }
}  // namespace gpuckpt
