#include "snapshot/io/io_thread.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "base/text/log.h"
#include "base/text/text.h"
#include "gpuckpt/exit_codes.h"
#include "snapshot/control/state.h"
#include "snapshot/io/session.h"
#include "snapshot/io/writer_end.h"
#include "snapshot/io/writer_start.h"
#include "snapshot/job/barrier.h"
#include "snapshot/park/raw_thread.h"
#include "snapshot/process/limits.h"

namespace gpuckpt {

// One for the process: the thread lives over several requests, its descriptor table with it.
constinit IoThread io_thread;

namespace {

// %fs of the bare thread points here, for code that reads the stack protector's value.
uint64_t fake_thread_descriptor[16];

long poll_fd(int fd, int ms) {
  pollfd p{fd, POLLIN, 0};
  return sys::call(SYS_poll, sys::ptr(&p), 1, ms);
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

// Closing a descriptor of a message queue removes the process's own request by mq_notify: that must
// not be this process. A child that shares this thread's table does it. It has no exit signal, so
// that no wait of the application's finds it.
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

void io_thread_main(void*) {
  // This thread's table starts as a copy of the application's: close all of it, keeping stderr if
  // it is still the one we know.
  bool keep = log_stderr_is_ours();
  let_go_as_another_process();
  sys::close(0);
  sys::close(1);
  if (!keep) sys::close(2);
  for (int i = 0; i < 3; ++i)
    if (i < 2 || !keep) sys::open("/dev/null", O_RDWR);
  io_thread.loop();
  reap_keepers();
}

void IoThread::forget() {
  posted_ = sent_ = 0;
  doorbell_ = 0;
  busy_ = 0;
  post_mutex_.reset();
  quit_ = false;
  writer_gone = false;
  last.type = 0;
  socket_ = command_ = child_socket = writer_ = -1;
  ring = {};
  ring_file = -1;
  child_pid = asked_pid = tid_ = 0;
  child_killed = false;
}

bool IoThread::start(char* text, size_t room) {
  forget();
  fake_thread_descriptor[0] = reinterpret_cast<uint64_t>(fake_thread_descriptor);
  fake_thread_descriptor[2] = reinterpret_cast<uint64_t>(fake_thread_descriptor);
  constexpr uint64_t flags = CLONE_VM | CLONE_FS | CLONE_SIGHAND | CLONE_THREAD | CLONE_SETTLS |
                             CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
  int* tid = reinterpret_cast<int*>(&library.io_thread_tid);
  long r = clone_raw(flags, library.stacks.start + kCoordinatorStack + kIoThreadStack,
                     io_thread_main, nullptr, tid, tid, fake_thread_descriptor);
  if (sys::failed(r)) {
    explain_failure(text, room, "cannot start a thread", r);
    return false;
  }
  tid_ = static_cast<int>(r);
  return true;
}

void IoThread::stop() {
  quit_ = true;
  ++doorbell_;
  sys::futex_wake(&doorbell_, 1);
  for (uint32_t t; (t = library.io_thread_tid.load());)
    sys::futex_wait(&library.io_thread_tid, t, 10000, true);
  tid_ = 0;
}

void IoThread::loop() {
  while (!quit_) {
    uint32_t seen = doorbell_;
    send_posted();
    if (busy_) {
      result_ = work_(argument_);
      busy_ = 0;
      sys::futex_wake(&busy_, 1);
      continue;
    }
    // Notice a writer that died or failed although no thread waits for it.
    if (socket_ >= 0 && !last.type) receive(&last, 0);
    sys::futex_wait(&doorbell_, seen, 20000);
  }
}

long IoThread::run_there(long (*work)(void*), void* argument) {
  work_ = work;
  argument_ = argument;
  busy_ = 1;
  ++doorbell_;
  sys::futex_wake(&doorbell_, 1);
  while (busy_) sys::futex_wait(&busy_, 1, 1000000);
  return result_;
}

bool IoThread::send(int socket, uint32_t type, uint32_t slot, const char* text) {
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

bool IoThread::post(uint32_t type, uint32_t slot, const char* text) {
  if (writer_gone) return false;
  if (!type) return true;
  post_mutex_.lock();
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
  post_mutex_.unlock();
  ++doorbell_;
  sys::futex_wake(&doorbell_, 1);
  return !writer_gone;
}

void IoThread::send_posted() {
  while (sent_ != posted_) {
    Post& p = posts_[sent_ % kPosts];
    if (socket_ >= 0 && !writer_gone && !send(socket_, p.type, p.slot, p.text)) writer_gone = true;
    ++sent_;
  }
}

long IoThread::receive(wire::Msg* m, int timeout_ms) {
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

// --- a writer
// -----------------------------------------------------------------------------------------------------------

bool IoThread::make_ring(Channel* writers, char* why, size_t room) {
  long error = sys::call(SYS_memfd_create, sys::ptr("gpuckpt-ring"), 0);
  if (!sys::failed(error)) {
    writers->ring = static_cast<int>(error);
    error = set_memory_size(writers->ring, wire::kRingBytes);
  }
  if (!sys::failed(error)) {
    ring = scratch_map(wire::kRingBytes, writers->ring);
    if (ring) return true;
    error = -ENOMEM;
  }
  char what[80];
  format(what, sizeof(what), "no %lu MiB to hand pages to the writer in", wire::kRingBytes >> 20);
  explain_failure(why, room, what, error);
  return false;
}

// The writer has its own descriptor of the ring by now.
void IoThread::keep_ring(int file) {
  ring_file = file;
  sys::call(SYS_fcntl, file, F_SETFD, FD_CLOEXEC);
}

bool IoThread::make_channel(Channel* writers, char* why, size_t room) {
  if (!make_ring(writers, why, room)) return false;
  auto* header = reinterpret_cast<wire::RingHeader*>(ring.data());
  header->magic = wire::kMagic;
  header->version = wire::kWireVersion;

  int parent[2], child[2];
  long error = sys::call(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET, 0, sys::ptr(parent));
  if (!sys::failed(error))
    error = sys::call(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET, 0, sys::ptr(child));
  if (sys::failed(error)) {
    explain_failure(why, room, "no sockets to the writer", error);
    return false;
  }
  sys::call(SYS_fcntl, parent[0], F_SETFD, FD_CLOEXEC);
  sys::call(SYS_fcntl, child[0], F_SETFD, FD_CLOEXEC);
  socket_ = parent[0];
  child_socket = child[0];
  writers->parent = parent[1];
  writers->child = child[1];
  return true;
}

bool IoThread::fail_to_open(Open* o, int code, const char* what, long error) {
  close_writer();
  return error ? o->fail(code, "%s (error %ld)", what, -error) : o->fail(code, "%s", what);
}

void IoThread::describe_writer_end(char* text, size_t room) { describe_end(writer_, text, room); }

bool IoThread::fail_for_writer(Open* o, const char* what) {
  char why[240], text[400];
  describe_writer_end(why, sizeof(why));
  format(text, sizeof(text), "%s: %s", what, why);
  return fail_to_open(o, kExitError, text);
}

// Says hello and waits for the writer's answer.
bool IoThread::greet(Open* o) {
  if (!send(socket_, wire::kMsgHello, 0, o->hello))
    return fail_for_writer(o, "the writer ended at once");
  uint64_t deadline = sys::now_us() + o->timeout_ms * 1000;
  for (wire::Msg m;;) {
    long got = receive(&m, 50);
    if (got < 0) return fail_for_writer(o, "the writer ended before it was ready");
    if (got > 0 && m.type == wire::kMsgReady) {
      m.text[sizeof(m.text) - 1] = 0;
      copy(o->parent, sizeof(o->parent), m.text);
      o->keyed = m.keyed == 1;
      __builtin_memcpy(o->names.byte, m.name_key, sizeof(o->names.byte));
      return true;
    }
    if (got > 0 && m.type == wire::kMsgFailed)
      return fail_to_open(o, m.code ? m.code : kExitError, m.text);
    if (sys::now_us() > deadline)
      return fail_to_open(o, kExitTimeout, "the writer could not open the store in time");
  }
}

bool IoThread::open_writer(Open* o) {
  char path[600];
  if (!find_writer(path, sizeof(path))) {
    char text[700];
    format(text, sizeof(text), "the writer %s cannot be executed; set GPUCKPT_WRITER", path);
    return fail_to_open(o, kExitError, text);
  }
  Channel theirs;
  char why[256];
  if (!make_channel(&theirs, why, sizeof(why))) return fail_to_open(o, kExitError, why);

  char numbers[3][12];
  format(numbers[0], 12, "%d", theirs.ring);
  format(numbers[1], 12, "%d", theirs.parent);
  format(numbers[2], 12, "%d", theirs.child);
  const char* argv[28] = {path,       "--store",  o->store,  "--ring",  numbers[0],
                          "--parent", numbers[1], "--child", numbers[2]};
  int n = 9;
  const Config& config = library.config;
  struct {
    const char* option;
    const char* value;
  } options[] = {{"--job", config.job},
                 {"--level", config.level},
                 {"--for", config.purpose},
                 {"--keep", config.keep},
                 {"--budget", config.budget}};
  char memory[24];
  format(memory, sizeof(memory), "%lu", o->memory);
  if (o->memory != ~0ull) argv[n++] = "--memory", argv[n++] = memory;
  char user[24];
  const unsigned owner = writer_user();
  format(user, sizeof(user), "%u:%u", owner, library.start_group);
  if (owner != static_cast<unsigned>(sys::call(SYS_geteuid)))
    argv[n++] = "--user", argv[n++] = user;
  for (auto& option : options)
    if (option.value[0]) argv[n++] = option.option, argv[n++] = option.value;
  argv[n] = nullptr;

  WriterStart start{path, const_cast<char* const*>(argv), config.environment};
  const long made = start_writer(&start);
  keep_ring(theirs.ring);
  sys::close(theirs.parent);
  sys::close(theirs.child);
  writer_ = start.pidfd;
  if (sys::failed(made)) {
    explain_failure(why, sizeof(why), "cannot start the writer", made);
    return fail_to_open(o, kExitError, why);
  }
  if (start.error) {
    char what[700];
    format(what, sizeof(what), "cannot execute the writer %s", path);
    return fail_to_open(o, kExitError, what, -start.error);
  }
  return greet(o);
}

bool IoThread::open_as_member(Open* o) {
  Channel theirs;
  char why[256];
  if (!make_channel(&theirs, why, sizeof(why))) return fail_to_open(o, kExitError, why);
  const bool ok = job_barrier.opened({theirs.ring, theirs.parent, theirs.child});
  keep_ring(theirs.ring);
  sys::close(theirs.parent);
  sys::close(theirs.child);
  if (!ok) return fail_to_open(o, job_barrier.code, job_barrier.text);
  return greet(o);
}

long IoThread::await_message(wire::Msg* message, uint64_t timeout_ms) {
  uint64_t deadline = sys::now_us() + timeout_ms * 1000;
  for (;;) {
    send_posted();
    if (last.type) {
      *message = last;
      last.type = 0;
      return 1;
    }
    long got = receive(message, 20);
    if (got) return got;
    if (sys::now_us() > deadline) return 0;
  }
}

void IoThread::close_writer() {
  send_posted();
  if (socket_ >= 0) sys::close(socket_);
  if (child_socket >= 0) sys::close(child_socket);
  if (writer_ >= 0) sys::close(writer_);
  socket_ = child_socket = writer_ = -1;
  if (child_pid > 0) {
    // The writer has sent its last message, so the child has nothing left to do.
    sys::call(SYS_kill, child_pid, 9);
    sys::call(SYS_wait4, child_pid, 0, 0x40000000, 0);
  }
  child_pid = 0;
  scratch_unmap(&ring);
  if (ring_file >= 0) sys::close(ring_file);
  ring_file = -1;
  writer_gone = false;
  last.type = 0;
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

// Binds a socket to `path`, whose folder is `dir`. An address has less room than a path may need:
// then it leads through a descriptor of the folder.
static long bind_to(long socket, const char* dir, const char* path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (length(path) < sizeof(address.sun_path)) {
    copy(address.sun_path, sizeof(address.sun_path), path);
    return sys::call(SYS_bind, socket, sys::ptr(&address), sizeof(address));
  }
  const long folder =
      sys::call(SYS_openat, AT_FDCWD, sys::ptr(dir), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (sys::failed(folder)) return folder;
  format(address.sun_path, sizeof(address.sun_path), "/proc/thread-self/fd/%d%s",
         static_cast<int>(folder), path + length(dir));
  const long r = sys::call(SYS_bind, socket, sys::ptr(&address), sizeof(address));
  sys::close(static_cast<int>(folder));
  return r;
}

int IoThread::make_listener(char* path, size_t room) {
  char dir[sizeof(library.config.session_dir)];
  if (!make_session_folder(dir, sizeof(dir))) return -1;
  format(path, room, "%s/%d-%lu.sock", dir, library.host_pid, host_start_time());
  sys::call(SYS_unlinkat, AT_FDCWD, sys::ptr(path), 0);
  long fd = sys::call(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (sys::failed(fd)) return -1;
  long r = bind_to(fd, dir, path);
  // The application's umask may have taken the owner's right to connect away.
  if (!sys::failed(r)) r = sys::call(SYS_fchmodat, AT_FDCWD, sys::ptr(path), 0600);
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

bool IoThread::accept_request(int listener, uint64_t timeout_ms, wire::CtlRequest* request,
                              int* socket) {
  uint64_t deadline = sys::now_us() + timeout_ms * 1000;
  while (sys::now_us() < deadline) {
    if (poll_fd(listener, 50) <= 0) continue;
    long s = sys::call(SYS_accept4, listener, 0, 0, SOCK_CLOEXEC);
    if (sys::failed(s) || !read_request(static_cast<int>(s), request)) continue;
    *socket = static_cast<int>(s);
    return true;
  }
  return false;
}

// Unlinks the socket. A command line that connected in time but was not served hears that we are
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

bool IoThread::listen(wire::CtlRequest* request, uint64_t timeout_ms) {
  char path[160];
  int fd = make_listener(path, sizeof(path));
  if (fd < 0) return false;
  const bool came = accept_request(fd, timeout_ms, request, &command_);
  close_listener(fd, path);
  return came;
}

void IoThread::turn_away() {
  char path[160];
  int fd = make_listener(path, sizeof(path));
  if (fd < 0) return;
  wire::CtlRequest request;
  int socket = -1;
  if (accept_request(fd, 200, &request, &socket)) {
    refuse(socket, kExitLocked, kBusy);
    sys::close(socket);
  }
  close_listener(fd, path);
}

void IoThread::reply(const wire::CtlReply& reply) {
  if (command_ >= 0)
    sys::call(SYS_sendto, command_, sys::ptr(&reply), sizeof(reply), MSG_NOSIGNAL | MSG_DONTWAIT, 0,
              0);
}

void IoThread::hang_up() {
  if (command_ >= 0) sys::close(command_);
  command_ = -1;
}

}  // namespace gpuckpt
