#include "restore/descriptors/socket_names.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <netinet/in.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "restore/descriptors/fd_maker.h"
#include "restore/descriptors/socket_options.h"
#include "restore/descriptors/stale_connections.h"

namespace gpuckpt::restore {

using namespace process;

namespace {

// PyTorch's data loaders check every five seconds whether their parent lives.
constexpr int kTries = 40, kFewTries = 8;  // of 200 ms
// The time for which the kernel keeps a port for packets that may still arrive (TIME_WAIT).
constexpr int kStaleTries = 5 * 65;

bool has_path(const Socket& s) { return !file_name(s).empty(); }

uint16_t port_of(const Socket& s) { return static_cast<uint16_t>(s.name[2] << 8 | s.name[3]); }

bool has_name(const Socket& s) {
  if (is_network(s)) return s.name_bytes >= 4 && (port_of(s) || s.state == kSocketBound);
  if (s.domain == AF_UNIX) return s.name_bytes > 2;
  return s.state != kSocketFresh;
}

// Binding to an IPv6 address sets IPV6_V6ONLY permanently. A socket without that option got its
// address from connect, and gets it so again: only the port is bound.
sockaddr_storage address_to_bind(const Image::Socket& entry) {
  const Socket& s = entry.head;
  sockaddr_storage address{};
  memcpy(&address, s.name, std::min<size_t>(s.name_bytes, sizeof(address)));
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address);
  if (s.domain == AF_INET6 && s.type == SOCK_DGRAM && !IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) &&
      option_value(entry, IPPROTO_IPV6, IPV6_V6ONLY, 1) == 0)
    v6->sin6_addr = in6addr_any;
  return address;
}

// Runs `body` in a short-lived process with our descriptors. False: errno is that process's.
bool in_child(const std::function<bool()>& body) {
  const pid_t pid = fork();
  if (pid == 0) {
    errno = 0;
    _exit(body() ? 0 : errno ? errno : EIO);
  }
  int status = 0;
  while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (pid > 0) errno = WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
  return pid > 0 && errno == 0;
}

// Calls `body` with another working directory, or (`as_root`) another root folder: in this process,
// so that the kernel records its number, or in a short-lived one that makes a user namespace for
// it.
bool within(const std::string& folder, bool as_root, const std::function<bool()>& body) {
  Fd before(open(".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  Fd root(open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (as_root && chroot(folder.c_str()) != 0)
    return in_child([&] {
      return unshare(CLONE_NEWUSER) == 0 && chroot(folder.c_str()) == 0 && chdir("/") == 0 &&
             body();
    });
  const bool ok = chdir(as_root ? "/" : folder.c_str()) == 0 && body();
  const int why = errno;
  if (as_root && (fchdir(root.get()) != 0 || chroot(".") != 0)) return false;
  if (before && fchdir(before.get()) != 0) return false;
  errno = why;
  return ok;
}

// A relative name is resolved in its process's working directory.
bool in_its_folder(const Image::Socket& s, const std::function<bool()>& body) {
  if (s.folder.empty() || !has_path(s.head) || *path_of(s.head) == '/') return body();
  return within(s.folder, false, body);
}

bool connect_to_file(int fd, const Image::Socket& to) {
  if (to.moved_to.empty()) return connect(fd, as_address(to.head.name), to.head.name_bytes) == 0;
  sockaddr_un address{AF_UNIX, {}};
  memcpy(address.sun_path, to.moved_to.data(), to.moved_to.size());
  return connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

// Binds as with IP_FREEBIND, which is off before and after.
template <typename Bind>
bool bind_free(int fd, int domain, const Bind& bind_here) {
  const int level = domain == AF_INET6 ? IPPROTO_IPV6 : IPPROTO_IP;
  const int name = domain == AF_INET6 ? 78 /* IPV6_FREEBIND */ : IP_FREEBIND, on = 1, off = 0;
  setsockopt(fd, level, name, &on, sizeof(on));
  const bool bound = bind_here();
  const int why = errno;
  setsockopt(fd, level, name, &off, sizeof(off));
  errno = why;
  return bound;
}

}  // namespace

std::string shown(const Socket& s) {
  if (s.domain == AF_UNIX)
    return has_path(s) ? file_name(s)
                       : "@" + std::string(path_of(s) + 1, s.name_bytes > 3 ? s.name_bytes - 3 : 0);
  if (s.domain == AF_NETLINK) return "the address of a netlink socket";
  if (s.domain == AF_PACKET) return "the network interface of a packet socket";
  if (s.type == SOCK_RAW) return "the address of a raw socket";
  return (s.type == SOCK_STREAM ? "TCP port " : "UDP port ") + std::to_string(port_of(s));
}

// A name that leads to no file, or to another socket's, is bound below another root folder (a
// relative one: in another folder), or temporarily at its place.
bool FdMaker::at_name(const Image::Socket& entry, const std::function<bool()>& body) {
  const auto it = asides_.find(entry.head.index);
  if (it == asides_.end()) return in_its_folder(entry, body);
  return within(it->second, *path_of(entry.head) == '/', body);
}

bool FdMaker::connect_by_name(int fd, const Image::Socket& to) {
  return at_name(to, [&] { return connect_to_file(fd, to); });
}

void FdMaker::forget_asides() {
  std::error_code error;
  for (const auto& [index, folder] : asides_) std::filesystem::remove_all(folder, error);
  for (const std::string& name : names_to_remove_) unlink(name.c_str());
}

// Children of the killed program may have removed it, as Python's do.
bool FdMaker::make_folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos || slash == 0) return false;
  const std::string folder = path.substr(0, slash);
  if (mkdir(folder.c_str(), 0700) != 0 &&
      !(errno == ENOENT && make_folder_of(folder) && mkdir(folder.c_str(), 0700) == 0))
    return false;
  warn(folder +
       ", in which the program had a socket or a named pipe, was not there any more; it is made "
       "again");
  return true;
}

