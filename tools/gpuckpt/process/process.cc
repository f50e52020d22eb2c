#include "process/process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include <fmt/format.h>

#include "base/files/session_folder.h"
#include "base/procfs/proc.h"
#include "process/obstacles.h"
#include "verb.h"

namespace gpuckpt::cli {

using store::Status;

namespace {

constexpr uint64_t kAnswerMs = 15'000;  // a parked or swapped-out process may need so long
constexpr uint64_t kBusyMs = 60'000;
constexpr uint64_t kWakeAgainMs = 3'000;
constexpr uint64_t kLookMs = 100;
constexpr uint64_t kSilentMs = 700;  // after this time it is checked whether it can answer at all

std::string whole_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

// A thread of the process that has not ended. In a program whose main thread ended by pthread_exit
// the leader is a zombie without memory, so what its threads share must be read through another
// one.
std::string living_thread(int pid) {
  std::string leader = fmt::format("/proc/{}", pid);
  auto dead = [](const std::string& folder) {
    ProcStat stat;
    return !read_stat((folder + "/stat").c_str(), &stat) || stat.ended();
  };
  if (!dead(leader)) return leader;
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator(leader + "/task", error))
    if (!dead(task.path())) return task.path();
  return leader;
}

// The value of "Name:" in the text of a status file.
std::string field_of(const std::string& status, const char* name) {
  std::istringstream in(status);
  std::string prefix = std::string(name) + ":", line;
  while (std::getline(in, line)) {
    if (!line.starts_with(prefix)) continue;
    size_t from = line.find_first_not_of(" \t", prefix.size());
    return from == std::string::npos ? "" : line.substr(from);
  }
  return "";
}

uint64_t now_ms() {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return static_cast<uint64_t>(ts.tv_sec) * 1000 + static_cast<uint64_t>(ts.tv_nsec) / 1'000'000;
}

Status wake(int pid) {
  siginfo_t info{};
  info.si_signo = wire::kWakeSignal;
  info.si_code = SI_QUEUE;
  info.si_pid = getpid();
  info.si_uid = getuid();
  info.si_value.sival_ptr = reinterpret_cast<void*>(wire::kWakeCookie);
  if (syscall(SYS_rt_sigqueueinfo, pid, wire::kWakeSignal, &info) == 0) return Status::Ok();
  if (errno == ESRCH) return Status::NotFound(fmt::format("there is no process {}", pid));
  if (errno == EPERM)
    return Status::Refused(fmt::format(
        "process {} belongs to another user: run gpuckpt as that user, or as root", pid));
  if (errno == EAGAIN)
    return Status::Error(fmt::format(
        "process {} cannot be signalled: its user has as many signals waiting as allowed "
        "(RLIMIT_SIGPENDING, `ulimit -i`); ask again when the process has taken some of them",
        pid));
  return Status::Error(fmt::format("cannot signal process {}: {}", pid, strerror(errno)));
}

uint32_t effective_user(int pid) {
  std::istringstream uids(status_field(pid, "Uid"));
  uint32_t real = 0, effective = 0;
  uids >> real >> effective;
  return effective;
}

// The number that a user has inside the process's user namespace; nothing: it is not mapped there.
std::optional<uint32_t> user_inside(int pid, uint32_t user) {
  std::error_code error;
  if (std::filesystem::read_symlink(fmt::format("/proc/{}/ns/user", pid), error) ==
      std::filesystem::read_symlink("/proc/self/ns/user", error))
    return user;
  std::istringstream map(proc_file(pid, "uid_map"));
  for (uint64_t inside, outside, count; map >> inside >> outside >> count;)
    if (user >= outside && user - outside < count)
      return static_cast<uint32_t>(inside + user - outside);
  return std::nullopt;
}

struct OwnSettings {
  std::string session, runtime;
};

OwnSettings settings_of(int pid) {
  OwnSettings out;
  std::istringstream environment(proc_file(pid, "environ"));
  for (std::string entry; std::getline(environment, entry, '\0');) {
    if (entry.starts_with("GPUCKPT_SESSION_DIR=")) out.session = entry.substr(entry.find('=') + 1);
    if (entry.starts_with("XDG_RUNTIME_DIR=")) out.runtime = entry.substr(entry.find('=') + 1);
  }
  return out;
}

// The folders in which the process may listen. Its environment names them, unless it has
// overwritten its environment with a title (as redis-server does): then this command's own, or the
// usual ones.
std::vector<std::string> session_folders(int pid) {
  const uint32_t user = effective_user(pid);
  std::vector<std::string> out;
  auto add = [&](const char* session, const char* runtime) {
    char folder[PATH_MAX];
    for (unsigned i = 0; session_folder({session, runtime}, user, i, folder, sizeof(folder)); ++i)
      if (std::find(out.begin(), out.end(), folder) == out.end()) out.push_back(folder);
  };
  const auto [session, runtime] = settings_of(pid);
  add(session.c_str(), runtime.c_str());
  // Its runtime folder may be in its own mount namespace.
  if (session.empty() && runtime.starts_with("/")) out.push_back(runtime + "/gpuckpt");
  add(getenv("GPUCKPT_SESSION_DIR"), getenv("XDG_RUNTIME_DIR"));
  add(nullptr, nullptr);
  char inside[PATH_MAX];
  if (session_folder({}, user_inside(pid, user).value_or(user), 0, inside, sizeof(inside)) &&
      std::find(out.begin(), out.end(), inside) == out.end())
    out.push_back(inside);
  return out;
}

// The process can listen nowhere, when another user took the name of each folder first.
Status check_session_folders(int pid) {
  const uint32_t user = effective_user(pid);
  if (user_inside(pid, user) != user) return Status::Ok();  // it has another number there
  const auto [session, runtime] = settings_of(pid);
  const std::string fault = fault_of_session_folders(session, runtime, user);
  if (fault.empty()) return Status::Ok();
  return Status::Refused(fmt::format(
      "process {} cannot answer, because its session folder {}: have that removed, or start the "
      "process with GPUCKPT_SESSION_DIR set to a folder of its own",
      pid, fault));
}

// The names under which the process may listen: it uses its pid in its own namespace, which may
// differ from the one known here.
std::vector<std::string> socket_paths(int pid) {
  const uint64_t start = start_time_of(pid);
  // The process may have another root folder or mount namespace.
  std::string root = fmt::format("/proc/{}/root", pid);
  std::vector<std::string> out;
  std::istringstream pids(field_of(whole_file(fmt::format("/proc/{}/status", pid)), "NSpid"));
  std::vector<std::string> names{std::to_string(pid)};
  std::string field;
  while (pids >> field) {
    if (field != names[0]) names.push_back(field);
  }
  for (const std::string& folder : session_folders(pid)) {
    const bool visible = access((root + folder).c_str(), X_OK) == 0;
    for (const std::string& name : names) {
      // A process that does not find itself in its /proc does not know when it started.
      for (uint64_t number : {start, uint64_t{0}}) {
        std::string tail = fmt::format("{}/{}-{}{}", folder, name, number, wire::kSocketEnding);
        out.push_back(tail);
        if (visible) out.push_back(root + tail);
      }
    }
  }
  return out;
}

// Reads and removes the note that a process left because it could not even listen (refusal_note.h);
// empty: there is none.
std::string take_note(const std::string& socket_path) {
  std::string path = socket_path;
  path.replace(path.size() - strlen(wire::kSocketEnding), std::string::npos, wire::kNoteEnding);
  char text[512];
  const ssize_t n = readlink(path.c_str(), text, sizeof(text));
  if (n <= 0) return "";
  unlink(path.c_str());
  return printable(std::string(text, static_cast<size_t>(n)), sizeof(text));
}

// Whether the session folder, or the one above it, exists below the process's root folder, where it
// would make its socket.
bool has_room_for_socket(int pid) {
  const std::string root = living_thread(pid) + "/root";
  for (const std::string& folder : session_folders(pid))
    for (const std::string& there : {folder, folder.substr(0, folder.rfind('/'))})
      if (access((root + there).c_str(), F_OK) == 0 || errno != ENOENT) return true;
  return false;
}

// Whether /proc is mounted below the process's root folder, where the library reads the state of
// its process.
bool has_proc(int pid) {
  const std::string root = living_thread(pid) + "/root";
  return access(root.c_str(), X_OK) != 0 || access((root + "/proc/version").c_str(), F_OK) == 0;
}

bool peer_is(int socket, int pid) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  // The user is that of the thread which listens: the program's may be another one by now, or
  // again.
  if (peer.pid == pid || peer.uid == 0) return true;
  std::istringstream users(status_field(pid, "Uid"));
  for (uid_t user; users >> user;)
    if (user == peer.uid) return true;
  return false;
}

