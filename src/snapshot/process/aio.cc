#include "snapshot/process/aio.h"

#include "base/descriptors/aio_dummies.h"
#include "base/heap.h"
#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "base/text/text.h"
#include "gpuckpt/process_format.h"

namespace gpuckpt {

using namespace process;

namespace {

constexpr uint64_t kPatienceUs = 2000000;

uint32_t possible_processors() {
  char text[256];
  if (read_file("/sys/devices/system/cpu/possible", text, sizeof(text)) <= 0) return 1;
  uint32_t count = 0;
  for (const char* s = text; *s >= '0' && *s <= '9'; s += *s == ',') {
    const uint64_t first = scan_dec(&s), last = *s == '-' ? scan_dec(&++s) : first;
    count += static_cast<uint32_t>(last - first + 1);
  }
  return count;
}

// How many requests a ring of `nr` events has room for. The kernel gives it out in batches, of
// which the last would not be whole.
uint32_t room_for(uint32_t nr) {
  const uint32_t batch = (nr - 1) / (possible_processors() * 4);
  return batch ? nr - 1 - (nr - 1) % batch : nr - 1;
}

// One look at a context. Its ring turns once while we do so, by requests of ours, and then is as it
// was: a thread can have been stopped in the middle of reading it.
class AioLook {
 public:
  AioLook(AioRing* ring, io_event* list) : ring_(ring), list_(list), dummies_(ring) {}
  uint32_t count = 0;      // of what was unread, in `list`
  uint32_t in_flight = 0;  // requests of the program's

  bool run() {
    const uint32_t head = ring_->head, nr = ring_->nr;
    seen_ = head;
    if (!dummies_.open()) return false;
    collect();  // nothing that completed takes up room any more
    const uint32_t room = room_for(nr), held = dummies_.hold_all(), before = count;
    dummies_.let_go();
    bool whole = await(held);
    in_flight = room - held - (count - before);
    // The ring has turned when as many requests of ours have completed as it has events: requests
    // of the program's that complete meanwhile are in the list as well as in the ring. The last of
    // ours stay unread, in place of those in the list.
    const uint32_t kept = count;
    uint32_t left = (nr - held % nr) % nr;
    if (left < kept) left += nr;
    whole = whole && complete(left - kept) && complete_unread(kept);
    put_back();
    return whole && ring_->head == head;
  }

 private:
  // Reads what has completed.
  void collect() {
    note_real_ones();
    ring_->head = seen_;
  }
  void note_real_ones() {
    for (const uint32_t tail = ring_->tail; seen_ != tail; seen_ = ring_->next(seen_)) {
      const io_event& e = ring_->event[seen_];
      if (dummies_.is_ours(e))
        ++ours_;
      else if (count < ring_->nr)
        list_[count++] = e;
    }
  }
  // The list becomes what is unread. What completes from now on lies behind it.
  void put_back() {
    note_real_ones();
    const uint32_t nr = ring_->nr, head = (seen_ + nr - count % nr) % nr;
    for (uint32_t i = 0, at = head; i < count; ++i, at = ring_->next(at))
      ring_->event[at] = list_[i];
    ring_->head = head;
  }
  bool await(uint32_t n) {
    const uint64_t patience = sys::now_us() + kPatienceUs;
    for (collect(); ours_ < n; collect()) {
      if (sys::now_us() > patience) return false;
      sys::sleep_us(50);
    }
    ours_ -= n;
    return true;
  }
  bool complete(uint32_t n) {
    while (n) {
      const uint32_t got = dummies_.complete(n);
      if (!got || !await(got)) return false;
      n -= got;
    }
    return true;
  }
  // Without room for more that are unread, the program gets a little more room than it had.
  bool complete_unread(uint32_t n) {
    while (n) {
      const uint32_t got = dummies_.complete(n);
      if (!got) return collect(), complete(n);
      n -= got;
    }
    return true;
  }

  AioRing* ring_;
  io_event* list_;
  AioDummies dummies_;
  uint32_t seen_ = 0, ours_ = 0;
};

}  // namespace

bool capture_aio(Capture* c, Records* r, uint64_t start, uint64_t end) {
  auto* ring = reinterpret_cast<AioRing*>(start);
  if (!ring->sane(end - start))
    return c->refuse("the ring of an AIO context (io_setup) at %lx is damaged", start);
  Region memory = scratch_map(ring->nr * sizeof(io_event));
  if (!memory) return c->refuse("no memory for the completions of an AIO context");
  AioLook look(ring, reinterpret_cast<io_event*>(memory.data()));
  const bool known = look.run();
  if (known && !look.in_flight) {
    Aio a{start, end, ring->nr, ring->head, look.count, 0};
    r->begin(kRecAio, look.count);
    r->add(&a, sizeof(a));
    r->add(memory.data(), look.count * sizeof(io_event));
    r->end();
  }
  scratch_unmap(&memory);
  if (!known)
    return c->refuse_for_now("the requests of an AIO context (io_setup) at %lx do not complete",
                             start);
  return !look.in_flight ||
         c->refuse_for_now("%u requests of an AIO context (io_submit) are on their way",
                           look.in_flight);
}

}  // namespace gpuckpt
