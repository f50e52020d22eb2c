#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "restore/descriptors/fd_maker.h"

namespace gpuckpt::restore {

using namespace process;

namespace {

int flags_of(const Descriptor& d) { return static_cast<int>(d.flags) & (O_ACCMODE | O_NONBLOCK); }

int make_anew(const Descriptor& d, const std::string& name) {
  mq_attr a{};
  a.mq_maxmsg = static_cast<long>(d.value[0]), a.mq_msgsize = static_cast<long>(d.value[1]);
  const mode_t mask = umask(0);
  const int fd = mq_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NONBLOCK, d.mode & 07777, &a);
  umask(mask);
  return fd;
}

}  // namespace

// Makes a queue that lost its name: under a temporary name, with its messages.
int FdMaker::make_nameless_queue(const Descriptor& d) {
  for (const auto& [o, path] : image_.fds)
    if (o.kind == kFdQueue && o.ino == d.ino && o.dev == d.dev && made_.count(o.description))
      return reopen(made_[o.description], flags_of(d));
  const std::string name = "/gpuckpt-" + std::to_string(getpid()) + "-" + std::to_string(d.ino);
  const int fd = make_anew(d, name);
  if (fd < 0) return fd;
  mq_unlink(name.c_str());
  for (const auto& [q, messages] : image_.queues) {
    if (q.ino != d.ino || q.dev != d.dev) continue;
    for (const Image::QueueMessage& m : messages)
      if (mq_send(fd, reinterpret_cast<const char*>(m.bytes.data()), m.bytes.size(), m.priority))
        return -1;
    break;  // another process of the job has made the same queue
  }
  const int out = reopen(fd, flags_of(d));
  close(fd);
  return out;
}

int FdMaker::make_queue(const Descriptor& d, const std::string& path) {
  if (d.value[2]) return make_nameless_queue(d);
  const std::string name = path.substr(path.rfind('/'));
  int fd = mq_open(name.c_str(), flags_of(d));
  mq_attr now{};
  if (fd >= 0 && mq_getattr(fd, &now) == 0 && static_cast<uint64_t>(now.mq_curmsgs) != d.value[3])
    warn("the message queue " + name + " holds " + std::to_string(now.mq_curmsgs) +
         " messages and held " + std::to_string(d.value[3]) +
         " at the snapshot, of which they are no part");
  if (fd >= 0 || errno != ENOENT) return fd;
  if (d.value[3]) {
    error = "the message queue " + name + " of descriptor " + std::to_string(d.fd) +
            " does not exist any more, and its messages are not part of a snapshot";
    return -1;
  }
  warn("the message queue " + name + ", which was empty, is made again");
  fd = make_anew(d, name);
  if (fd >= 0) close(fd);
  return fd < 0 ? fd : mq_open(name.c_str(), flags_of(d));
}

}  // namespace gpuckpt::restore
