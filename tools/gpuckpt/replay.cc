#include "replay.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "image/device_owner.h"
#include "image/process_records.h"
#include "image/spaces.h"
#include "process/process.h"
#include "process/store_owner.h"
#include "store/format/member.h"
#include "store/io/json_text.h"
#include "store/store.h"

namespace gpuckpt::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

struct Opened {
  std::unique_ptr<store::Store> store;
  std::unique_ptr<store::SnapshotReader> reader;
  json device;  // the blob "device"

  Status open(const std::string& reference) {
    Status status = become_owner_of(reference);
    if (!status.ok()) return status;
    status = store::open_reference(reference, {.any_owner = any_owner()}, &store, &reader);
    if (!status.ok()) return status;
    std::vector<uint8_t> blob;
    if (reader->blob("device", &blob).ok()) device = store::parse_json(blob);
    return Status::Ok();
  }
};

// A folder that the destructor removes with everything in it.
struct Work {
  fs::path path;
  ~Work() {
    std::error_code ignored;
    if (!path.empty()) fs::remove_all(path, ignored);
  }
  Status make() {
    std::string pattern = (fs::temp_directory_path() / "gpuckpt-replay-XXXXXX").string();
    if (!mkdtemp(pattern.data()))
      return Status::Error(fmt::format("{}: {}", pattern, strerror(errno)));
    path = pattern;
    return Status::Ok();
  }
};

// The files that one process can write: open for writing, or mapped shared.
Status written_by(const store::SnapshotReader& member, std::vector<std::string>* out) {
  std::vector<uint8_t> blob;
  std::vector<Record> records;
  if (Status status = member.blob("process", &blob); !status.ok()) return status;
  if (Status status = parse_records(blob, &records); !status.ok()) return status;
  for (const Record& record : records) {
    process::Descriptor d;
    process::SharedObject o;
    std::string path;
    if (record.type == process::kRecFd && record.get(&d) && (d.flags & O_ACCMODE) != O_RDONLY)
      path = record.text(sizeof(d));
    else if (record.type == process::kRecShared && record.get(&o) &&
             (o.kind == process::kSharedFile || o.kind == process::kSharedShm))
      path = record.text(sizeof(o));
    if (path.empty() || !fs::is_regular_file(path)) continue;
    if (std::find(out->begin(), out->end(), path) == out->end()) out->push_back(path);
  }
  return Status::Ok();
}

// The files of all processes. Driver calls are counted for each process alone, so only one may make
// any.
Status written_files(const store::SnapshotReader& reader, std::vector<std::string>* out) {
  for (uint32_t number : store::members_of(reader)) {
    const auto member = store::read_member(reader, number);
    std::vector<uint8_t> device;
    if (number && member->blob("device", &device).ok())
      return Status::Refused(
          "--replay compares the device memory of one process, and this snapshot has several "
          "processes that use a device");
    if (Status status = written_by(*member, out); !status.ok()) return status;
  }
  return Status::Ok();
}

bool write_text(const char* path, const std::string& text) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  bool ok = fd >= 0 && write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (fd >= 0) close(fd);
  return ok;
}

// Copies the time of a file: a restore checks it for files that are mapped.
bool keep_time(const fs::path& from, const fs::path& to) {
  struct stat st;
  if (stat(from.c_str(), &st)) return false;
  const timespec times[] = {st.st_atim, st.st_mtim};
  return utimensat(AT_FDCWD, to.c_str(), times, 0) == 0;
}

