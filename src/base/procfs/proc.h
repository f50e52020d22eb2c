// What /proc says, read with raw calls and without allocation.
//
// Owner: the caller's buffers; a LineReader closes its file. Threads: any. Errors: -errno, false or
// an empty answer, never a message.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>

namespace gpuckpt {

// Whole small file into `to` (terminated); length or -errno.
long read_file(const char* path, char* to, size_t room);

// A folder of /proc that is kept open, because the way to it takes longer than most of what is
// asked there. Where no descriptor is free for it, each name is looked up from the root.
class ProcFolder {
 public:
  explicit constexpr ProcFolder(const char* path) : path_(path) {}
  void open();
  void close();
  bool is(int fd) const { return fd == folder_; }
  // Of a file that the kernel writes as a whole (fdinfo, status, syscall): its length or -errno.
  long read(const char* name, char* to, size_t room);
  // What stat(2) tells of what the name leads to; 0 or -errno.
  long look_at(const char* name, struct stat* to) const;
  // What a link leads to, terminated; its length or -errno.
  long read_link(const char* name, char* to, size_t room) const;

 private:
  const char* path_;
  int folder_ = -1;
};

// Lines of a file, one at a time, through a caller's buffer. Lines longer than the buffer are cut.
class LineReader {
 public:
  LineReader(const char* path, char* buffer, size_t room);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;
  bool ok() const { return fd_ >= 0; }
  // The next line without its newline, valid until the next call; null at the end.
  char* next();

 private:
  int fd_;
  char* buffer_;
  size_t room_, begin_ = 0, end_ = 0;
  bool eof_ = false;
};

// A device in one number, as snapshots and comparisons have it; not a dev_t.
constexpr uint64_t device_number(uint64_t major, uint64_t minor) { return major << 32 | minor; }

struct MapsLine {
  uint64_t start, end, offset, dev_major, dev_minor, ino;
  bool read, write, exec, shared;
  bool object;  // of a file or of shared memory (System V segments can have the inode number 0)
  const char* name;  // inside the line; "" for anonymous memory
  uint64_t device() const { return device_number(dev_major, dev_minor); }
};
bool parse_maps_line(const char* line, MapsLine* out);

// `text`: lines of the form "name: value", as in fdinfo and status. What follows `name` at the
// start of a line, without the blanks before it; null when there is no such line.
const char* info_line(const char* text, const char* name);
// The same; "0" when this kernel does not tell.
const char* status_field(const char* text, const char* name);

// Calls `each` for every decimal name in a folder like /proc/self/task or /proc/self/fd. `each`
// returns false to stop.
bool each_number_in(const char* folder, void* context, bool (*each)(void* context, int number));

// Is it one of the numbers of an open file like /proc/self/task/TID/children ("12 34 56 ")?
bool lists_number(int fd, int number);

// Has the process a handler for the signal? `ended` (may be null): there is no such process, or
// only what is left of it.
bool catches_signal(int pid, int signal, bool* ended);

// /proc/PID/stat, or the same of a thread.
struct ProcStat {
  // Numbers of fields, from proc(5).
  enum Field {
    kParent = 4,
    kGroup,
    kSession,
    kTerminal,
    kForeground,
    kFlags,
    kStartTime = 22,
    kExitCode = 52
  };
  char name[64];       // without its parentheses
  char state;          // 'Z': it has ended, and its parent has not waited for it
  uint64_t field[53];  // by number, from 4 on; negative ones as two's complement, missing ones 0

  int number(Field f) const { return static_cast<int>(field[f]); }
  bool ended() const { return state == 'Z' || state == 'X'; }
  // The number of the pseudo terminal that controls the process, + 1; 0: none does.
  int pseudo_terminal() const;
};
// Return false if there is no such process or thread. `path` is that of the stat file.
bool read_stat(const char* path, ProcStat* out);
bool read_stat_of(int pid, ProcStat* out);
bool read_stat_of_thread(int pid, int tid, ProcStat* out);

inline constexpr int64_t kClockTickNs = 10'000'000;  // sysconf(_SC_CLK_TCK) is 100 on x86-64

// When it was started, in clock ticks since the machine's start, by the machine's clock: the kernel
// tells it by that of the reader's time namespace, and a restored program has one of its own.
uint64_t start_time(const ProcStat&);
// The same; 0 when there is no such process.
uint64_t start_time_of(int pid);

}  // namespace gpuckpt
