#include "snapshot/courier.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "common/log.h"
#include "common/proc.h"
#include "common/syscall.h"
#include "common/text.h"
#include "gpuckpt/exit_codes.h"
#include "snapshot/raw_thread.h"
#include "snapshot/state.h"
#include "snapshot/team.h"

namespace gpuckpt {

constinit Courier courier;

namespace {

uint64_t fake_thread_descriptor[16];

long poll_fd(int fd, int ms) {
  pollfd p{fd, POLLIN, 0};
  return sys::call(SYS_poll, sys::ptr(&p), 1, ms);
}

// --- starting the writer
// -------------------------------------------------------------------------------------------

struct Spawn {
  const char* path;
  char* const* argv;
  char* const* environment;
  std::atomic<int> error;
  uint64_t inner_stack;
};

// Inner process: becomes the writer. Shares memory with the application until exec, so it touches
// only its stack.
void become_writer(void* argument) {
  Spawn* s = static_cast<Spawn*>(argument);
  sys::call(SYS_setsid);
  sys::Sigaction standard{};
  for (int sig = 1; sig <= 64; ++sig) sys::sigaction(sig, &standard, nullptr);
  sys::sigprocmask_set(0);
  long r = sys::call(SYS_execve, sys::ptr(s->path), sys::ptr(s->argv), sys::ptr(s->environment));
  s->error = static_cast<int>(-r);
  sys::exit_group(127);
}

// Outer process: its death makes the writer an orphan, so the application never gets a child it did
// not ask for.
void become_orphan_maker(void* argument) {
  Spawn* s = static_cast<Spawn*>(argument);
  clone_raw(CLONE_VM | CLONE_VFORK, s->inner_stack, become_writer, s, nullptr, nullptr, nullptr);
  sys::exit_group(0);
}

bool executable(const char* path) {
  return !sys::failed(sys::call(SYS_faccessat, AT_FDCWD, sys::ptr(path), 1 /* X_OK */));
}

// ../bin/gpuckpt-writer beside this library, by the name under which it is mapped.
bool find_writer(char* to, size_t room) {
  if (library.config.writer[0]) {
    copy(to, room, library.config.writer);
    return executable(to);
  }
  char buffer[4096 + 512];
  LineReader maps("/proc/thread-self/maps", buffer, sizeof(buffer));
  uint64_t here = reinterpret_cast<uint64_t>(&find_writer);
  MapsLine m;
  while (char* line = maps.next()) {
    if (!parse_maps_line(line, &m) || here < m.start || here >= m.end) continue;
    copy(to, room, m.name);
    for (int up = 0; up < 2; ++up) {
      size_t n = length(to);
      while (n && to[n] != '/') --n;
      to[n] = 0;
    }
    size_t n = length(to);
    format(to + n, room - n, "/bin/gpuckpt-writer");
    return executable(to);
  }
  return false;
}

}  // namespace

// --- the thread
// ------------------------------------------------------------------------------------------------------

namespace {

void let_go_of_descriptors(void*) {
  if (!sys::failed(sys::call(SYS_close_range, 3, ~0u, 0))) return;
  int64_t limit[2] = {1024, 1024};
  sys::call(SYS_prlimit64, 0, 7 /* RLIMIT_NOFILE */, 0, sys::ptr(limit));
  for (int fd = 3; fd < limit[0] && fd < 1 << 20; ++fd) sys::close(fd);
}

// Whoever closes a descriptor of a message queue ends what its process asked of the queue by
// mq_notify: that must not be this process. A child that shares this thread's table does it. It has
// no exit signal, so that no wait of the application's finds it.
void let_go_as_another_process() {
  alignas(16) static char stack[4096];
  const long pid = clone_raw(CLONE_VM | CLONE_FILES | CLONE_VFORK,
                             reinterpret_cast<uint64_t>(stack + sizeof(stack)),
                             let_go_of_descriptors, nullptr, nullptr, nullptr, nullptr);
  if (sys::failed(pid))
    let_go_of_descriptors(nullptr);
  else
    sys::call(SYS_wait4, pid, 0, static_cast<long>(__WCLONE), 0);
}

}  // namespace

void courier_main(void*) {
  // This thread's table starts as a copy of the application's: let go of all of it, keeping stderr
  // if it is still the one we know.
  bool keep = log_stderr_is_ours();
  let_go_as_another_process();
  sys::close(0);
  sys::close(1);
  if (!keep) sys::close(2);
  for (int i = 0; i < 3; ++i)
    if (i < 2 || !keep) sys::open("/dev/null", O_RDWR);
  courier.loop();
}

void Courier::forget() {
  posted_ = sent_ = 0;
  doorbell_ = 0;
  busy_ = 0;
  post_lock_ = 0;
  quit_ = false;
  writer_gone = false;
  last.type = 0;
  socket_ = command_ = child_socket = -1;
  ring = {};
  child_pid = tid_ = 0;
}

bool Courier::start(char* text, size_t room) {
  forget();
  fake_thread_descriptor[0] = reinterpret_cast<uint64_t>(fake_thread_descriptor);
  fake_thread_descriptor[2] = reinterpret_cast<uint64_t>(fake_thread_descriptor);
  constexpr uint64_t flags = CLONE_VM | CLONE_FS | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
                             CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
  int* tid = reinterpret_cast<int*>(&library.courier_tid);
  long r = clone_raw(flags, library.stacks.start + kCoordinatorStack + kCourierStack, courier_main,
                     nullptr, tid, tid, fake_thread_descriptor);
  if (sys::failed(r)) {
    format(text, room, "cannot start a thread (error %ld)", -r);
    return false;
  }
  tid_ = static_cast<int>(r);
  return true;
}

void Courier::stop() {
  quit_ = true;
  ++doorbell_;
  sys::futex_wake(&doorbell_, 1);
  for (uint32_t t; (t = library.courier_tid.load());)
    sys::futex_wait(&library.courier_tid, t, 10000, true);
  tid_ = 0;
}

void Courier::loop() {
  while (!quit_) {
    uint32_t seen = doorbell_;
    send_posts();
    if (busy_) {
      result_ = work_(this, argument_);
      busy_ = 0;
      sys::futex_wake(&busy_, 1);
      continue;
    }
    // Notice a writer that died or failed although nobody is waiting for it.
    if (socket_ >= 0 && !last.type) receive(&last, 0);
    sys::futex_wait(&doorbell_, seen, 20000);
  }
}

long Courier::run(long (*work)(Courier*, void*), void* argument) {
  work_ = work;
  argument_ = argument;
  busy_ = 1;
  ++doorbell_;
  sys::futex_wake(&doorbell_, 1);
  while (busy_) sys::futex_wait(&busy_, 1, 1000000);
  return result_;
}

bool Courier::send(int socket, uint32_t type, uint32_t slot, const char* text) {
  wire::Msg m;
  __builtin_memset(&m, 0, sizeof(m));
  m.magic = wire::kMagic;
  m.version = wire::kWireVersion;
  m.type = type;
  m.slot = slot;
  if (text) {
    copy(m.text, sizeof(m.text), text);
    m.text_bytes = static_cast<uint32_t>(length(m.text));
  }
  long r;
  do r = sys::call(SYS_sendto, socket, sys::ptr(&m), sizeof(m), MSG_NOSIGNAL, 0, 0);
  while (r == -4);
  return !sys::failed(r);
}

bool Courier::post(uint32_t type, uint32_t slot, const char* text) {
  if (writer_gone) return false;
  if (!type) return true;
  while (post_lock_.exchange(1)) sys::call(SYS_sched_yield);
  while (posted_ - sent_ >= kPosts && !writer_gone) {
    ++doorbell_;
    sys::futex_wake(&doorbell_, 1);
    sys::sleep_us(100);
  }
  Post& p = posts_[posted_ % kPosts];
  p.type = type;
  p.slot = slot;
  copy(p.text, sizeof(p.text), text ? text : "");
  ++posted_;
  post_lock_ = 0;
  ++doorbell_;
  sys::futex_wake(&doorbell_, 1);
  return !writer_gone;
}

bool Courier::send_posts() {
  bool any = false;
  while (sent_ != posted_) {
    Post& p = posts_[sent_ % kPosts];
    if (socket_ >= 0 && !writer_gone && !send(socket_, p.type, p.slot, p.text)) writer_gone = true;
    ++sent_;
    any = true;
  }
  return any;
}

long Courier::receive(wire::Msg* m, int timeout_ms) {
  if (poll_fd(socket_, timeout_ms) <= 0) return 0;
  long r = sys::call(SYS_recvfrom, socket_, sys::ptr(m), sizeof(*m), MSG_DONTWAIT, 0, 0);
  if (r == -11 || r == -4) return 0;
  if (r <= 0 || m->magic != wire::kMagic || m->version != wire::kWireVersion) {
    m->type = 0;
    writer_gone = true;
    return -1;
  }
  if (m->text_bytes >= sizeof(m->text)) m->text_bytes = sizeof(m->text) - 1;
  m->text[m->text_bytes] = 0;
  if (m->type == wire::kMsgFailed || m->type == wire::kMsgDurable)
    writer_gone = m->type == wire::kMsgFailed;
  return 1;
}

// --- a job
// -----------------------------------------------------------------------------------------------------------

const char* Courier::make_channel(Channel* writers, long* error) {
  *error = sys::call(SYS_memfd_create, sys::ptr("gpuckpt-ring"), 0);
  if (sys::failed(*error)) return "memfd_create";
  writers->ring = static_cast<int>(*error);
  *error = sys::call(SYS_ftruncate, writers->ring, static_cast<long>(wire::kRingBytes));
  if (sys::failed(*error)) return "no memory for the ring";
  ring = scratch_map(wire::kRingBytes, writers->ring);
  *error = 0;
  if (!ring) return "no address space for the ring";
  auto* header = reinterpret_cast<wire::RingHeader*>(ring.data());
  header->magic = wire::kMagic;
  header->version = wire::kWireVersion;

  int parent[2], child[2];
  *error = sys::call(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET, 0, sys::ptr(parent));
  if (!sys::failed(*error))
    *error = sys::call(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET, 0, sys::ptr(child));
  if (sys::failed(*error)) return "socketpair";
  sys::call(SYS_fcntl, parent[0], F_SETFD, FD_CLOEXEC);
  sys::call(SYS_fcntl, child[0], F_SETFD, FD_CLOEXEC);
  socket_ = parent[0];
  child_socket = child[0];
  writers->parent = parent[1];
  writers->child = child[1];
  return nullptr;
}

static long no_job(Courier* c, Courier::Open* o, int code, const char* what, long error) {
  o->code = code;
  format(o->text, sizeof(o->text), error ? "%s (error %ld)" : "%s", what, -error);
  Courier::close_job(c, nullptr);
  return -1;
}

// Says hello and waits for the writer's answer.
long Courier::greet(Open* o) {
  if (!send(socket_, wire::kMsgHello, 0, o->hello))
    return no_job(this, o, kExitError, "the writer ended at once", 0);
  uint64_t deadline = sys::now_us() + o->timeout_ms * 1000;
  for (;;) {
    static wire::Msg m;
    long got = receive(&m, 50);
    if (got < 0) return no_job(this, o, kExitError, "the writer ended before it was ready", 0);
    if (got > 0 && m.type == wire::kMsgReady) {
      m.text[sizeof(m.text) - 1] = 0;
      copy(o->parent, sizeof(o->parent), m.text);
      return 0;
    }
    if (got > 0 && m.type == wire::kMsgFailed)
      return no_job(this, o, m.code ? m.code : kExitError, m.text, 0);
    if (sys::now_us() > deadline)
      return no_job(this, o, kExitTimeout, "the writer could not open the store in time", 0);
  }
}

long Courier::open_job(Courier* c, void* argument) {
  Open* o = static_cast<Open*>(argument);
  char path[600];
  if (!find_writer(path, sizeof(path))) {
    char text[700];
    format(text, sizeof(text), "the writer %s cannot be executed; set GPUCKPT_WRITER", path);
    return no_job(c, o, kExitError, text, 0);
  }
  Channel theirs;
  long error;
  if (const char* what = c->make_channel(&theirs, &error))
    return no_job(c, o, kExitError, what, error);

  char numbers[3][12];
  format(numbers[0], 12, "%d", theirs.ring);
  format(numbers[1], 12, "%d", theirs.parent);
  format(numbers[2], 12, "%d", theirs.child);
  const char* argv[24] = {path,       "--store",  o->store,  "--ring",  numbers[0],
                          "--parent", numbers[1], "--child", numbers[2]};
  int n = 9;
  const Config& config = library.config;
  struct {
    const char* option;
    const char* value;
  } options[] = {{"--job", config.job},
                 {"--level", config.level},
                 {"--keep", config.keep},
                 {"--budget", config.budget}};
  for (auto& option : options)
    if (option.value[0]) argv[n++] = option.option, argv[n++] = option.value;
  argv[n] = nullptr;

  Spawn spawn{};
  spawn.path = path;
  spawn.argv = const_cast<char* const*>(argv);
  spawn.environment = config.environment;
  uint64_t stacks = library.stacks.start + kCoordinatorStack + kCourierStack;
  spawn.inner_stack = stacks + 2 * kSpawnStack;
  long pid = clone_raw(CLONE_VM | CLONE_VFORK, stacks + kSpawnStack, become_orphan_maker, &spawn,
                       nullptr, nullptr, nullptr);
  if (!sys::failed(pid)) sys::call(SYS_wait4, pid, 0, 0x40000000 /* __WALL */, 0);
  sys::close(theirs.ring);
  sys::close(theirs.parent);
  sys::close(theirs.child);
  if (sys::failed(pid)) return no_job(c, o, kExitError, "cannot start the writer", pid);
  if (spawn.error)
    return no_job(c, o, kExitError, "cannot execute the writer", -spawn.error.load());
  return c->greet(o);
}

long Courier::open_as_member(Courier* c, void* argument) {
  Open* o = static_cast<Open*>(argument);
  Channel theirs;
  long error;
  if (const char* what = c->make_channel(&theirs, &error))
    return no_job(c, o, kExitError, what, error);
  const bool ok = team.opened({theirs.ring, theirs.parent, theirs.child});
  sys::close(theirs.ring);
  sys::close(theirs.parent);
  sys::close(theirs.child);
  if (!ok) return no_job(c, o, team.code, team.text, 0);
  return c->greet(o);
}

long Courier::send_posted(Courier* c, void*) {
  c->send_posts();
  return 0;
}

long Courier::await_message(Courier* c, void* argument) {
  Await* a = static_cast<Await*>(argument);
  uint64_t deadline = sys::now_us() + a->timeout_ms * 1000;
  for (;;) {
    c->send_posts();
    if (c->last.type) {
      a->message = c->last;
      c->last.type = 0;
      return 1;
    }
    long got = c->receive(&a->message, 20);
    if (got) return got;
    if (sys::now_us() > deadline) return 0;
  }
}

long Courier::close_job(Courier* c, void*) {
  c->send_posts();
  if (c->socket_ >= 0) sys::close(c->socket_);
  if (c->child_socket >= 0) sys::close(c->child_socket);
  c->socket_ = c->child_socket = -1;
  if (c->child_pid > 0) {
    // The writer has said its last word, so the child has nothing left to do.
    sys::call(SYS_kill, c->child_pid, 9);
    sys::call(SYS_wait4, c->child_pid, 0, 0x40000000, 0);
  }
  c->child_pid = 0;
  scratch_unmap(&c->ring);
  c->writer_gone = false;
  c->last.type = 0;
  return 0;
}

// --- the command line
// ------------------------------------------------------------------------------------------------

static constexpr char kBusy[] =
    "a snapshot of this process is already being taken; try again when it is done";

static void refuse(int socket, int code, const char* text) {
  wire::CtlReply reply{};
  reply.magic = wire::kMagic;
  reply.version = wire::kWireVersion;
  reply.final = 1;
  reply.code = code;
  copy(reply.text, sizeof(reply.text), text);
  sys::call(SYS_sendto, socket, sys::ptr(&reply), sizeof(reply), MSG_NOSIGNAL, 0, 0);
}

int Courier::make_listener(char* path, size_t room) {
  const char* dir = library.config.session_dir;
  uint32_t me = static_cast<uint32_t>(sys::call(SYS_geteuid));
  // The application's umask may take even the owner's permissions away.
  if (!sys::failed(sys::call(SYS_mkdirat, AT_FDCWD, sys::ptr(dir), 0700)))
    sys::call(SYS_fchmodat, AT_FDCWD, sys::ptr(dir), 0700);
  struct stat st;
  if (sys::failed(
          sys::call(SYS_newfstatat, AT_FDCWD, sys::ptr(dir), sys::ptr(&st), AT_SYMLINK_NOFOLLOW)) ||
      (st.st_mode & S_IFMT) != S_IFDIR || st.st_uid != me || (st.st_mode & 022)) {
    log_line(LogLevel::kWarn, "%s is not a folder of our own; the command line cannot reach us",
             dir);
    return -1;
  }
  format(path, room, "%s/%d-%lu.sock", dir, library.host_pid, host_start_time());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  copy(address.sun_path, sizeof(address.sun_path), path);
  sys::call(SYS_unlinkat, AT_FDCWD, sys::ptr(path), 0);
  long fd = sys::call(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (sys::failed(fd)) return -1;
  long r = sys::call(SYS_bind, fd, sys::ptr(&address), sizeof(address));
  if (!sys::failed(r)) r = sys::call(SYS_listen, fd, 8);
  if (sys::failed(r)) {
    sys::close(static_cast<int>(fd));
    return -1;
  }
  return static_cast<int>(fd);
}

// Reads what a connection asks for. One that sends nothing within a second, or is not ours to
// serve, is closed: false.
static bool read_request(int socket, wire::CtlRequest* request) {
  uint32_t me = static_cast<uint32_t>(sys::call(SYS_geteuid));
  struct {
    int32_t pid;
    uint32_t uid, gid;
  } peer{};
  uint32_t size = sizeof(peer);
  sys::call(SYS_getsockopt, socket, SOL_SOCKET, SO_PEERCRED, sys::ptr(&peer), sys::ptr(&size));
  if ((peer.uid == me || peer.uid == 0) && poll_fd(socket, 1000) > 0) {
    long n =
        sys::call(SYS_recvfrom, socket, sys::ptr(request), sizeof(*request), MSG_DONTWAIT, 0, 0);
    if (n == sizeof(*request) && request->magic == wire::kMagic &&
        request->version == wire::kWireVersion) {
      request->store[sizeof(request->store) - 1] = request->tag[sizeof(request->tag) - 1] = 0;
      return true;
    }
    refuse(socket, kExitError, "command line and library come from different builds");
  }
  sys::close(socket);
  return false;
}

long Courier::accept_request(int listener, uint64_t timeout_ms, wire::CtlRequest* request,
                             int* socket) {
  uint64_t deadline = sys::now_us() + timeout_ms * 1000;
  while (sys::now_us() < deadline) {
    if (poll_fd(listener, 50) <= 0) continue;
    long s = sys::call(SYS_accept4, listener, 0, 0, SOCK_CLOEXEC);
    if (sys::failed(s) || !read_request(static_cast<int>(s), request)) continue;
    *socket = static_cast<int>(s);
    return 1;
  }
  return 0;
}

// Nobody finds the socket any more; who connected in time but was not served hears that we are
// busy, instead of a connection that breaks.
static void close_listener(int listener, const char* path) {
  sys::call(SYS_unlinkat, AT_FDCWD, sys::ptr(path), 0);
  while (poll_fd(listener, 0) > 0) {
    long s = sys::call(SYS_accept4, listener, 0, 0, SOCK_CLOEXEC);
    if (sys::failed(s)) break;
    wire::CtlRequest request;
    if (!read_request(static_cast<int>(s), &request)) continue;
    refuse(static_cast<int>(s), kExitLocked, kBusy);
    sys::close(static_cast<int>(s));
  }
  sys::close(listener);
}

long Courier::listen(Courier* c, void* argument) {
  Listen* l = static_cast<Listen*>(argument);
  char path[160];
  int fd = c->make_listener(path, sizeof(path));
  if (fd < 0) return 0;
  long r = c->accept_request(fd, l->timeout_ms, &l->request, &c->command_);
  close_listener(fd, path);
  return r;
}

long Courier::turn_away(Courier* c, void*) {
  char path[160];
  int fd = c->make_listener(path, sizeof(path));
  if (fd < 0) return 0;
  wire::CtlRequest request;
  int socket = -1;
  if (c->accept_request(fd, 200, &request, &socket)) {
    refuse(socket, kExitLocked, kBusy);
    sys::close(socket);
  }
  close_listener(fd, path);
  return 0;
}

long Courier::reply(Courier* c, void* argument) {
  if (c->command_ < 0) return 0;
  return sys::call(SYS_sendto, c->command_, reinterpret_cast<long>(argument),
                   sizeof(wire::CtlReply), MSG_NOSIGNAL | MSG_DONTWAIT, 0, 0);
}

long Courier::hang_up(Courier* c, void*) {
  if (c->command_ >= 0) sys::close(c->command_);
  c->command_ = -1;
  return 0;
}

}  // namespace gpuckpt