// Called in the child: from here on these paths are copies. False: that is not allowed here.
bool hide_files(const std::vector<std::string>& files, const fs::path& work) {
  if (files.empty()) return true;
  uid_t uid = geteuid();
  gid_t gid = getegid();
  if (unshare(uid ? CLONE_NEWUSER | CLONE_NEWNS : CLONE_NEWNS)) return false;
  if (uid && !(write_text("/proc/self/setgroups", "deny") &&
               write_text("/proc/self/uid_map", fmt::format("{} {} 1", uid, uid)) &&
               write_text("/proc/self/gid_map", fmt::format("{} {} 1", gid, gid))))
    return false;
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr)) return false;
  for (size_t i = 0; i < files.size(); ++i) {
    fs::path copy = work / fmt::format("file.{}", i);
    std::error_code error;
    fs::copy_file(files[i], copy, fs::copy_options::overwrite_existing, error);
    if (error || !keep_time(files[i], copy) ||
        mount(copy.c_str(), files[i].c_str(), nullptr, MS_BIND, nullptr))
      return false;
  }
  return true;
}

// One restored program.
class Run {
 public:
  Run(const fs::path& work, int number)
      : work_(work), pid_file_(work / fmt::format("pid.{}", number)) {}
  ~Run() {
    if (restore_ <= 0) return;
    if (program_ > 0) kill(program_, SIGKILL);
    kill(-restore_, SIGKILL);
    waitpid(restore_, nullptr, 0);
  }

  Status start(const std::string& reference, const std::vector<std::string>& files,
               uint64_t steps) {
    std::string steps_text = std::to_string(steps), log = (work_ / "restore.log").string();
    restore_ = fork();
    if (restore_ < 0) return Status::Error(fmt::format("fork: {}", strerror(errno)));
    if (restore_ == 0) {
      setpgid(0, 0);
      int null = open("/dev/null", O_RDWR);
      int to = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      dup2(null, 0), dup2(null, 1), dup2(to, 2);
      if (!hide_files(files, work_)) {
        dprintf(2, "files it has open for writing cannot be hidden from it: %s\n", strerror(errno));
        _exit(kExitRefused);
      }
      execl("/proc/self/exe", "gpuckpt", "restore", reference.c_str(), "--files=keep", "--steps",
            steps_text.c_str(), "--pid-file", pid_file_.c_str(), nullptr);
      _exit(kExitLauncher);
    }
    for (;;) {
      if (Status status = alive(); !status.ok()) return status;
      std::ifstream in(pid_file_);
      if (in >> program_) return Status::Ok();
      std::this_thread::sleep_for(milliseconds(5));
    }
  }

  // Ok while the program runs.
  Status alive() {
    int status = 0;
    if (waitpid(restore_, &status, WNOHANG) != restore_) return Status::Ok();
    restore_ = 0;
    std::ifstream in(work_ / "restore.log");
    std::string words((std::istreambuf_iterator<char>(in)), {});
    while (!words.empty() && words.back() == '\n') words.pop_back();
    if (WIFEXITED(status) && WEXITSTATUS(status) == kExitRefused && program_ == 0)
      return Status::Refused(words);
    return Status::Error(program_ ? fmt::format("the restored program ended before it was compared "
                                                "(status {:#x}): choose a shorter --seconds{}{}",
                                                status, words.empty() ? "" : "; ", words)
                                  : fmt::format("it cannot be restored: {}", words));
  }

  // Takes a snapshot into the store of the comparison; the program ends with it.
  Status stop(uint64_t timeout_ms, std::string* id) {
    wire::CtlRequest request = make_request(wire::kCtlCheckpoint);
    request.flags |= wire::kCtlStop;
    request.timeout_ms = timeout_ms;
    std::string store = (work_ / "store").string();
    if (store.size() >= sizeof(request.store))
      return Status::Error("the path in TMPDIR is too long; set it to a shorter one");
    memcpy(request.store, store.c_str(), store.size() + 1);
    wire::CtlReply reply;
    if (Status status = ask(program_, request, &reply); !status.ok()) return status;
    *id = reply.id;
    return Status::Ok();
  }

 private:
  fs::path work_, pid_file_;
  pid_t restore_ = 0;
  int program_ = 0;
};

