#include "restore/pager/missing_pages.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "base/address.h"
#include "gpuckpt/wire.h"

namespace gpuckpt::restore {

using store::Status;

namespace {

constexpr uint64_t kBlock = 64 << 10;  // bytes that are read for one touch
// Bytes that are read at a time, so that a touch does not wait long.
constexpr uint64_t kSlice = 256 << 10;
constexpr uint64_t kNothing = ~0ull;  // a segment that is zero
constexpr int kSupplyMs = 10000;      // an event of the program can be in the way for a moment

void wake(int uffd, uint64_t address) {
  uffdio_range r{page_down(address), kPage};
  ioctl(uffd, UFFDIO_WAKE, &r);
}

}  // namespace

void MissingPages::add(int uffd, Fd pagemap, const std::vector<AddressRange>& ranges) {
  pagemap_ = std::move(pagemap);
  Space s{uffd, {}};
  for (const AddressRange& r : ranges) s.segments[r.start] = {r.end, r.start};
  spaces_.push_back(std::move(s));
}

auto MissingPages::Space::find(uint64_t address) const
    -> const std::pair<const uint64_t, Segment>* {
  auto it = segments.upper_bound(address);
  if (it == segments.begin() || (--it)->second.end <= address) return nullptr;
  return &*it;
}

uint64_t MissingPages::Space::source_of(const std::pair<const uint64_t, Segment>* segment,
                                        uint64_t address) {
  if (!segment || segment->second.from == kNothing) return kNothing;
  return segment->second.from + (address - segment->first);
}

auto MissingPages::Space::cut(uint64_t start, uint64_t end) -> std::map<uint64_t, Segment> {
  std::map<uint64_t, Segment> out;
  auto it = segments.upper_bound(start);
  if (it != segments.begin()) --it;
  while (it != segments.end() && it->first < end) {
    const uint64_t at = it->first;
    const Segment s = it->second;
    if (s.end <= start) {
      ++it;
      continue;
    }
    it = segments.erase(it);
    auto source = [&](uint64_t a) { return s.from == kNothing ? kNothing : s.from + (a - at); };
    if (at < start) segments[at] = {start, s.from};
    if (s.end > end) segments[end] = {s.end, source(end)};
    uint64_t a = std::max(at, start);
    out[a] = {std::min(s.end, end), source(a)};
  }
  return out;
}

// Pages that are there already stay as they are: the program may have written to them.
MissingPages::Put MissingPages::copy_in(int uffd, uint64_t to, const uint8_t* bytes,
                                        uint64_t length) {
  while (length) {
    uffdio_copy c{to, reinterpret_cast<uint64_t>(bytes), length, 0, 0};
    int r = ioctl(uffd, UFFDIO_COPY, &c);
    uint64_t done = length;
    if (r != 0) {
      if (c.copy > 0)
        done = static_cast<uint64_t>(c.copy);
      else if (errno == EEXIST)
        done = kPage;
      else if (errno == ENOENT || errno == EINVAL || errno == EFAULT)
        // The range is not one mapping (any more), so it is filled page by page.
        return length > kPage ? copy_pages(uffd, to, bytes, length) : Put::kDone;
      else
        return errno == ESRCH ? Put::kGone : errno == EAGAIN ? Put::kBusy : Put::kFailed;
    }
    to += done, bytes += done, length -= done;
  }
  return Put::kDone;
}

MissingPages::Put MissingPages::copy_pages(int uffd, uint64_t to, const uint8_t* bytes,
                                           uint64_t length) {
  for (uint64_t at = 0; at < length; at += kPage)
    if (Put r = copy_in(uffd, to + at, bytes + at, kPage); r != Put::kDone) return r;
  return Put::kDone;
}

// Delivers bytes of the snapshot to all address spaces that need them.
MissingPages::Put MissingPages::place_once(uint64_t from, const uint8_t* bytes, uint64_t length) {
  bool any = false;
  for (Space& s : spaces_) {
    if (s.gone) continue;
    any = true;
    for (const auto& [start, segment] : s.segments) {
      if (segment.from == kNothing) continue;
      uint64_t low = std::max(segment.from, from);
      uint64_t high = std::min(segment.from + (segment.end - start), from + length);
      if (low >= high) continue;
      Put r = copy_in(s.uffd, start + (low - segment.from), bytes + (low - from), high - low);
      if (r == Put::kGone) {
        s.gone = true;
        break;
      }
      if (r != Put::kDone) return r;
    }
  }
  return any ? Put::kDone : Put::kGone;
}

bool MissingPages::place(uint64_t from, const uint8_t* bytes, uint64_t length) {
  for (uint64_t done = 0; done < length;) {
    uint64_t n = std::min(length - done, kSlice);
    Put r;
    {
      std::lock_guard guard(mutex_);
      r = place_once(from + done, bytes + done, n);
    }
    if (r == Put::kFailed) failed_ = true;
    if (failed_ || r == Put::kGone) return false;
    if (r == Put::kDone)
      done += n;
    else
      usleep(50);  // an event waits to be read
  }
  return true;
}

// With the mutex.
void MissingPages::event(Space* s, const uffd_msg& m) {
  switch (m.event) {
    case UFFD_EVENT_FORK: {
      // The child lacks the same pages.
      Space child{static_cast<int>(m.arg.fork.ufd), s->segments};
      fcntl(child.uffd, F_SETFL, O_NONBLOCK);
      spaces_.push_back(std::move(child));
      break;
    }
    case UFFD_EVENT_REMAP: {
      auto moved = s->cut(m.arg.remap.from, m.arg.remap.from + m.arg.remap.len);
      s->cut(m.arg.remap.to, m.arg.remap.to + m.arg.remap.len);
      for (const auto& [at, segment] : moved) {
        uint64_t to = m.arg.remap.to + (at - m.arg.remap.from);
        s->segments[to] = {to + (segment.end - at), segment.from};
        if (released_) unregister(s->uffd, to, to + (segment.end - at));
      }
      break;
    }
    case UFFD_EVENT_REMOVE:
      s->cut(m.arg.remove.start, m.arg.remove.end);
      if (kernel_waits_) {
        s->segments[m.arg.remove.start] = {m.arg.remove.end, kNothing};
      } else {
        // Zeros that the kernel supplies itself, to its own accesses as well.
        unregister(s->uffd, m.arg.remove.start, m.arg.remove.end);
      }
      break;
    case UFFD_EVENT_UNMAP:
      s->cut(m.arg.remove.start, m.arg.remove.end);
      break;
    default:
      break;
  }
}

void MissingPages::take_messages(Space* s) {
  uffd_msg m;
  while (read(s->uffd, &m, sizeof(m)) == sizeof(m)) {
    if (m.event != UFFD_EVENT_PAGEFAULT) {
      event(s, m);
      continue;
    }
    const uint64_t address = page_down(m.arg.pagefault.address);
    touches_.push_back({s->uffd, address, s->source_of(s->find(address), address)});
  }
}

// PRECONDITION: the mutex is not held. The thread that touched the page is woken in any case: when
// the page is still missing, because an event came in between, it touches the page again.
void MissingPages::touched(int uffd, uint64_t address, uint64_t from) {
  auto e = from == kNothing ? data_.end() : extent_at(data_, from);
  if (e == data_.end() || e->address > from) {
    uffdio_zeropage zero{{address, kPage}, 0, 0};
    std::lock_guard guard(mutex_);
    ioctl(uffd, UFFDIO_ZEROPAGE, &zero);
  } else {
    uint64_t start = std::max(from & ~(kBlock - 1), e->address);
    uint64_t end = std::min((from & ~(kBlock - 1)) + kBlock, e->address + e->length);
    std::vector<uint8_t> bytes(end - start);
    if (!reader_.read(wire::kSpaceHost, start, bytes).ok()) {
      failed_ = true;
      return;
    }
    std::lock_guard guard(mutex_);
    if (place_once(start, bytes.data(), bytes.size()) == Put::kFailed) failed_ = true;
  }
  wake(uffd, address);
}

void MissingPages::serve() {
  for (;;) {
    std::vector<pollfd> ready;
    {
      std::lock_guard guard(mutex_);
      for (const Space& s : spaces_)
        if (!s.gone) ready.push_back({s.uffd, POLLIN, 0});
    }
    poll(ready.data(), ready.size(), 20);
    {
      std::lock_guard guard(mutex_);
      for (size_t i = spaces_.size(); i > 0; --i) {
        Space* s = &*std::next(spaces_.begin(), static_cast<long>(i) - 1);
        if (!s->gone) take_messages(s);
      }
    }
    for (const Touch& t : touches_) touched(t.uffd, t.address, t.from);
    touches_.clear();
  }
}

bool MissingPages::fill() {
  for (;;) {
    std::vector<Space*> filling;
    {
      std::lock_guard guard(mutex_);
      for (Space& s : spaces_)
        if (!s.filled && !s.gone) filling.push_back(&s);
    }
    if (filling.empty()) return true;
    Status status = reader_.read_all(wire::kSpaceHost, threads_,
                                     [this](uint64_t address, std::span<const uint8_t> bytes) {
                                       return place(address, bytes.data(), bytes.size());
                                     });
    if (failed_) return false;
    std::lock_guard guard(mutex_);
    const bool ended = std::all_of(spaces_.begin(), spaces_.end(), [](auto& s) { return s.gone; });
    if (ended) return true;
    if (!status.ok()) return false;
    for (Space* s : filling) s->filled = true;
  }
}

void MissingPages::unregister(int uffd, uint64_t start, uint64_t end) {
  uffdio_range range{start, end - start};
  ioctl(uffd, UFFDIO_UNREGISTER, &range);
}

void MissingPages::release() {
  std::lock_guard guard(mutex_);
  released_ = true;
  for (const Space& s : spaces_)
    for (const auto& [start, segment] : s.segments) unregister(s.uffd, start, segment.end);
}

bool MissingPages::is_there(uint64_t address) const {
  constexpr uint64_t kPresentOrSwapped = 3ull << 62;
  uint64_t entry = 0;
  return pread(pagemap_.get(), &entry, sizeof(entry), static_cast<off_t>(address / kPage * 8)) ==
             sizeof(entry) &&
         entry & kPresentOrSwapped;
}

bool MissingPages::supply(uint64_t start, uint64_t end) {
  Space& first = spaces_.front();
  int tries = 0;
  for (uint64_t page = page_down(start); page < end;) {
    uint64_t from = kNothing;
    {
      std::lock_guard guard(mutex_);
      const auto* segment = first.find(page);
      if (first.gone || released_) return true;
      if (!segment) {
        auto next = first.segments.upper_bound(page);
        if (next == first.segments.end() || next->first >= end) return true;
        page = next->first;
        continue;
      }
      from = first.source_of(segment, page);
    }
    if (is_there(page)) {
      page += kPage, tries = 0;
      continue;
    }
    touched(first.uffd, page, from);
    if (failed_ || tries > kSupplyMs * 10) return false;
    if (tries++) usleep(100);
  }
  return true;
}

}  // namespace gpuckpt::restore
