// The application's open descriptors, captured while it is parked, by a thread that shares its
// table.

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "common/log.h"
#include "common/proc.h"
#include "common/syscall.h"
#include "common/text.h"
#include "gpuckpt/wire.h"
#include "snapshot/capture.h"
#include "snapshot/device_plugin.h"
#include "snapshot/state.h"
#include "snapshot/track.h"

namespace gpuckpt {

using namespace process;

namespace {

constexpr size_t kMaxDescriptors = 16384;

struct Open {
  Descriptor d;
  char kind_name[16];
};

struct Table {
  Capture* c;
  Records* r;
  Descriptor* all;
  size_t count;
  bool kcmp_works;
  uint32_t pipes, epolls, pairs;
  struct {
    uint64_t ino;
    uint32_t index;
    int reader, writer;  // descriptors, -1: none
  } pipe[512];
  struct {
    uint64_t ino, peer;
    uint32_t index;
    int fd, type;
  } pair[256];
};

bool link_of(int fd, char* to, size_t room) {
  char path[64];
  format(path, sizeof(path), "/proc/thread-self/fd/%d", fd);
  long n = sys::call(SYS_readlinkat, AT_FDCWD, sys::ptr(path), sys::ptr(to),
                     static_cast<long>(room - 1));
  if (n < 0) return false;
  to[n] = 0;
  return true;
}

long info_of(int fd, char* to, size_t room) {
  char path[64];
  format(path, sizeof(path), "/proc/thread-self/fdinfo/%d", fd);
  return read_file(path, to, room);
}

const char* find_line(const char* text, const char* name) {
  for (const char* s = text; *s; ++s)
    if ((s == text || s[-1] == '\n') && starts_with(s, name)) {
      s += length(name);
      while (*s == ' ' || *s == '\t') ++s;
      return s;
    }
  return nullptr;
}

// Do two descriptors share one open file description (offset and flags)?
bool same_description(Table* t, const Descriptor& a, const Descriptor& b) {
  if (a.ino != b.ino || a.dev != b.dev || a.flags != b.flags || a.offset != b.offset) return false;
  if (!t->kcmp_works) return a.kind == kFdFile || a.kind == kFdPipe;
  long r = sys::call(SYS_kcmp, library.pid, library.pid, 0 /* KCMP_FILE */, a.fd, b.fd);
  if (sys::failed(r)) {
    t->kcmp_works = false;
    return true;
  }
  return r == 0;
}

// An epoll instance holds references by number; its own record comes after all descriptors.
void put_epoll(Table* t, Descriptor* d, const char* info) {
  d->object = static_cast<int>(t->epolls++);
  EpollEntry entry[512];
  uint32_t n = 0;
  for (const char* s = info; (s = find_line(s, "tfd:")) && n < 512; ++n) {
    EpollEntry& e = entry[n];
    e = {};
    e.fd = static_cast<int>(scan_dec(&s));
    auto number = [&](const char* name, bool hex) {
      while (*s == ' ') ++s;
      while (*s && *s != ':') ++s;
      if (*s) ++s;
      while (*s == ' ') ++s;
      (void)name;
      return hex ? scan_hex(&s) : scan_dec(&s);
    };
    e.events = static_cast<uint32_t>(number("events", true));
    e.data = number("data", true);
    number("pos", false);
    e.ino = number("ino", true);
    while (*s && *s != '\n') ++s;
    if (!*s) {
      ++n;
      break;
    }
    ++s;
  }
  Epoll head{static_cast<uint32_t>(d->object), 0};
  t->r->begin(kRecEpoll, n);
  t->r->add(&head, sizeof(head));
  t->r->add(entry, n * sizeof(EpollEntry));
  t->r->end();
}

bool capture_socket(Table* t, Descriptor* d) {
  int domain = 0, type = 0, protocol = 0, listening = 0;
  uint32_t size = 4;
  auto option = [&](int name, int* to) {
    size = 4;
    return !sys::failed(
        sys::call(SYS_getsockopt, d->fd, SOL_SOCKET, name, sys::ptr(to), sys::ptr(&size)));
  };
  option(SO_DOMAIN, &domain), option(SO_TYPE, &type), option(SO_PROTOCOL, &protocol);
  option(SO_ACCEPTCONN, &listening);
  d->value[0] = static_cast<uint64_t>(domain);
  d->value[1] = static_cast<uint64_t>(type);
  d->value[2] = static_cast<uint64_t>(protocol);
  char name[256];
  size = sizeof(name);
  bool connected = !sys::failed(sys::call(SYS_getpeername, d->fd, sys::ptr(name), sys::ptr(&size)));
  uint32_t own_size = sizeof(name);
  sockaddr_un own{};
  own_size = sizeof(own);
  sys::call(SYS_getsockname, d->fd, sys::ptr(&own), sys::ptr(&own_size));
  bool bound = domain == AF_UNIX ? own_size > 2 : false;
  if (!connected && !listening && !bound) {
    d->kind = kFdSocketFresh;
    return true;
  }
  if (domain == AF_UNIX && connected && size <= 2 && t->pairs < 256) {
    d->kind = kFdUnixPair;
    t->pair[t->pairs] = {d->ino, 0, t->pairs, d->fd, type};
    d->object = static_cast<int>(t->pairs++);
    return true;
  }
  if (domain == AF_UNIX && type == SOCK_DGRAM && connected) {  // syslog
    d->kind = kFdSocketFresh;
    return true;
  }
  return t->c->refuse(
      "descriptor %d is a %s socket (%s), which a restored process could not have; close it, or "
      "set GPUCKPT_SOCKETS=drop",
      d->fd,
      domain == AF_INET || domain == AF_INET6 ? "network"
      : domain == AF_UNIX                     ? "unix"
                                              : "special",
      listening   ? "listening"
      : connected ? "connected"
                  : "bound");
}

bool capture_one(Table* t, int fd) {
  Capture* c = t->c;
  if (device_plugin && device_plugin->driver_fd(fd)) return true;
  if (tracker.owns_fd(fd)) return true;
  if (t->count == kMaxDescriptors)
    return c->refuse("more than %lu descriptors are open", kMaxDescriptors);
  Descriptor* d = &t->all[t->count];
  __builtin_memset(d, 0, sizeof(*d));
  d->fd = fd;
  d->description = fd;
  d->object = -1;
  char path[4097], info[16384];
  struct stat st;
  if (sys::failed(sys::call(SYS_fstat, fd, sys::ptr(&st))) || !link_of(fd, path, sizeof(path)))
    return true;
  if (info_of(fd, info, sizeof(info)) <= 0) info[0] = 0;
  if (const char* s = find_line(info, "pos:")) d->offset = scan_dec(&s);
  long flags = sys::call(SYS_fcntl, fd, F_GETFL);
  d->flags = static_cast<uint32_t>(flags);
  d->fd_flags = static_cast<uint32_t>(sys::call(SYS_fcntl, fd, F_GETFD));
  d->ino = st.st_ino;
  d->dev = st.st_dev;
  d->size = static_cast<uint64_t>(st.st_size);
  d->mtime_ns = static_cast<uint64_t>(st.st_mtim.tv_sec) * 1000000000 +
                static_cast<uint64_t>(st.st_mtim.tv_nsec);
  d->mode = st.st_mode;
  bool store_path = false;

  const uint32_t kind = st.st_mode & S_IFMT;
  if (starts_with(path, "anon_inode:")) {
    const char* what = path + 11;
    if (equal(what, "[eventfd]")) {
      d->kind = kFdEventfd;
      if (const char* s = find_line(info, "eventfd-count:")) d->value[0] = scan_hex(&s);
      if (const char* s = find_line(info, "eventfd-semaphore:")) d->value[1] = scan_dec(&s);
    } else if (equal(what, "[eventpoll]")) {
      d->kind = kFdEpoll;
    } else if (equal(what, "[timerfd]")) {
      d->kind = kFdTimerfd;
      auto pair = [&](const char* name) -> uint64_t {
        const char* s = find_line(info, name);
        if (!s || *s != '(') return 0;
        ++s;
        uint64_t sec = scan_dec(&s);
        while (*s == ',' || *s == ' ') ++s;
        return sec * 1000000000 + scan_dec(&s);
      };
      if (const char* s = find_line(info, "clockid:")) d->value[0] = scan_dec(&s);
      if (const char* s = find_line(info, "ticks:")) d->value[1] = scan_dec(&s);
      if (const char* s = find_line(info, "settime flags:")) d->value[2] = scan_dec(&s);
      d->value[3] = pair("it_value:");
      d->value[4] = pair("it_interval:");
    } else if (equal(what, "[signalfd]")) {
      d->kind = kFdSignalfd;
      if (const char* s = find_line(info, "sigmask:")) d->value[0] = scan_hex(&s);
    } else if (equal(what, "[pidfd]")) {
      const char* s = find_line(info, "Pid:");
      if (!s || static_cast<int>(scan_dec(&s)) != library.pid)
        return c->refuse("descriptor %d is a pidfd of another process", fd);
      d->kind = kFdPidfdSelf;
    } else {
      return c->refuse("descriptor %d is %s, which a restored process could not have", fd, what);
    }
  } else if (kind == S_IFREG) {
    size_t n = length(path);
    bool deleted = n > 10 && equal(path + n - 10, " (deleted)");
    if (deleted || starts_with(path, "/memfd:")) {
      d->kind = kFdMemory;
      if (deleted) path[n - 10] = 0;
    } else {
      d->kind = kFdFile;
    }
    store_path = true;
  } else if (kind == S_IFDIR) {
    d->kind = kFdDirectory;
    store_path = true;
  } else if (kind == S_IFIFO) {
    if (starts_with(path, "pipe:")) {
      d->kind = kFdPipe;
      size_t i = 0;
      while (i < t->pipes && t->pipe[i].ino != d->ino) ++i;
      if (i == t->pipes) {
        if (t->pipes == 512) return c->refuse("more than 512 pipes are open");
        t->pipe[i] = {d->ino, t->pipes++, -1, -1};
      }
      d->object = static_cast<int>(i);
      ((flags & O_ACCMODE) == O_WRONLY ? t->pipe[i].writer : t->pipe[i].reader) = fd;
      if ((flags & O_ACCMODE) == O_RDWR) t->pipe[i].writer = fd;
    } else {
      d->kind = kFdFifo;
      store_path = true;
    }
  } else if (kind == S_IFCHR) {
    uint32_t major = static_cast<uint32_t>((st.st_rdev >> 8) & 0xfff);
    if (major == 1) {
      d->kind = kFdDevice;
    } else if (major == 5 || major == 4 || (major >= 136 && major <= 143)) {
      d->kind = kFdTerminal;
      d->value[0] = ~0ull;
    } else if (starts_with(path, "/dev/nvidia")) {
      return true;
    } else {
      return c->refuse("descriptor %d is the device %s, which a restored process could not have",
                       fd, path);
    }
    store_path = true;
  } else if (kind == S_IFSOCK) {
    if (fd <= 2) {
      d->kind = kFdInherit;
      d->value[0] = static_cast<uint64_t>(fd);
    } else if (!capture_socket(t, d)) {
      return false;
    }
  } else {
    return c->refuse("descriptor %d (%s) is of a kind that a restored process could not have", fd,
                     path);
  }

  for (size_t i = 0; i < t->count; ++i)
    if (same_description(t, t->all[i], *d)) {
      d->description = t->all[i].description;
      if (d->kind == kFdUnixPair) --t->pairs, d->object = t->all[i].object;
      break;
    }
  if (d->kind == kFdEpoll && d->description == fd) put_epoll(t, d, info);
  if (d->kind == kFdEpoll && d->description != fd)
    for (size_t i = 0; i < t->count; ++i)
      if (t->all[i].fd == d->description) d->object = t->all[i].object;
  // An unlinked file or memfd: its bytes belong to the snapshot. When it is mapped as well, the
  // mapping's record names the same inode and restore joins the two.
  ++t->count;
  size_t index = t->count - 1;
  // The path lives behind the record; terminals and stdio are settled when all descriptors are
  // known.
  t->r->begin(kRecFd);
  t->all[index].owner_signal = 0;
  t->r->add(&t->all[index], sizeof(Descriptor));
  t->r->add_text(store_path ? path : "");
  t->r->end();
  return true;
}

bool put_memory_contents(Table* t) {
  for (size_t i = 0; i < t->count; ++i) {
    Descriptor& d = t->all[i];
    if (d.kind != kFdMemory || d.description != d.fd || !d.size) continue;
    bool seen = false;
    for (size_t j = 0; j < i; ++j)
      seen |= t->all[j].kind == kFdMemory && t->all[j].ino == d.ino && t->all[j].dev == d.dev;
    if (seen) continue;
    Capture* c = t->c;
    if (c->eager_count == 64) return c->refuse("more than 64 pieces of shared memory");
    EagerCopy* e = &c->eager[c->eager_count];
    e->copy = scratch_map(d.size);
    if (!e->copy)
      return c->refuse("no memory to copy the unlinked file behind descriptor %d", d.fd);
    ++c->eager_count;
    e->space = wire::kSpaceFileBase + 0x8000 + static_cast<uint64_t>(d.fd);
    e->address = 0;
    e->length = (d.size + 4095) & ~4095ull;
    int from = d.fd;
    if ((d.flags & O_ACCMODE) == O_WRONLY) {
      char path[64];
      format(path, sizeof(path), "/proc/thread-self/fd/%d", d.fd);
      from = sys::open(path, O_RDONLY | O_CLOEXEC);
      if (from < 0) return c->refuse("the unlinked file behind descriptor %d cannot be read", d.fd);
    }
    for (uint64_t at = 0; at < d.size;) {
      long n = sys::pread(from, e->copy.data() + at, d.size - at, at);
      if (n <= 0) break;
      at += static_cast<uint64_t>(n);
    }
    if (from != d.fd) sys::close(from);
  }
  return true;
}

// A pipe with both ends here is saved with its contents, which tee(2) copies without consuming
// them. With one end outside it is stdio, or it cannot be restored.
bool put_pipes(Table* t) {
  static char bytes[1 << 20];
  for (uint32_t i = 0; i < t->pipes; ++i) {
    auto& p = t->pipe[i];
    int any = p.reader >= 0 ? p.reader : p.writer;
    Pipe out;
    __builtin_memset(&out, 0, sizeof(out));
    out.index = i;
    out.ino = p.ino;
    long capacity = sys::call(SYS_fcntl, any, 1032 /* F_GETPIPE_SZ */);
    out.capacity = capacity > 0 ? static_cast<uint32_t>(capacity) : 65536;
    if (p.reader < 0 || p.writer < 0) {
      out.bytes = ~0u;  // the other end is outside: restore puts its own stdio there
      t->r->put(kRecPipe, out);
      continue;
    }
    int queued = 0;
    sys::call(SYS_ioctl, p.reader, FIONREAD, sys::ptr(&queued));
    if (queued > 0) {
      if (queued > static_cast<int>(sizeof(bytes)))
        return t->c->refuse("the pipe behind descriptor %d holds %d bytes", p.reader, queued);
      int pair[2];
      long r = sys::call(SYS_pipe2, sys::ptr(pair), O_CLOEXEC | O_NONBLOCK);
      if (sys::failed(r)) return t->c->refuse("no descriptor left to save a pipe's contents");
      sys::call(SYS_fcntl, pair[1], 1031 /* F_SETPIPE_SZ */, out.capacity);
      long n = sys::call(SYS_tee, p.reader, pair[1], queued, 2 /* SPLICE_F_NONBLOCK */);
      if (n > 0) n = sys::read(pair[0], bytes, static_cast<size_t>(n));
      sys::close(pair[0]);
      sys::close(pair[1]);
      if (n != queued)
        return t->c->refuse("the contents of the pipe behind descriptor %d cannot be read",
                            p.reader);
      out.bytes = static_cast<uint32_t>(n);
    }
    t->r->begin(kRecPipe);
    t->r->add(&out, sizeof(out));
    t->r->add(bytes, out.bytes);
    t->r->end();
  }
  return true;
}

// Which unix sockets are each other's peers: a property only sock_diag tells.
void find_peers(Table* t) {
  if (!t->pairs) return;
  long s = sys::call(SYS_socket, 16 /* AF_NETLINK */, SOCK_RAW | SOCK_CLOEXEC,
                     4 /* NETLINK_SOCK_DIAG */);
  if (sys::failed(s)) return;
  struct {
    uint32_t len;
    uint16_t type, flags;
    uint32_t seq, pid;
    uint8_t family, protocol;
    uint16_t pad;
    uint32_t states, ino, show, cookie[2];
  } request{40, 20, 0x301, 1, 0, AF_UNIX, 0, 0, ~0u, 0, 4 /* UDIAG_SHOW_PEER */, {~0u, ~0u}};
  sys::call(SYS_sendto, s, sys::ptr(&request), sizeof(request), 0, 0, 0);
  static char buffer[32768];
  bool more = true;
  while (more) {
    long n = sys::call(SYS_recvfrom, s, sys::ptr(buffer), sizeof(buffer), 0, 0, 0);
    if (n <= 0) break;
    for (long at = 0; at + 16 <= n;) {
      uint32_t len;
      uint16_t type;
      __builtin_memcpy(&len, buffer + at, 4);
      __builtin_memcpy(&type, buffer + at + 4, 2);
      if (len < 16 || type == 3 || type == 2) {
        more = false;
        break;
      }
      uint32_t ino;
      __builtin_memcpy(&ino, buffer + at + 16 + 4, 4);
      for (uint32_t i = 0; i < t->pairs; ++i)
        if (t->pair[i].ino == ino)
          for (long a = at + 16 + 16; a + 4 <= at + len;) {
            uint16_t alen, atype;
            __builtin_memcpy(&alen, buffer + a, 2);
            __builtin_memcpy(&atype, buffer + a + 2, 2);
            if (alen < 4) break;
            if (atype == 2 /* UNIX_DIAG_PEER */) {
              uint32_t peer;
              __builtin_memcpy(&peer, buffer + a + 4, 4);
              t->pair[i].peer = peer;
            }
            a += (alen + 3) & ~3;
          }
      at += (len + 3) & ~3u;
    }
  }
  sys::close(static_cast<int>(s));
}

bool put_pairs(Table* t) {
  find_peers(t);
  static char bytes[1 << 18];
  for (uint32_t i = 0; i < t->pairs; ++i) {
    uint32_t peer = ~0u;
    for (uint32_t j = 0; j < t->pairs; ++j)
      if (t->pair[j].ino == t->pair[i].peer) peer = j;
    if (peer == ~0u)
      return t->c->refuse("descriptor %d is a unix socket whose other end is outside the process",
                          t->pair[i].fd);
    UnixPair out{i, peer, static_cast<uint32_t>(t->pair[i].type), 0, t->pair[i].ino};
    long n = sys::call(SYS_recvfrom, t->pair[i].fd, sys::ptr(bytes), sizeof(bytes),
                       MSG_PEEK | MSG_DONTWAIT, 0, 0);
    if (n > 0) {
      if (t->pair[i].type != SOCK_STREAM || n == sizeof(bytes))
        return t->c->refuse("descriptor %d is a unix socket with unread messages", t->pair[i].fd);
      out.bytes = static_cast<uint32_t>(n);
    }
    t->r->begin(kRecUnix);
    t->r->add(&out, sizeof(out));
    t->r->add(bytes, out.bytes);
    t->r->end();
  }
  return true;
}

}  // namespace

bool capture_descriptors(Capture* c, Records* r) {
  Region memory = scratch_map(kMaxDescriptors * sizeof(Descriptor));
  if (!memory) return c->refuse("no memory for the table of descriptors");
  static Table t;
  __builtin_memset(&t, 0, sizeof(t));
  t.c = c;
  t.r = r;
  t.all = reinterpret_cast<Descriptor*>(memory.data());
  t.kcmp_works = true;
  bool listed = each_number_in("/proc/thread-self/fd", &t, [](void* context, int fd) {
    Table* table = static_cast<Table*>(context);
    return capture_one(table, fd) && !table->c->code;
  });
  bool ok = listed || c->refuse("/proc/thread-self/fd cannot be listed");
  ok = ok && !c->code && put_memory_contents(&t) && put_pipes(&t) && put_pairs(&t);
  scratch_unmap(&memory);
  if (ok && r->full) return c->refuse("the description of the process does not fit into 96 MiB");
  return ok;
}

}  // namespace gpuckpt
