// How fds.cc, fd_pipes.cc, fd_sockets.cc and fd_terminals.cc make descriptors together. Not for
// others.
//
// Order: what has two ends or a name is prepared as a whole; then one descriptor per open file
// description is made at a high number; then messages are sent, ends that were closed are closed,
// and everything moves to its place.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "restore/image.h"
#include "restore/plan_builder.h"

namespace gpuckpt::restore {

class FdMaker {
 public:
  FdMaker(const Image& image, const Memory& memory, int base, std::vector<std::string>* warnings)
      : image_(image), memory_(memory), base_(base), warnings_(warnings) {}
  // Everything is made first, or taken from what is there and completed; then it is put in place.
  bool make_all();
  bool take(const std::map<int, int>& made);
  bool make_missing();
  bool put_in_place();
  const std::map<int, int>& made() const { return made_; }
  std::string error;

 private:
  using Descriptor = process::Descriptor;
  using Socket = process::Socket;
  using Options = std::vector<process::SocketOption>;

  // fds.cc
  int make(const Descriptor&, const std::string& path);
  int make_file(const Descriptor&, const std::string& path);
  int make_removed_folder(const Descriptor&, const std::string& path);
  int make_timerfd(const Descriptor&);
  int make_inotify(const Descriptor&);
  int make_memory(const Descriptor&);
  void close_helpers();
  bool place();
  bool watch(int epoll, const std::vector<process::EpollEntry>&);
  int up(int fd);  // moves it to base or above
  int reopen(int fd, int flags);
  int inherit(int n);  // restore's own 0, 1 or 2
  int outside(const Descriptor&);
  bool fail(const std::string& what);  // with errno
  void warn(const std::string& text) { warnings_->push_back(text); }

  // fd_pipes.cc
  bool prepare_pipes();
  int make_pipe(const Descriptor&, const std::string& path);

  // fd_queues.cc
  int make_queue(const Descriptor&, const std::string& path);
  int make_nameless_queue(const Descriptor&);

  // fd_sockets.cc
  bool prepare_sockets();
  bool prepare_named(const Socket&, const Options&);
  bool prepare_pair(const Socket&);
  bool prepare_waiting();
  int make_reset(const Socket&);
  bool make_folder_of(const std::string& path);
  bool bind_any(int fd, const Socket&);
  bool attach_filter(int fd, const process::SocketFilter&, const std::vector<uint8_t>& program);
  bool bind_unix(int fd, const Socket&);
  bool bind_network(int fd, const Socket&);
  bool send_messages();
  bool send(const Image::Message&);
  int sender_of(const Image::Message&);

  // fd_terminals.cc
  bool prepare_terminals();
  int make_terminal(const Descriptor&);

  const Image& image_;
  const Memory& memory_;
  int base_;
  std::vector<std::string>* warnings_;
  std::map<int, int> made_;                       // description -> temporary number
  std::map<int, std::pair<int, int>> pipes_;      // index -> both ends, -1: given away
  std::map<int, int> fifos_;                      // index -> a helper that keeps it open
  std::map<int, std::string> removed_fifos_;      // index -> the name it has for now
  std::vector<int> sockets_;                      // by index, -1: none yet
  std::map<int, int> other_ends_;                 // socket -> the end that will be closed
  std::map<int, std::pair<int, int>> terminals_;  // index -> master, slave
};

// How a person finds a descriptor: "descriptor 7 (/tmp/x)".
std::string describe(const process::Descriptor&, const std::string& path);

}  // namespace gpuckpt::restore