// Connects by a path that may be too long for an address: then it is reached through a descriptor
// of its folder.
bool connect_to(int socket, const std::string& path) {
  const size_t slash = path.rfind('/');
  int folder = -1;
  std::string name = path;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    folder = open(path.substr(0, slash).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return false;
    name = fmt::format("/proc/thread-self/fd/{}{}", folder, path.substr(slash));
  }
  const bool fits = name.size() < sizeof(address.sun_path);
  if (fits) memcpy(address.sun_path, name.c_str(), name.size() + 1);
  const bool connected =
      fits && connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  if (folder >= 0) close(folder);
  return connected;
}

// In another user namespace root may have no rights over the process: then this acts as the
// process's own user.
int try_connect(const std::string& path, int pid) {
  int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const bool as_owner = geteuid() == 0 && !user_inside(pid, 0);
  if (as_owner && seteuid(effective_user(pid)) != 0) return close(fd), -1;
  const bool connected = connect_to(fd, path);
  if (as_owner && seteuid(0) != 0) abort();
  if (connected) return fd;
  close(fd);
  return -1;
}

// Whether the process is gone, or a zombie that its parent has not waited for.
bool ended(int pid) {
  if (kill(pid, 0) != 0 && errno == ESRCH) return true;
  std::string state = status_field(pid, "State");
  return state.starts_with("Z") || state.starts_with("X");
}

