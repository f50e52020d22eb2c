#include "snapshot/memory/track.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/address.h"
#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "base/text/log.h"
#include "base/text/text.h"
#include "gpuckpt/process_format.h"
#include "snapshot/api/device_plugin.h"
#include "snapshot/calls/fork_pause.h"

namespace gpuckpt {

// Tracking lasts from one snapshot to the next, so it belongs to the process.
constinit Tracker tracker;

namespace {

// linux/userfaultfd.h; older headers lack the newer ones.
constexpr unsigned long kUffdApi = 0xc018aa3f, kUffdRegister = 0xc020aa00;
constexpr uint64_t kApiVersion = 0xaa, kFeatureWp = 1 << 0, kFeatureWpAsync = 1 << 15,
                   kRegisterWp = 2;
constexpr int kUserModeOnly = 1;  // Linux 5.11; without it vm.unprivileged_userfaultfd decides
struct ApiArgument {
  uint64_t api, features, ioctls;
};
struct RegisterArgument {
  uint64_t start, length, mode, ioctls;
};

constexpr uint64_t kWorthOne =
    256 * 1024;  // less than this in a mapping is read faster than tracked
constexpr uint64_t kWorthAny = 8ull << 20;  // less than this in all: no descriptor, no faults
constexpr uint64_t kSparse = 1ull << 30;
constexpr int kHighFd = 1000;  // above what select and close-all loops of small programs use

// Written to after each clearing of the soft-dirty bits: has its bit until another process clears
// it.
alignas(kPage) volatile char canary[kPage];

bool canary_is_dirty(Pagemap* pagemap) {
  uint64_t at = reinterpret_cast<uint64_t>(&canary[0]);
  PageRegion region;
  return pagemap->scan(&at, at + kPage, {.any = kPageSoftDirty, .tell = kPageSoftDirty}, &region,
                       1) == 1;
}

// A new page is soft-dirty where the kernel keeps the bit, and the bit is not used elsewhere.
bool soft_dirty_works() {
  Pagemap pagemap;
  canary[0] = 1;
  const bool works = pagemap.open(Pagemap::Source::kWords) && canary_is_dirty(&pagemap);
  pagemap.close();
  return works;
}

bool has_driver_memory(const SmapsRange& r) {
  uint64_t until;
  return device_plugin &&
         (device_plugin->classify(r.start, r.end, &until) == DevicePlugin::Mapping::kSkip ||
          until < r.end);
}

// `all`: also what would not pay. Of memory in huge pages soft-dirty bits tell which huge ones were
// written; write protection would split them.
bool worth_tracking(const SmapsRange& r, bool all, bool by_words) {
  constexpr uint32_t never = process::kVmaGrowsDown | process::kVmaMergeable |
                             process::kVmaDroppable | process::kVmaWipeOnFork | kSmapsDevice |
                             kSmapsHugetlb | kSmapsMissing | kSmapsProtect;
  // One word for each page is read in the stop: not of a large reservation with little in it.
  if (by_words && r.end - r.start > kSparse && r.end - r.start > 16 * r.anonymous_bytes)
    return false;
  return !(r.flags & never) && !(r.permissions & (kSmapsShared | kSmapsFile)) &&
         (all || (r.anonymous_bytes >= kWorthOne &&
                  (by_words || r.huge_bytes * 2 <= r.anonymous_bytes))) &&
         !has_driver_memory(r);
}

}  // namespace

void DeviceRanges::add(uint64_t start, uint64_t end) {
  start = page_down(start), end = page_up(end);
  if (count_ && range_[count_ - 1].end == start) {
    range_[count_ - 1].end = end;
    return;
  }
  full_ |= count_ == kRoom;
  if (!full_) range_[count_++] = {start, end};
}

bool DeviceRanges::holds(uint64_t at, uint64_t* end) const {
  if (full_) return true;
  for (size_t i = 0; i < count_; ++i) {
    const Range& r = range_[i];
    if (r.start <= at && at < r.end) {
      if (r.end < *end) *end = r.end;
      return true;
    }
  }
  for (size_t i = 0; i < count_; ++i)
    if (range_[i].start > at && range_[i].start < *end) *end = range_[i].start;
  return false;
}

void Tracker::ask_device() {
  device_now_.clear();
  if (!device_plugin || !device_plugin->pinned) return;
  device_plugin->pinned(&device_now_, [](void* context, uint64_t start, uint64_t end) {
    static_cast<DeviceRanges*>(context)->add(start, end);
    return true;
  });
}

bool Tracker::device_writes(uint64_t at, uint64_t* end) const {
  uint64_t ends[2] = {*end, *end};
  const bool now = device_now_.holds(at, &ends[0]), before = device_at_base_.holds(at, &ends[1]);
  // Where one of the two says yes, the answer holds as far as that one's does; where neither does,
  // as far as both agree.
  if (now != before)
    *end = ends[now ? 0 : 1];
  else
    *end = ends[0] < ends[1] ? ends[0] : ends[1];
  return now || before;
}

const char* Tracker::mode_name() const {
  switch (mode_) {
    case TrackMode::kUffd:
      return "uffd";
    case TrackMode::kSoftDirty:
      return "soft-dirty";
    case TrackMode::kContent:
      break;
  }
  return "content";
}

void Tracker::configure(const char* value) {
  mode_ = TrackMode::kUffd;
  forced_ = false;
  if (!value || !*value || equal(value, "auto")) return;
  forced_ = true;
  if (equal(value, "soft-dirty")) {
    mode_ = TrackMode::kSoftDirty;
  } else if (equal(value, "content")) {
    mode_ = TrackMode::kContent;
  } else if (!equal(value, "uffd")) {
    forced_ = false;
    log_line(LogLevel::kWarn,
             "GPUCKPT_TRACK=%s is none of auto, uffd, soft-dirty, content; using auto", value);
  }
}

bool Tracker::alive() const {
  struct stat st;
  return fd_ >= 0 && !sys::failed(sys::call(SYS_fstat, fd_, sys::ptr(&st))) && st.st_dev == dev_ &&
         st.st_ino == ino_;
}

// Turns a new userfaultfd into one for `mode`, or, unless that was asked for, for the next best
// one. Returns 0 or -errno.
long Tracker::agree(int fd) {
  auto ask = [&](uint64_t features) {
    ApiArgument api{kApiVersion, features, 0};
    return sys::call(SYS_ioctl, fd, static_cast<long>(kUffdApi), sys::ptr(&api));
  };
  long error = -EINVAL;
  if (mode_ == TrackMode::kUffd) {
    error = ask(kFeatureWpAsync);
    if (!sys::failed(error) || forced_) return error;
  }
  if (!soft_dirty_works()) return error;
  error = ask(kFeatureWp);
  if (!sys::failed(error)) mode_ = TrackMode::kSoftDirty;
  return error;
}

// A new userfaultfd, and the best mode that it supports; -errno, and kContent, when there is none.
long Tracker::make() {
  long fd = sys::call(SYS_userfaultfd, O_CLOEXEC | kUserModeOnly);
  if (fd == -EINVAL) fd = sys::call(SYS_userfaultfd, O_CLOEXEC);
  long error = fd;
  if (!sys::failed(fd)) {
    error = agree(static_cast<int>(fd));
    if (!sys::failed(error)) return fd;
    sys::close(static_cast<int>(fd));
  }
  log_line(forced_ ? LogLevel::kWarn : LogLevel::kInfo,
           "written pages cannot be tracked here (%s: error %ld); comparing contents", mode_name(),
           -error);
  mode_ = TrackMode::kContent;
  return error;
}

bool Tracker::open() {
  if (alive()) return true;
  fd_ = -1;
  ForkPause pause;
  long fd = make();
  if (sys::failed(fd)) return false;
  uint64_t limit[2] = {1024, 1024};
  sys::call(SYS_prlimit64, 0, 7 /* RLIMIT_NOFILE */, 0, sys::ptr(limit));
  for (int wanted = kHighFd; wanted > 3; wanted /= 2) {
    if (static_cast<uint64_t>(wanted) >= limit[0]) continue;
    long high = sys::call(SYS_fcntl, fd, F_DUPFD_CLOEXEC, wanted);
    if (sys::failed(high)) continue;
    sys::close(static_cast<int>(fd));
    fd = high;
    break;
  }
  struct stat st;
  if (sys::failed(sys::call(SYS_fstat, fd, sys::ptr(&st)))) return false;
  fd_ = static_cast<int>(fd);
  dev_ = st.st_dev, ino_ = st.st_ino;
  return true;
}

bool Tracker::knows_since(const char* id) const {
  return mode_ != TrackMode::kContent && id[0] && equal(base_, id);
}

bool Tracker::prepare(Smaps* smaps, bool use_base) {
  tracked_bytes = armed_bytes = armed_us = 0;
  if (!asked_ && mode_ != TrackMode::kContent) {
    asked_ = true;
    ForkPause pause;
    if (const long fd = make(); !sys::failed(fd)) sys::close(static_cast<int>(fd));
  }
  if (mode_ == TrackMode::kContent) return false;
  uint64_t worth = 0;
  bool more = false;
  for (const SmapsRange& r : *smaps) {
    bool wanted = worth_tracking(r, forced_, !protects_ranges());
    if (wanted || (r.flags & kSmapsProtect)) worth += r.anonymous_bytes;
    more |= wanted;
  }
  if (worth < kWorthAny && !forced_) return false;
  const bool had = alive();
  if (!open()) return false;
  // Write protection without a descriptor of ours belongs to another user of userfaultfd.
  if (had && use_base)
    for (SmapsRange& r : *smaps)
      if (r.flags & kSmapsProtect) r.flags |= kSmapsTracked, tracked_bytes += r.end - r.start;
  return more;
}

void Tracker::register_memory(Smaps* smaps) {
  if (!alive()) return;
  LineReader lines("/proc/thread-self/maps", smaps->lines(), Smaps::kLines);
  MapsLine now;
  SmapsRange* r = smaps->begin();
  while (char* line = lines.next()) {
    if (!parse_maps_line(line, &now)) continue;
    while (r != smaps->end() && r->start < now.start) ++r;
    if (r == smaps->end()) break;
    if (r->start != now.start || r->end != now.end || now.object || now.shared) continue;
    if (!worth_tracking(*r, forced_, !protects_ranges())) continue;
    RegisterArgument argument{r->start, r->end - r->start, kRegisterWp, 0};
    // EBUSY: the application has a userfaultfd of its own there. It stays untracked.
    if (!sys::failed(
            sys::call(SYS_ioctl, fd_, static_cast<long>(kUffdRegister), sys::ptr(&argument))))
      r->flags |= kSmapsProtect;
  }
}

void Tracker::register_later(Smaps* smaps) {
  register_memory(smaps);
  if (mode_ == TrackMode::kSoftDirty) return;  // the bits of all memory were renewed in this stop
  // Little of it is armed in the next stop as it is read. The first time it is nearly everything:
  // better before that stop, without a base.
  unarmed_ = !tracked_bytes && !armed_bytes;
}

void Tracker::arm(Smaps* smaps, Pagemap* pagemap) {
  if (!protects_ranges() || fd_ < 0) return;
  uint64_t t0 = sys::now_us();
  for (const SmapsRange& r : *smaps) {
    if (!(r.flags & kSmapsProtect) || (r.flags & kSmapsTracked)) continue;
    give_up_base();
    armed_bytes += r.end - r.start;
    // Fails where the mapping went away meanwhile: then it is not tracked, and found to be so
    // later.
    pagemap->protect(
        r.start, r.end,
        {.all = kPageWritten, .any = kPagePresent | kPageSwapped, .tracked_only = true});
  }
  armed_us = sys::now_us() - t0;
}

bool Tracker::bits_are_ours(Pagemap* pagemap) const {
  return mode_ != TrackMode::kSoftDirty || canary_is_dirty(pagemap);
}

void Tracker::renew() {
  if (mode_ != TrackMode::kSoftDirty || fd_ < 0) return;
  const uint64_t t0 = sys::now_us();
  give_up_base();
  const int fd = sys::open("/proc/thread-self/clear_refs", O_WRONLY | O_CLOEXEC);
  const bool cleared = fd >= 0 && sys::write(fd, "4", 1) == 1;
  if (fd >= 0) sys::close(fd);
  unarmed_ = !cleared;
  canary[0] = 1;
  armed_us = sys::now_us() - t0;
}

void Tracker::set_base(const char* id) {
  copy(base_, sizeof(base_), mode_ == TrackMode::kContent || fd_ < 0 || unarmed_ ? "" : id);
  unarmed_ = false;
  device_at_base_ = device_now_;
}

void Tracker::forget_after_fork() {
  if (alive()) sys::close(fd_);
  forget_after_restore();
}

void Tracker::forget_after_restore() {
  fd_ = -1;
  base_[0] = 0;
  unarmed_ = false;
  device_now_.clear();
  device_at_base_.clear();
}

}  // namespace gpuckpt
