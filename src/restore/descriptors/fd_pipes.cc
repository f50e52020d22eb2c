#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "restore/descriptors/fd_maker.h"
#include "restore/descriptors/fds.h"

namespace gpuckpt::restore {

using namespace process;

namespace {

// `payload`: the lengths of the packets, then the bytes.
bool fill(int fd, const Pipe& p, const std::vector<uint8_t>& payload) {
  const uint64_t head = uint64_t{p.packets} * 4;
  if (payload.size() != head + p.bytes) return false;
  const uint8_t* at = payload.data() + head;
  if (!p.packets) return !p.bytes || write(fd, at, p.bytes) == static_cast<ssize_t>(p.bytes);
  for (uint32_t i = 0; i < p.packets; ++i) {
    uint32_t n;
    memcpy(&n, payload.data() + i * 4, 4);
    if (at + n > payload.data() + payload.size() || write(fd, at, n) != static_cast<ssize_t>(n))
      return false;
    at += n;
  }
  return true;
}

}  // namespace

// A stale process of a killed job may have removed it.
bool FdMaker::make_fifo(const std::string& path, mode_t mode) {
  auto make = [&] { return mkfifo(path.c_str(), mode & 07777) == 0; };
  if (!make() && !(errno == ENOENT && make_folder_of(path) && make())) return false;
  chmod(path.c_str(), mode & 07777);
  warn(path + ", a named pipe of the program, was not there any more; it is made again");
  return true;
}

bool FdMaker::prepare_pipes() {
  for (const auto& [p, payload] : image_.pipes) {
    const int index = static_cast<int>(p.index);
    const std::string* name = nullptr;
    const Descriptor* fifo = nullptr;
    errno = 0;
    for (const auto& [d, path] : image_.fds)
      if (d.kind == kFdFifo && d.object == index) {
        name = &path;
        fifo = &d;
        if (!d.value[0]) continue;
        std::string& made = removed_fifos_[index];
        if (made.empty()) made = names_for_now().make(path, d.mode);
        name = &made;
      }
    if (name) {
      // Opening for both directions never blocks, and keeps what is written until the program's own
      // ends are open.
      int fd = up(open(name->c_str(), O_RDWR | O_NONBLOCK));
      if (fd < 0 && errno == ENOENT && make_fifo(*name, fifo->mode))
        fd = up(open(name->c_str(), O_RDWR | O_NONBLOCK));
      if (fd < 0) return fail("the named pipe " + *name + " cannot be opened");
      fifos_[index] = fd;
      fcntl(fd, F_SETPIPE_SZ, p.capacity);
      int queued = 0;
      // Another process may have kept the pipe open: then its contents are still there.
      if (ioctl(fd, FIONREAD, &queued) == 0 && !queued && !fill(fd, p, payload))
        return fail("the named pipe " + *name + " cannot be filled");
      continue;
    }
    if (p.ends & kPipeOutside) continue;
    int ends[2];
    if (pipe2(ends, p.packets ? O_DIRECT : 0) != 0) return fail("no pipe can be made");
    fcntl(ends[1], F_SETPIPE_SZ, p.capacity);
    fcntl(ends[1], F_SETFL, O_NONBLOCK | (p.packets ? O_DIRECT : 0));
    if (!fill(ends[1], p, payload))
      return fail("the contents of a pipe (" + std::to_string(p.bytes) +
                  " bytes) do not fit into one here");
    fcntl(ends[1], F_SETFL, 0);
    pipes_[index] = {up(ends[0]), up(ends[1])};
  }
  return true;
}

int FdMaker::make_pipe(const Descriptor& d, const std::string& path) {
  const int mode = static_cast<int>(d.flags) & O_ACCMODE;
  const int flags = static_cast<int>(d.flags) & (O_NONBLOCK | O_DIRECT | O_ASYNC);
  int fd;
  if (d.kind == kFdFifo) {
    auto removed = removed_fifos_.find(d.object);
    const std::string& name = removed == removed_fifos_.end() ? path : removed->second;
    fd = open(name.c_str(), mode | O_NONBLOCK);
  } else {
    auto it = pipes_.find(d.object);
    if (it == pipes_.end()) {  // the other end was outside of the job
      fd = outside(d);
      if (fd < 0) {
        error = describe(d, "") + " was a pipe to another process, which is not here";
        return -1;
      }
      return fd;
    }
    int& end = mode == O_WRONLY ? it->second.second : it->second.first;
    int& other = mode == O_WRONLY ? it->second.first : it->second.second;
    if (mode != O_RDWR && end >= 0) {
      fd = end;
      end = -1;
    } else {
      int name = end >= 0 ? end : other;  // either end names the pipe, also one already given away
      for (const auto& [o, p] : image_.fds)
        if (auto it = made_.find(o.description);
            name < 0 && o.kind == kFdPipe && o.object == d.object && it != made_.end())
          name = it->second;
      fd = reopen(name, mode | O_NONBLOCK);
    }
  }
  if (fd >= 0) fcntl(fd, F_SETFL, flags);
  return fd;
}

}  // namespace gpuckpt::restore