// " (status 3)", " (signal 9)"; empty where the kernel does not tell (before Linux 6.15, and until
// its parent has waited for it).
std::string how_it_ended(int pidfd) {
  struct {
    uint64_t mask, group;
    uint32_t numbers[3], ids[8];
    int32_t status;
  } info{};  // struct pidfd_info
  constexpr uint64_t kExit = 1 << 3;
  constexpr unsigned long kGetInfo = 0xc040ff0b;
  info.mask = kExit;
  if (pidfd < 0 || ioctl(pidfd, kGetInfo, &info) != 0 || !(info.mask & kExit)) return "";
  if (info.status & 0x7f) return fmt::format(" (signal {})", info.status & 0x7f);
  return fmt::format(" (status {})", info.status >> 8);
}

// Whether the process is ending: after it has released its memory and before it is a zombie it
// shows neither mappings nor a root folder nor descriptors.
bool ending(int pid) {
  constexpr uint64_t kExiting = 0x4;  // PF_EXITING
  ProcStat stat;
  return !read_stat((living_thread(pid) + "/stat").c_str(), &stat) ||
         (stat.field[ProcStat::kFlags] & kExiting);
}

std::string user_name(unsigned uid) {
  const passwd* user = getpwuid(uid);
  return user ? fmt::format("{} ({})", user->pw_name, uid) : std::to_string(uid);
}

// The reason why its mappings cannot be read.
Status why_hidden(int pid) {
  const std::string name = status_field(pid, "Name"), uids = status_field(pid, "Uid");
  if (uids.empty())
    return Status::Refused(fmt::format(
        "process {} belongs to another user, and this machine shows its users only their own "
        "processes (hidepid): ask as that user, or as root",
        pid));
  const auto uid = static_cast<unsigned>(strtoul(uids.c_str(), nullptr, 10));
  if (uid != geteuid() && geteuid() != 0)
    return Status::Refused(
        fmt::format("process {} ({}) belongs to user {}, not to you ({}): ask "
                    "as that user, or as root",
                    pid, name, user_name(uid), user_name(geteuid())));
  if (status_field(pid, "VmSize").empty())
    return Status::NotFound(fmt::format(
        "process {} ({}) is a thread of the kernel, or has ended: it has no memory to snapshot",
        pid, name));
  if (geteuid() == 0)
    return Status::Refused(fmt::format(
        "process {} ({}) may not be looked at, even by root: it has capabilities that you do not "
        "have here (a container or another user namespace), or the kernel protects it",
        pid, name));
  return Status::Refused(
      fmt::format("process {} ({}) has more rights than you or hides its memory "
                  "(PR_SET_DUMPABLE, set-user-ID): ask as root",
                  pid, name));
}