namespace {

// The socket file of the killed program still exists. A name at which a process answers is left
// alone.
void remove_dead(const char* path, int type, const std::function<bool(int)>& connects) {
  struct stat st;
  if (lstat(path, &st) != 0 || !S_ISSOCK(st.st_mode)) return;
  Fd probe(socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!connects(probe.get()) && errno == ECONNREFUSED) unlink(path);
}

}  // namespace

// Moves a socket's file to where the program moved it, unless something else lies there.
bool FdMaker::move_name(const char* path, const std::string& place) {
  struct stat st;
  const auto move = [&] { return rename(path, place.c_str()) == 0; };
  const bool is_free = lstat(place.c_str(), &st) != 0;
  if (is_free && (move() || (errno == ENOENT && make_folder_of(place) && move()))) return true;
  const int why = is_free ? errno : EADDRINUSE;
  unlink(path);
  errno = why;
  return false;
}

bool FdMaker::bind_unix(int fd, const Image::Socket& entry) {
  const Socket& s = entry.head;
  const char* path = path_of(s);
  const auto bind_here = [&] { return bind(fd, as_address(s.name), s.name_bytes) == 0; };
  if (!*path) return bind_here();
  remove_dead(path, s.type,
              [&](int probe) { return connect(probe, as_address(s.name), s.name_bytes) == 0; });
  const bool moved = !entry.moved_to.empty();
  const char* place = moved ? entry.moved_to.c_str() : path;
  if (moved) remove_dead(place, s.type, [&](int probe) { return connect_to_file(probe, entry); });
  if (!bind_here() && !(errno == ENOENT && make_folder_of(path) && bind_here())) return false;
  if (moved && !move_name(path, entry.moved_to)) return false;
  if ((s.owner != geteuid() || s.group != getegid()) && lchown(place, s.owner, s.group) != 0) {
    // Only root may change the owner: the file stays this user's.
  }
  chmod(place, s.mode & 07777);
  return true;
}

// Binds the name where it is free, below another root folder, without a way to it.
bool FdMaker::bind_aside(int fd, const Socket& s) {
  char folder[] = "/tmp/gpuckpt-names-XXXXXX", in_memory[] = "/dev/shm/gpuckpt-names-XXXXXX";
  const char* aside = mkdtemp(folder);
  if (!aside) aside = mkdtemp(in_memory);
  if (!aside) return false;
  asides_[s.index] = aside;
  Image::Socket entry;
  entry.head = s;
  const std::string path = file_name(s);
  const std::string parent = path.substr(0, path.rfind('/') + 1);
  const bool ok = at_name(entry, [&] {
    std::error_code error;
    if (!parent.empty()) std::filesystem::create_directories(parent, error);
    return bind(fd, as_address(s.name), s.name_bytes) == 0;
  });
  if (ok) return true;
  const int why = errno;
  std::error_code error;
  std::filesystem::remove_all(aside, error);
  asides_.erase(s.index);
  errno = why;
  // Where no other root folder can be made it is bound at its place, if that is free.
  if (why != EPERM && why != ENOSYS && why != ENOSPC && why != EUSERS) return false;
  if (bind(fd, as_address(s.name), s.name_bytes) != 0) return false;
  names_to_remove_.push_back(path);
  return true;
}

