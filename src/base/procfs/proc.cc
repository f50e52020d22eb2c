#include "base/procfs/proc.h"

#include <errno.h>
#include <fcntl.h>

#include "base/procfs/namespaces.h"
#include "base/syscall.h"
#include "base/text/text.h"

namespace gpuckpt {

long read_file(const char* path, char* to, size_t room) {
  int fd = sys::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fd;
  size_t n = 0;
  while (n + 1 < room) {
    long got = sys::read(fd, to + n, room - 1 - n);
    if (got <= 0) {
      if (got < 0 && !n) {
        sys::close(fd);
        return got;
      }
      break;
    }
    n += static_cast<size_t>(got);
  }
  sys::close(fd);
  to[n] = 0;
  return static_cast<long>(n);
}

void ProcFolder::open() {
  const int fd = sys::open(path_, O_PATH | O_DIRECTORY | O_CLOEXEC);
  folder_ = fd < 0 ? -1 : fd;
}

void ProcFolder::close() {
  if (folder_ >= 0) sys::close(folder_);
  folder_ = -1;
}

long ProcFolder::read(const char* name, char* to, size_t room) {
  char path[128];
  long fd = -EMFILE;
  if (folder_ >= 0) fd = sys::call(SYS_openat, folder_, sys::ptr(name), O_RDONLY | O_CLOEXEC);
  if (fd == -EMFILE) {
    close();  // its number is needed
    format(path, sizeof(path), "%s/%s", path_, name);
    fd = sys::open(path, O_RDONLY | O_CLOEXEC);
  }
  if (fd < 0) return fd;
  const long n = sys::read(static_cast<int>(fd), to, room - 1);
  sys::close(static_cast<int>(fd));
  to[n > 0 ? n : 0] = 0;
  return n;
}

long ProcFolder::look_at(const char* name, struct stat* to) const {
  char path[128];
  if (folder_ >= 0) return sys::call(SYS_newfstatat, folder_, sys::ptr(name), sys::ptr(to), 0);
  format(path, sizeof(path), "%s/%s", path_, name);
  return sys::call(SYS_newfstatat, AT_FDCWD, sys::ptr(path), sys::ptr(to), 0);
}

long ProcFolder::read_link(const char* name, char* to, size_t room) const {
  char path[128];
  format(path, sizeof(path), "%s/%s", path_, name);
  const long n =
      sys::call(SYS_readlinkat, folder_ < 0 ? AT_FDCWD : folder_,
                sys::ptr(folder_ < 0 ? path : name), sys::ptr(to), static_cast<long>(room - 1));
  to[n > 0 ? n : 0] = 0;
  return n;
}

LineReader::LineReader(const char* path, char* buffer, size_t room)
    : fd_(sys::open(path, O_RDONLY | O_CLOEXEC)), buffer_(buffer), room_(room) {}

LineReader::~LineReader() {
  if (fd_ >= 0) sys::close(fd_);
}

char* LineReader::next() {
  if (fd_ < 0) return nullptr;
  for (;;) {
    for (size_t i = begin_; i < end_; ++i)
      if (buffer_[i] == '\n') {
        buffer_[i] = 0;
        char* line = buffer_ + begin_;
        begin_ = i + 1;
        return line;
      }
    if (eof_ || (begin_ == 0 && end_ + 1 >= room_)) {
      if (begin_ == end_) return nullptr;
      buffer_[end_] = 0;
      char* line = buffer_ + begin_;
      begin_ = end_ = 0;
      return line;
    }
    if (begin_) {
      for (size_t i = begin_; i < end_; ++i) buffer_[i - begin_] = buffer_[i];
      end_ -= begin_;
      begin_ = 0;
    }
    long got = sys::read(fd_, buffer_ + end_, room_ - 1 - end_);
    if (got <= 0)
      eof_ = true;
    else
      end_ += static_cast<size_t>(got);
  }
}

bool parse_maps_line(const char* s, MapsLine* m) {
  m->start = scan_hex(&s);
  if (*s++ != '-') return false;
  m->end = scan_hex(&s);
  if (*s++ != ' ') return false;
  m->read = s[0] == 'r', m->write = s[1] == 'w', m->exec = s[2] == 'x', m->shared = s[3] == 's';
  s += 5;
  m->offset = scan_hex(&s);
  if (*s++ != ' ') return false;
  m->dev_major = scan_hex(&s);
  if (*s++ != ':') return false;
  m->dev_minor = scan_hex(&s);
  if (*s++ != ' ') return false;
  m->ino = scan_dec(&s);
  m->object = m->ino || m->dev_major || m->dev_minor;
  while (*s == ' ') ++s;
  m->name = s;
  return true;
}

bool lists_number(int fd, int number) {
  char buffer[1024];
  int so_far = 0;
  for (long n; (n = sys::read(fd, buffer, sizeof(buffer))) > 0;)
    for (long i = 0; i < n; ++i) {
      const bool digit = buffer[i] >= '0' && buffer[i] <= '9';
      if (!digit && so_far == number) return true;
      so_far = digit ? so_far * 10 + (buffer[i] - '0') : 0;
    }
  return so_far == number && number;
}

bool each_number_in(const char* folder, void* context, bool (*each)(void*, int)) {
  struct Entry {
    uint64_t ino;
    int64_t off;
    uint16_t reclen;
    uint8_t type;
    char name[];
  };
  int fd = sys::open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return false;
  alignas(8) char buffer[4096];
  // The descriptor of the folder itself is not reported; another process's has nothing of ours.
  const bool own = equal(folder, "/proc/self/fd") || equal(folder, "/proc/thread-self/fd");
  bool go = true;
  long n;
  while (go && (n = sys::call(SYS_getdents64, fd, sys::ptr(buffer), sizeof(buffer))) > 0)
    for (long i = 0; go && i < n;) {
      const Entry* e = reinterpret_cast<const Entry*>(buffer + i);
      i += e->reclen;
      if (e->name[0] < '0' || e->name[0] > '9') continue;
      const char* s = e->name;
      int number = static_cast<int>(scan_dec(&s));
      if (!own || number != fd) go = each(context, number);
    }
  sys::close(fd);
  return true;
}

const char* info_line(const char* text, const char* name) {
  for (const char* s = text; *s; ++s)
    if ((s == text || s[-1] == '\n') && starts_with(s, name)) {
      s += length(name);
      while (*s == ' ' || *s == '\t') ++s;
      return s;
    }
  return nullptr;
}

const char* status_field(const char* text, const char* name) {
  const char* value = info_line(text, name);
  return value ? value : "0";
}

bool catches_signal(int pid, int signal, bool* ended) {
  char path[40], text[4096];
  format(path, sizeof(path), "/proc/%d/status", pid);
  const long got = read_file(path, text, sizeof(text));
  if (got <= 0) {
    // A file that cannot be opened for another reason (no descriptor is free) tells nothing.
    if (ended) *ended = got == -ENOENT || got == -ESRCH;
    return false;
  }
  const char state = *status_field(text, "State:");
  const char* threads = status_field(text, "Threads:");
  // The first thread of a process can end before the others.
  if (ended) *ended = state == 'X' || (state == 'Z' && scan_dec(&threads) <= 1);
  const char* s = status_field(text, "SigCgt:");
  return scan_hex(&s) >> (signal - 1) & 1;
}

int ProcStat::pseudo_terminal() const {
  const uint64_t device = field[kTerminal], major = device >> 8 & 0xfff,
                 minor = (device & 0xff) | (device >> 12 & 0xfff00);
  constexpr uint64_t kFirst = 136, kLast = 143;  // UNIX98_PTY_SLAVE_MAJOR and its seven followers
  return major < kFirst || major > kLast ? 0 : static_cast<int>((major - kFirst) * 256 + minor + 1);
}

bool read_stat(const char* path, ProcStat* out) {
  char text[1024];  // small: callers run on stacks of one page
  if (read_file(path, text, sizeof(text)) <= 0) return false;
  const char *open = nullptr, *close = nullptr;  // a name may have parentheses and blanks itself
  for (const char* p = text; *p; ++p) {
    if (*p == '(' && !open) open = p;
    if (*p == ')') close = p;
  }
  if (!open || !close || close < open || close[1] != ' ' || !close[2]) return false;
  *out = {};
  size_t n = static_cast<size_t>(close - open - 1);
  if (n > sizeof(out->name) - 1) n = sizeof(out->name) - 1;
  __builtin_memcpy(out->name, open + 1, n);
  out->state = close[2];
  const char* s = close + 3;
  for (size_t i = 4; i < sizeof(out->field) / sizeof(out->field[0]) && *s == ' '; ++i)
    out->field[i] = static_cast<uint64_t>(scan_signed(&++s));
  return true;
}

bool read_stat_of(int pid, ProcStat* out) {
  char path[40];
  format(path, sizeof(path), "/proc/%d/stat", pid);
  return read_stat(path, out);
}

bool read_stat_of_thread(int pid, int tid, ProcStat* out) {
  char path[64];
  format(path, sizeof(path), "/proc/%d/task/%d/stat", pid, tid);
  return read_stat(path, out);
}

uint64_t start_time(const ProcStat& stat) {
  return stat.field[ProcStat::kStartTime] -
         static_cast<uint64_t>(clock_offsets().boottime / kClockTickNs);
}

uint64_t start_time_of(int pid) {
  ProcStat stat;
  return read_stat_of(pid, &stat) ? start_time(stat) : 0;
}

}  // namespace gpuckpt
