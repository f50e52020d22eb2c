#include "snapshot/descriptors/epoll_edges.h"

#include <sys/epoll.h>

#include "base/heap.h"
#include "base/syscall.h"

namespace gpuckpt {
namespace {

using process::EpollEntry;
using process::kEpollReadiness;

struct PollFd {
  int fd;
  short events, revents;
};

bool is_armed(const EpollEntry& e) { return e.events & kEpollReadiness & ~(EPOLLERR | EPOLLHUP); }
bool is_edge(const EpollEntry& e) { return e.events & EPOLLET && is_armed(e); }
bool is_disarmed_by_report(const EpollEntry& e) {
  return is_armed(e) && e.events & (EPOLLET | EPOLLONESHOT);
}

// An exclusive entry cannot be armed again, and one that keeps the machine awake only by who may do
// that.
bool can_be_armed_again(const EpollEntry& e) {
  return !is_disarmed_by_report(e) || !(e.events & (EPOLLEXCLUSIVE | EPOLLWAKEUP));
}

// The entries of a set by what the program has given them to be told apart.
class ByData {
 public:
  ByData(EpollEntry* entries, uint32_t* slots, uint32_t slot_count)
      : entries_(entries), slots_(slots), mask_(slot_count - 1) {}
  // Returns false if another entry has the same.
  bool add(uint32_t i) {
    uint32_t* slot = slot_of(entries_[i].data);
    if (*slot) return false;
    *slot = i + 1;
    return true;
  }
  EpollEntry* find(uint64_t data) {
    const uint32_t i = *slot_of(data);
    return i ? &entries_[i - 1] : nullptr;
  }

 private:
  uint32_t* slot_of(uint64_t data) {
    uint64_t at = (data * 0x9e3779b97f4a7c15ull) >> 32;
    while (slots_[at & mask_] && entries_[slots_[at & mask_] - 1].data != data) ++at;
    return &slots_[at & mask_];
  }

  EpollEntry* entries_;
  uint32_t* slots_;
  uint32_t mask_;
};

}  // namespace

void note_reported_edges(int set, EpollEntry* entries, uint32_t count) {
  uint32_t edges = 0;
  for (uint32_t i = 0; i < count; ++i) {
    if (!can_be_armed_again(entries[i])) return;
    edges += is_edge(entries[i]);
  }
  if (!edges) return;
  uint32_t slot_count = 1;
  while (slot_count < 2 * count) slot_count *= 2;
  Region room =
      region_map(count * (sizeof(epoll_event) + sizeof(PollFd)) + slot_count * sizeof(uint32_t));
  if (!room) return;
  auto* slots = reinterpret_cast<uint32_t*>(room.data());
  auto* polled = reinterpret_cast<PollFd*>(slots + slot_count);
  auto* events = reinterpret_cast<epoll_event*>(polled + count);
  ByData by_data(entries, slots, slot_count);
  bool distinct = true;
  for (uint32_t i = 0; i < count && distinct; ++i) distinct = by_data.add(i);
  if (distinct) {
    constexpr uint32_t kToReport = ~0u;
    const long n = sys::call(SYS_epoll_pwait, set, sys::ptr(events), count, 0, 0, 8);
    for (long i = 0; i < n; ++i) {
      EpollEntry* e = by_data.find(events[i].data.u64);
      if (!e || !is_disarmed_by_report(*e)) continue;
      epoll_event again{};
      again.events = e->events, again.data.u64 = e->data;
      sys::call(SYS_epoll_ctl, set, EPOLL_CTL_MOD, e->fd, sys::ptr(&again));
      e->reported = kToReport;
    }
    uint32_t asked = 0;
    for (uint32_t i = 0; i < count; ++i)
      if (is_edge(entries[i]) && !entries[i].reported)
        polled[asked++] = {entries[i].fd, static_cast<short>(entries[i].events & kEpollReadiness),
                           0};
    sys::Timespec now{0, 0};
    const bool known =
        !sys::failed(sys::call(SYS_ppoll, sys::ptr(polled), asked, sys::ptr(&now), 0, 0));
    for (uint32_t i = 0, at = 0; i < count; ++i) {
      EpollEntry& e = entries[i];
      if (is_edge(e) && !e.reported && known)
        e.reported = static_cast<uint16_t>(polled[at++].revents) & kEpollReadiness;
      if (e.reported == kToReport) e.reported = 0;
    }
  }
  region_unmap(&room);
}

}  // namespace gpuckpt