Status check_process(int pid) {
  std::string maps = proc_file(pid, "maps");
  if (maps.empty()) return why_hidden(pid);
  if (maps.find("libgpuckpt.so") == std::string::npos) {
    return Status::NotFound(fmt::format(
        "process {} ({}) does not run under gpuckpt: start it with `gpuckpt run -- ...`, or with "
        "LD_PRELOAD=libgpuckpt.so",
        pid, status_field(pid, "Name")));
  }
  if (status_field(pid, "State").starts_with("T")) {
    return Status(
        kExitTimeout,
        fmt::format("process {0} is stopped; let it go on (kill -CONT {0}) and ask again", pid));
  }
  if (Status status = may_be_signalled(pid); !status.ok()) return status;
  uint64_t caught = strtoull(status_field(pid, "SigCgt").c_str(), nullptr, 16);
  if (!(caught >> (wire::kWakeSignal - 1) & 1)) {
    return why_deaf(pid);
  }
  if (proc_file(pid, "uid_map").empty())
    return Status::Refused(fmt::format(
        "process {} ({}) is in a user namespace that knows no users (unshare -U): a restore could "
        "not give its ids back; give the namespace a map (unshare -Ur)",
        pid, status_field(pid, "Name")));
  if (!has_proc(pid))
    return Status::Refused(
        fmt::format("process {} ({}) cannot be snapshotted: there is no /proc in its root folder "
                    "(chroot), where gpuckpt reads what the process consists of; mount /proc there "
                    "before it starts",
                    pid, status_field(pid, "Name")));
  if (!has_room_for_socket(pid))
    return Status::Refused(
        fmt::format("process {} cannot be reached: the root folder that it changed to (chroot) has "
                    "neither /tmp nor its GPUCKPT_SESSION_DIR to answer in",
                    pid));
  return Status::Ok();
}

// What cannot be read of a process that ends meanwhile says nothing about it, and neither does it
// where its parent has waited for it already.
Status check_living_process(int pid) {
  if (kill(pid, 0) != 0 && errno == ESRCH)
    return Status::NotFound(fmt::format("there is no process {}", pid));
  Status status = check_process(pid);
  if (!status.ok() && (ended(pid) || ending(pid)))
    return Status::NotFound(fmt::format("process {} has ended already", pid));
  return status;
}

}  // namespace

std::string fault_of_session_folders(const std::string& session, const std::string& runtime,
                                     uint32_t user) {
  std::string first;
  // The library listens in a usual one where that of GPUCKPT_SESSION_DIR is of no use.
  for (const char* given : {session.c_str(), ""}) {
    char folder[PATH_MAX], fault[96];
    for (unsigned i = 0; session_folder({given, runtime.c_str()}, user, i, folder, sizeof(folder));
         ++i) {
      session_folder_fault(folder, user, fault, sizeof(fault));
      if (!fault[0]) return "";
      if (first.empty()) first = fmt::format("{} {}", folder, fault);
    }
  }
  return first;
}

std::string proc_file(int pid, const char* file) {
  return whole_file(fmt::format("{}/{}", living_thread(pid), file));
}

std::string status_field(int pid, const char* name) {
  return field_of(proc_file(pid, "status"), name);
}

wire::CtlRequest make_request(wire::CtlVerb verb) {
  wire::CtlRequest request{};
  request.magic = wire::kMagic;
  request.version = wire::kWireVersion;
  request.verb = verb;
  return request;
}

int process_beside(int pid, int inner) {
  auto space = [](const std::string& name) {
    std::error_code error;
    return std::filesystem::read_symlink("/proc/" + name + "/ns/pid", error).string();
  };
  const std::string ours = space(std::to_string(pid));
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    const int candidate = atoi(name.c_str());
    if (candidate <= 0 || space(name) != ours) continue;
    std::istringstream names(status_field(candidate, "NSpid"));
    int last = 0;
    while (names >> last) continue;
    if (last == inner) return candidate;
  }
  return 0;
}

Connection::~Connection() {
  if (socket_ >= 0) close(socket_);
  if (process_ >= 0) close(process_);
}

Status Connection::open(int pid, const wire::CtlRequest& request) {
  pid_ = pid;
  process_ = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (Status status = check_living_process(pid); !status.ok()) return status;
  request_ = request;
  return connect_and_ask();
}

Status Connection::connect_and_ask() {
  const int pid = pid_;
  std::vector<std::string> paths = socket_paths(pid);
  for (const std::string& path : paths) take_note(path);  // notes of earlier requests
  uint64_t start = now_ms(), woken = 0, looked = start;
  bool first = true;
  while (socket_ < 0) {
    uint64_t now = now_ms();
    if (now - start > kAnswerMs) {
      return Status(kExitTimeout, fmt::format("process {} did not answer within {} s{}", pid,
                                              kAnswerMs / 1000, what_keeps(pid)));
    }
    if (first || now - woken > kWakeAgainMs) {
      if (Status status = wake(pid); !status.ok()) return status;
      woken = now;
      first = false;
    }
    if (now - looked > kLookMs) {
      if (ended(pid))
        return Status::NotFound(fmt::format("process {} ended before it took the command", pid));
      for (const std::string& path : paths)
        if (std::string why = take_note(path); !why.empty())
          return Status::Error(fmt::format("process {}: {}", pid, why));
      if (now - start > kSilentMs) {
        if (Status status = check_session_folders(pid); !status.ok()) return status;
        if (Status status = why_silent(pid, now - start); !status.ok()) return status;
      }
      looked = now;
    }
    for (const std::string& path : paths) {
      socket_ = try_connect(path, pid_);
      if (socket_ < 0) continue;
      if (peer_is(socket_, pid)) break;
      close(socket_);
      socket_ = -1;
      return Status::Refused(fmt::format("{} is served by another user's process", path));
    }
    if (socket_ < 0) usleep(2000);
  }
  if (send(socket_, &request_, sizeof(request_), MSG_NOSIGNAL) ==
      static_cast<ssize_t>(sizeof(request_)))
    return Status::Ok();
  return may_ask_again() ? connect_and_ask() : hung_up();
}