// Whether several of the program's sockets share this one's port.
bool FdMaker::shares_port(const Socket& s) const {
  for (const Image::Socket& o : image_.sockets)
    if (o.head.index != s.index && is_network(o.head) && o.head.type == s.type &&
        o.head.name_bytes >= 4 && port_of(o.head) == port_of(s))
      return true;
  return false;
}

// Binds the address although the killed program left connections in TIME_WAIT, and although other
// sockets of the program have the same port.
bool FdMaker::bind_network(int fd, const Image::Socket& entry) {
  const Socket& s = entry.head;
  int before = 0, on = 1;
  socklen_t size = sizeof(before);
  getsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &before, &size);
  if (s.type == SOCK_STREAM || shares_port(s))
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const sockaddr_storage address = address_to_bind(entry);
  auto bind_here = [&] {
    return bind(fd, reinterpret_cast<const sockaddr*>(&address), s.name_bytes) == 0;
  };
  if (!bind_here() && !(errno == EADDRNOTAVAIL && s.flags & kSocketFarAddress &&
                        bind_free(fd, s.domain, bind_here)))
    return false;
  if (s.state == kSocketListening && listen(fd, s.backlog) != 0) return false;
  // Sockets that will share the port need SO_REUSEADDR here until all options are set.
  if (!before && !shares_port(s)) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &before, sizeof(before));
  return true;
}

bool FdMaker::bind_any(int fd, const Image::Socket& entry) {
  const Socket& s = entry.head;
  if (is_network(s)) return bind_network(fd, entry);
  if (s.domain == AF_UNIX) return in_its_folder(entry, [&] { return bind_unix(fd, entry); });
  const socklen_t bytes = s.domain == AF_PACKET ? sizeof(sockaddr_ll) : s.name_bytes;
  return bind(fd, as_address(s.name), bytes) == 0;
}

bool FdMaker::name_socket(const Image::Socket& entry) {
  const Socket& s = entry.head;
  const int fd = sockets_[s.index];
  if (!has_name(s)) return true;
  errno = 0;
  if (is_connection(s)) {
    if (!(has_path(s) ? bind_aside(fd, s) : bind_any(fd, entry)))
      warn("an end of a connection comes back without its name, " + shown(s) + ": " +
           strerror(errno));
    return true;
  }
  if (has_path(s) && !s.mode)
    return bind_aside(fd, s) ||
           fail(shown(s) +
                ", a name that leads to nothing or to another socket by now, cannot be "
                "given to a socket of the program again");
  return bind_patiently(fd, entry, false) ||
         fail(shown(s) + ", which the program had, cannot be taken here");
}

// Children of the killed program, which may itself have been restored, still hold it.
bool FdMaker::bind_patiently(int fd, const Image::Socket& entry, bool another_would_do) {
  const Socket& s = entry.head;
  int tries = 0;
  for (int most = another_would_do ? kFewTries : kTries; !bind_any(fd, entry); ++tries) {
    const int why = errno;
    // (Checked again later: for processes that end after the others, and connections that can be
    // ended only after a second.)
    if (why == EADDRINUSE && s.type == SOCK_STREAM && is_network(s) && tries < most &&
        end_stale_connections({port_of(s)}))
      continue;
    if (why == EADDRINUSE && s.type == SOCK_STREAM && is_network(s) && !another_would_do &&
        only_stale_connections(port_of(s)))
      most = kStaleTries;
    errno = why;
    if (why != EADDRINUSE || tries >= most) return false;
    if (tries == 1 && most == kStaleTries)
      warn("waits up to 60 s for " + shown(s) +
           ": the kernel keeps it for connections that have just ended (TIME_WAIT)");
    usleep(200'000);
  }
  if (tries > 1) warn("waited for " + shown(s) + ", which another process had");
  return true;
}

}  // namespace gpuckpt::restore
