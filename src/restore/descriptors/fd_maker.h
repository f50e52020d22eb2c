// How fds.cc, fd_*.cc and socket_*.cc make descriptors together. For these files only.
//
// Order: pipes, sockets and terminals, which have two ends or a name, are prepared first. Then one
// descriptor per open file description is made at a high number. Then messages are sent, ends that
// were closed are closed, and every descriptor is moved to its own number.
//
// Owner: the caller; what is made are descriptors of the calling process. Threads: one. Errors:
// false, with a sentence in `error`.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "restore/descriptors/fds.h"
#include "restore/descriptors/tcp_reconnect.h"
#include "restore/files/removed_files.h"
#include "restore/image/image.h"
#include "restore/memory/memory_loader.h"

namespace gpuckpt::restore {

class ConnectionListeners;

class FdMaker {
 public:
  FdMaker(const Image& image, const Memory& memory, int base, const Warn& warn)
      : image_(image), memory_(memory), base_(base), warn_(warn) {}
  // Everything is made first, or taken from `made` and completed; then it is moved to its numbers.
  bool make_all();
  bool take(const std::map<int, int>& made);
  bool make_missing();
  bool put_in_place();
  const std::map<int, int>& made() const { return made_; }
  std::string error;

 private:
  using Descriptor = process::Descriptor;
  using Socket = process::Socket;

  // fds.cc
  int make(const Descriptor&, const std::string& path);
  int make_file(const Descriptor&, const std::string& path);
  int make_removed_folder(const Descriptor&);
  int make_removed_device(const Descriptor&, const std::string& path);
  NamesForNow& names_for_now();
  int make_removed_link(const Descriptor&, const std::string& path);
  std::string watched_name(const process::InotifyWatch&, const std::string& path) const;
  bool lock_in_flight();
  int make_timerfd(const Descriptor&);
  int make_epoll(const Descriptor&);
  int make_inotify(const Descriptor&);
  int make_memory(const Descriptor&);
  int make_ended_process_file(const Descriptor&, const std::string& path);
  int with_owner(const Descriptor&, int fd);
  static int with_write_hint(const Descriptor&, int fd);
  void close_helpers();
  bool place();
  bool watch(int epoll, const Descriptor& set, const std::vector<process::EpollEntry>&);
  bool is_ready_as_reported(const process::EpollEntry&) const;
  bool add_watch(int epoll, const Descriptor& set, const process::EpollEntry&, bool fired);
  int up(int fd);  // moves it to a number at or above base
  int reopen(int fd, int flags);
  int inherit(int n);  // restore's own 0, 1 or 2
  int outside(const Descriptor&);
  bool fail(const std::string& what);  // adds errno to the sentence
  void warn(const std::string& text) { warn_(text); }

  // fd_pipes.cc
  bool prepare_pipes();
  bool make_fifo(const std::string& path, mode_t mode);
  int make_pipe(const Descriptor&, const std::string& path);

  // fd_message_queues.cc
  int make_queue(const Descriptor&, const std::string& path);
  int make_nameless_queue(const Descriptor&);

  // fd_sockets.cc
  bool prepare_sockets();
  bool make_socket(const Image::Socket&);
  bool make_pair(const Image::Socket&);
  bool connect_pair(const Image::Socket&, const Image::Socket& listener);
  bool make_former_listeners();
  bool name_sockets();
  std::vector<const Image::Socket*> datagram_chain() const;
  bool connect_sockets();
  bool prepare_waiting();
  void check_options();
  const Image::Socket* listener_of(const Socket&) const;
  bool has_peer_in_image(const Socket&) const;

  // tcp_reconnect.cc
  void end_own_stale_connections();
  bool prepare_connections();
  void prepare_left_end(const Image::Socket&, ConnectionListeners*);
  bool prepare_not_accepted();
  void begin_connecting();
  bool send_stream(const Image::Message&);
  void finish_connections();
  int listen_for(const Image::Socket& server, bool told);
  static bool was_accepted(const Image::Socket&);
  int connect_from(const Image::Socket& client, const SocketAddress& server, bool tell);
  int connect_to_itself(const Image::Socket&);
  int connect_to_itself_at(const Image::Socket&, const SocketAddress&);
  bool connect_ends(const Image::Socket& client, const Image::Socket& server, int listener,
                    bool tell);

  // socket_names.cc
  // Returns false with errno set. With `another_would_do` the caller can use another name, so this
  // one is not waited for.
  bool bind_patiently(int fd, const Image::Socket&, bool another_would_do);
  bool name_socket(const Image::Socket&);
  bool bind_any(int fd, const Image::Socket&);
  bool bind_unix(int fd, const Image::Socket&);
  bool bind_network(int fd, const Image::Socket&);
  bool bind_aside(int fd, const Socket&);
  // Calls `body` in a place where the socket's name leads to it. False: body's result, with errno.
  bool at_name(const Image::Socket&, const std::function<bool()>& body);
  bool connect_by_name(int fd, const Image::Socket& to);
  void forget_asides();
  bool make_folder_of(const std::string& path);
  bool move_name(const char* path, const std::string& place);
  bool shares_port(const Socket&) const;

  // socket_messages.cc
  bool send_messages();
  bool send_unix(const Image::Message&);
  bool send_datagram(const Image::Message&);
  int sender_of(const Image::Message&);
  int make_sender(const Image::Message&, int type);
  bool attach_filters();
  void finish_pairs();
  void silence_sent_time_stamps();

  // fd_terminals.cc
  bool prepare_terminals();
  int make_terminal(const Descriptor&);

  const Image& image_;
  const Memory& memory_;
  int base_;
  const Warn& warn_;
  std::map<int, int> made_;                       // description -> temporary number
  std::set<int> common_;                          // descriptions that several processes have
  std::map<int, std::pair<int, int>> pipes_;      // index -> both ends, -1: given away
  std::map<int, int> fifos_;                      // index -> a helper that keeps it open
  std::map<int, std::string> removed_fifos_;      // index -> the name it has for now
  std::map<FileKey, std::string> removed_links_;  // the same
  std::unique_ptr<NamesForNow> names_;            // which are these; null: none so far
  std::vector<int> sockets_;                      // by index, -1: none yet
  std::set<size_t> given_away_;                   // sockets that a descriptor in made_ is
  std::deque<Image::Socket> former_listeners_;    // with indexes beyond the image's
  std::map<uint32_t, std::string> asides_;        // socket -> the root or folder of its name
  std::vector<std::string> names_to_remove_;
  std::map<uint32_t, uint32_t> lost_datagrams_;   // socket -> how many could not be put back
  std::map<int, int> other_ends_;                 // socket -> the end that will be closed
  std::map<uint32_t, uint32_t> connection_peer_;  // of TCP connections inside, both ways
  std::map<int, std::pair<int, int>> terminals_;  // index -> master, slave
};

// How a message names a descriptor: "descriptor 7 (/tmp/x)".
std::string describe(const process::Descriptor&, const std::string& path);

}  // namespace gpuckpt::restore