// The library waits a second for the request of a connection; on a busy machine this command can be
// later.
bool Connection::may_ask_again() {
  if (answered_ || asked_again_ == kMostAgain || ended(pid_)) return false;
  ++asked_again_;
  close(socket_);
  socket_ = -1;
  return true;
}

Status Connection::hung_up() const {
  // A process that ends closes its sockets a moment before it counts as ended.
  bool gone = false;
  for (int i = 0; i < 20 && !gone; ++i) {
    if (i) usleep(10'000);
    gone = ended(pid_);
  }
  if (gone && !answered_)
    return Status::NotFound(
        fmt::format("process {} ended{} before it took the command", pid_, how_it_ended(process_)));
  if (gone)
    return Status::Error(fmt::format("process {} ended{} before the snapshot was durable", pid_,
                                     how_it_ended(process_)));
  // The library acknowledges a request before it begins: without that it did not accept the
  // command.
  if (!answered_) {
    if (Status status = has_descriptors_to_answer(pid_); !status.ok()) return status;
    return Status::Locked(fmt::format(
        "process {} was busy with another command and did not take this one: try again", pid_));
  }
  return Status::Error(fmt::format(
      "process {} hung up before the snapshot was durable; see its log (GPUCKPT_LOG)", pid_));
}

Status Connection::receive(uint64_t timeout_ms, wire::CtlReply* out) {
  pollfd p{socket_, POLLIN, 0};
  uint64_t deadline = now_ms() + timeout_ms;
  for (;;) {
    int wait = -1;
    if (timeout_ms) {
      uint64_t now = now_ms();
      if (now >= deadline)
        return Status(kExitTimeout, fmt::format("process {} did not answer in time", pid_));
      wait = static_cast<int>(std::min<uint64_t>(deadline - now, 1'000'000));
    }
    int ready = poll(&p, 1, wait);
    if (ready > 0) break;
    if (ready < 0 && errno != EINTR)
      return Status::Error(fmt::format("cannot wait for process {}: {}", pid_, strerror(errno)));
  }
  ssize_t n = recv(socket_, out, sizeof(*out), 0);
  if (n == 0 || (n < 0 && errno == ECONNRESET)) {
    if (!may_ask_again()) return hung_up();
    if (Status status = connect_and_ask(); !status.ok()) return status;
    return receive(timeout_ms, out);
  }
  if (n != static_cast<ssize_t>(sizeof(*out)) || out->magic != wire::kMagic ||
      out->version != wire::kWireVersion) {
    return Status::Incompatible(fmt::format(
        "process {} runs under another version of gpuckpt: use the gpuckpt it was started with",
        pid_));
  }
  answered_ = true;
  out->phase[sizeof(out->phase) - 1] = out->id[sizeof(out->id) - 1] =
      out->text[sizeof(out->text) - 1] = 0;
  return Status::Ok();
}

Status ask(int pid, const wire::CtlRequest& request, wire::CtlReply* reply, uint64_t timeout_ms) {
  Connection connection;
  if (Status status = connection.open(pid, request); !status.ok()) return status;
  do {
    if (Status status = connection.receive(timeout_ms, reply); !status.ok()) return status;
  } while (!reply->final);
  if (reply->code != kExitOk) return Status(static_cast<ExitCode>(reply->code), reply->text);
  return Status::Ok();
}

Status ask_when_free(int pid, const wire::CtlRequest& request, wire::CtlReply* reply) {
  const uint64_t until = now_ms() + (request.timeout_ms ? request.timeout_ms : kBusyMs);
  for (;;) {
    Status status = ask(pid, request, reply);
    if (status.code() != kExitLocked || now_ms() > until) return status;
    usleep(50000);
  }
}

}  // namespace gpuckpt::cli
