#include "restore/supervisor/pager.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <list>
#include <map>
#include <mutex>
#include <thread>

#include "base/address.h"
#include "gpuckpt/wire.h"

#include "restore/preflight/plan_builder.h"

namespace gpuckpt::restore {

using store::Extent;
using store::SnapshotReader;
using store::Status;

namespace {

constexpr uint64_t kBlock = 64 << 10;  // bytes that are read for one touch
// Bytes that are read at a time, so that a touch does not wait long.
constexpr uint64_t kSlice = 256 << 10;
constexpr uint64_t kNothing = ~0ull;  // a segment that is zero

// One address space with missing pages: the program's, or that of a child that it forked since.
struct Space {
  // By start: missing [start, end) has the snapshot's bytes at `from` and behind.
  struct Segment {
    uint64_t end, from;
  };
  int uffd;
  std::map<uint64_t, Segment> segments;
  bool filled = false;  // only holes are missing
  bool gone = false;    // the process ended, or runs another program

  const std::pair<const uint64_t, Segment>* find(uint64_t address) const {
    auto it = segments.upper_bound(address);
    if (it == segments.begin() || (--it)->second.end <= address) return nullptr;
    return &*it;
  }
  // Removes [start, end) and returns it.
  std::map<uint64_t, Segment> cut(uint64_t start, uint64_t end) {
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
};

class Pager {
 public:
  Pager(const SnapshotReader& reader, std::vector<Extent> data, unsigned threads)
      : reader_(reader), data_(std::move(data)), threads_(threads) {}
  void add(int uffd, const std::vector<AddressRange>& ranges) {
    Space s{uffd, {}};
    for (const AddressRange& r : ranges) s.segments[r.start] = {r.end, r.start};
    spaces_.push_back(std::move(s));
  }
  // Runs until all pages are there. False: the pager cannot be made.
  bool run();

 private:
  enum class Put { kDone, kBusy, kGone, kFailed };
  Put copy_in(int uffd, uint64_t to, const uint8_t* bytes, uint64_t length);
  Put copy_pages(int uffd, uint64_t to, const uint8_t* bytes, uint64_t length);
  bool place(uint64_t from, const uint8_t* bytes, uint64_t length);
  Put place_once(uint64_t from, const uint8_t* bytes, uint64_t length);
  void serve();
  void take_messages(Space*);
  void touched(int uffd, uint64_t address, uint64_t from);
  void event(Space*, const uffd_msg&);

  const SnapshotReader& reader_;
  const std::vector<Extent> data_;
  const unsigned threads_;
  // Held while an event is read and noted, and while pages are looked up and copied in, so that no
  // copy uses a state from before an event.
  std::mutex mutex_;
  std::list<Space> spaces_;
  std::atomic<bool> failed_{false};
  struct Touch {
    int uffd;
    uint64_t address, from;
  };
  std::vector<Touch> touches_;
};

void wake(int uffd, uint64_t address) {
  uffdio_range r{page_down(address), kPage};
  ioctl(uffd, UFFDIO_WAKE, &r);
}

// Pages that are there already stay as they are: the program may have written to them.
Pager::Put Pager::copy_in(int uffd, uint64_t to, const uint8_t* bytes, uint64_t length) {
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

Pager::Put Pager::copy_pages(int uffd, uint64_t to, const uint8_t* bytes, uint64_t length) {
  for (uint64_t at = 0; at < length; at += kPage)
    if (Put r = copy_in(uffd, to + at, bytes + at, kPage); r != Put::kDone) return r;
  return Put::kDone;
}

// Delivers bytes of the snapshot to all address spaces that need them.
Pager::Put Pager::place_once(uint64_t from, const uint8_t* bytes, uint64_t length) {
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

bool Pager::place(uint64_t from, const uint8_t* bytes, uint64_t length) {
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
void Pager::event(Space* s, const uffd_msg& m) {
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
      }
      break;
    }
    case UFFD_EVENT_REMOVE:
      s->cut(m.arg.remove.start, m.arg.remove.end);
      s->segments[m.arg.remove.start] = {m.arg.remove.end, kNothing};
      break;
    case UFFD_EVENT_UNMAP:
      s->cut(m.arg.remove.start, m.arg.remove.end);
      break;
    default:
      break;
  }
}

void Pager::take_messages(Space* s) {
  uffd_msg m;
  while (read(s->uffd, &m, sizeof(m)) == sizeof(m)) {
    if (m.event != UFFD_EVENT_PAGEFAULT) {
      event(s, m);
      continue;
    }
    const uint64_t address = page_down(m.arg.pagefault.address);
    const auto* segment = s->find(address);
    uint64_t from = kNothing;
    if (segment && segment->second.from != kNothing)
      from = segment->second.from + (address - segment->first);
    touches_.push_back({s->uffd, address, from});
  }
}

// PRECONDITION: the mutex is not held. The thread that touched the page is woken in any case: when
// the page is still missing, because an event came in between, it touches the page again.
void Pager::touched(int uffd, uint64_t address, uint64_t from) {
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

// Handles touches and events for as long as the process lives.
void Pager::serve() {
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

// Ending closes all descriptors at once: until then missing pages are served, in the program and in
// its children.
bool Pager::run() {
  std::thread([this] { serve(); }).detach();
  // For tests, and for programs that need the disk for themselves at first.
  if (const char* delay = getenv("GPUCKPT_LAZY_DELAY_MS"))
    usleep(static_cast<useconds_t>(atoi(delay)) * 1000);
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
    if (failed_ || !status.ok()) return false;
    std::lock_guard guard(mutex_);
    for (Space* s : filling) s->filled = true;
  }
}

}  // namespace

Status start_pager(const SnapshotReader& reader, const std::vector<AddressRange>& ranges,
                   unsigned threads, const Fd& uffd, const std::vector<int>& others, pid_t* pager) {
  uffdio_api api{UFFD_API, kPagerFeatures, 0};
  if (ioctl(uffd.get(), UFFDIO_API, &api) != 0)
    return Status::Refused(errno == EPERM ? "userfaultfd that follows forks needs CAP_SYS_PTRACE"
                                          : "the kernel's userfaultfd cannot do it");
  fcntl(uffd.get(), F_SETFL, O_NONBLOCK);
  for (const AddressRange& r : ranges) {
    uffdio_register area{{r.start, r.end - r.start}, UFFDIO_REGISTER_MODE_MISSING, 0};
    if (ioctl(uffd.get(), UFFDIO_REGISTER, &area) == 0) continue;
    Status s = Status::Refused(std::string("memory cannot be registered: ") + strerror(errno));
    for (const AddressRange& done : ranges) {
      if (&done == &r) break;
      uffdio_range range{done.start, done.end - done.start};
      ioctl(uffd.get(), UFFDIO_UNREGISTER, &range);
    }
    return s;
  }
  std::vector<Extent> data = data_extents(reader);
  *pager = fork();
  if (*pager < 0) return Status::Error(std::string("no process for the pages: ") + strerror(errno));
  if (*pager > 0) return Status::Ok();

  prctl(PR_SET_NAME, "gpuckpt-pager");
  setsid();
  let_segments_go();
  for (int other : others) close(other);
  for (int sig = 1; sig <= 31; ++sig) signal(sig, SIG_IGN);
  int null = open("/dev/null", O_RDWR);
  for (int i = 0; i < 3; ++i) dup2(null, i);
  Pager p(reader, std::move(data), threads);
  p.add(uffd.get(), ranges);
  _exit(p.run() ? 0 : 1);
}

}  // namespace gpuckpt::restore