// The first byte that differs. Contents are compared chunk by chunk, so the first chunk of `d` is
// read.
uint64_t first_byte(const store::Difference& d, const Opened& first, const Opened& second) {
  std::vector<uint8_t> a(std::min<uint64_t>(d.length, 64 << 10)), b(a.size());
  if (d.kind != store::Difference::kChanged || !first.reader->read(d.space, d.address, a).ok() ||
      !second.reader->read(d.space, d.address, b).ok())
    return d.address;
  return d.address +
         static_cast<uint64_t>(std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin());
}

json describe(const store::Difference& d, const Opened& first, const Opened& second) {
  static const char* kinds[] = {"differs", "only in the first", "only in the second"};
  uint64_t device = (d.space & wire::kPlainSpace) - wire::kSpaceDeviceBase;
  uint64_t address = first_byte(d, first, second);
  const Opened& side = d.kind == store::Difference::kOnlySecond ? second : first;
  json owner = device_owner(side.device, device, address);
  return {{"device", device},        {"address", fmt::format("{:#x}", address)},
          {"bytes", d.length},       {"kind", kinds[d.kind]},
          {"in", owner_name(owner)}, {"from", owner_site(side.device, owner, *side.reader)}};
}

std::string sentence(const json& first) {
  std::string text = fmt::format(
      "first difference: device {}, {} ({} bytes, {}), in {}", first["device"].get<uint64_t>(),
      first["address"].get<std::string>(), first["bytes"].get<uint64_t>(),
      first["kind"].get<std::string>(), first["in"].get<std::string>());
  for (const json& frame : first["from"]) text += "\n  from " + frame.get<std::string>();
  return text;
}

}  // namespace

Status verify_replay(const ReplayOptions& options, Context* context) {
  Opened original, first, second;
  if (Status status = original.open(options.reference); !status.ok()) return status;
  if (!original.device.is_object())
    return Status::Refused("--replay compares device memory, and this snapshot has none");
  std::vector<std::string> files;
  if (Status status = written_files(*original.reader, &files); !status.ok()) return status;
  Work work;
  if (Status status = work.make(); !status.ok()) return status;

  std::string id;
  {
    Run run(work.path, 1);
    if (Status status = run.start(options.reference, files, ~uint64_t{0}); !status.ok())
      return status;
    auto until = Clock::now() + milliseconds(options.run_ms);
    while (Clock::now() < until) {
      if (Status status = run.alive(); !status.ok()) return status;
      std::this_thread::sleep_for(milliseconds(10));
    }
    if (Status status = run.stop(options.timeout_ms, &id); !status.ok()) return status;
  }
  std::string store = (work.path / "store").string();
  if (Status status = first.open(store + "@" + id); !status.ok()) return status;
  uint64_t steps = first.device.value("steps", uint64_t{0});
  {
    Run run(work.path, 2);
    if (Status status = run.start(options.reference, files, steps); !status.ok()) return status;
    if (Status status = run.stop(options.timeout_ms, &id); !status.ok()) return status;
  }
  if (Status status = second.open(store + "@" + id); !status.ok()) return status;

  json at = nullptr;
  uint64_t bytes = 0;
  std::vector<store::Difference> differences;
  if (Status status = store::compare(*first.reader, *second.reader, &differences); !status.ok())
    return status;
  for (const store::Difference& d : differences) {
    if ((d.space & wire::kPlainSpace) < wire::kSpaceDeviceBase) continue;
    bytes += d.length;
    if (at.is_null()) at = describe(d, first, second);
  }
  if (context->json)
    print_json(
        json({{"ok", at.is_null()}, {"steps", steps}, {"different_bytes", bytes}, {"first", at}}));
  else if (at.is_null())
    print("{}  the same twice: {} calls on\n", original.reader->id(), steps);
  else
    print("{}  DIFFERENT: {} bytes of device memory, {} calls on\n{}\n", original.reader->id(),
          bytes, steps, sentence(at));
  if (!at.is_null()) context->exit_code = kExitWarnings;
  return Status::Ok();
}

}  // namespace gpuckpt::cli
