// gpuckpt doctor: checks whether snapshots work on this machine. Each line says ok, warn or fail,
// and what to do.

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <initializer_list>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "process/install.h"
#include "restore/pager/pager.h"
#include "restore/preflight/process_ids.h"
#include "store/format/sizes.h"
#include "store/io/json_text.h"
#include "store/store.h"
#include "stores/writable_store.h"
#include "verb.h"

namespace gpuckpt::cli {
namespace {

enum Grade { kOk, kWarn, kFail };

struct Finding {
  const char* name;
  Grade grade;
  std::string text;
  std::string remedy;
};

struct Options {
  std::string store, window = "30s";
  std::string sim;
};

std::string first_line(const char* path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

Finding check_machine() {
  utsname name{};
  uname(&name);
  if (strcmp(name.machine, "x86_64") != 0) {
    return {"machine", kFail, fmt::format("{}", name.machine), "gpuckpt runs on x86-64 only"};
  }
  return {"machine", kOk, fmt::format("{} {} {}", name.sysname, name.release, name.machine), ""};
}

Finding check_installation() {
  const Installation& own = installation();
  for (const std::string& path : {own.library, own.writer, own.launcher}) {
    if (!readable(path))
      return {"installation", kFail, path + " is missing", "build or install gpuckpt completely"};
  }
  return {"installation", kOk, own.root, ""};
}

Finding check_library() {
  Status status = check_loads("/proc/self/exe", installation().library, installation().library);
  if (!status.ok())
    return {"library", kFail, status.text(),
            "a newer glibc is needed, or a gpuckpt built on this system"};
  return {"library", kOk, "libgpuckpt.so loads", ""};
}

Finding check_clone3() {
  // clone3 itself refuses a size of zero before it does anything (EINVAL); a filter or an old
  // kernel answers ENOSYS or EPERM.
  syscall(SYS_clone3, nullptr, 0);
  if (errno == EINVAL || errno == E2BIG) return {"clone3", kOk, "available", ""};
  return {
      "clone3", kWarn, fmt::format("not available ({})", strerror(errno)),
      "restored programs get new process and thread ids; containers: use a newer seccomp profile"};
}

// Checks that they can be made and used: in a container, for instance, /proc may not be mounted in
// a new one.
Finding check_namespaces() {
  const std::string why = restore::why_no_ids_in_namespace();
  if (why.empty())
    return {"namespaces", kOk, "namespaces can be made: restored programs keep their ids", ""};
  return {"namespaces", kWarn, why,
          "restored programs get new ids unless run as root where their ids are free; sysctl "
          "user.max_user_namespaces, kernel.unprivileged_userns_clone or "
          "kernel.apparmor_restrict_unprivileged_userns; a container: its seccomp profile, and a "
          "/proc without masked parts"};
}

// Checks that the processes of a job can get their ids back, by which they know each other.
Finding check_job_ids() {
  const std::string why = restore::why_no_job_ids();
  if (why.empty()) return {"jobs", kOk, "programs of several processes keep their ids", ""};
  return {"jobs", kWarn, "programs of several processes could not be restored here (" + why + ")",
          "restore them as root, or allow user namespaces (see above)"};
}

// The error of making a userfaultfd with these features; 0: it can be made. `exists`: one without
// features can be made.
int userfaultfd_error(int flags, uint64_t features, bool* exists) {
  const int fd = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | flags));
  *exists = fd >= 0;
  uffdio_api api{UFFD_API, features, 0};
  const int error = fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0 ? 0 : errno;
  if (fd >= 0) close(fd);
  return error;
}

// Whether the kernel keeps a bit for each page that was written (CONFIG_MEM_SOFT_DIRTY). It is set
// for a new page.
bool soft_dirty_works() {
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  *static_cast<volatile char*>(page) = 1;
  uint64_t word = 0;
  const int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  const off_t at = static_cast<off_t>(reinterpret_cast<uint64_t>(page) / 4096 * sizeof(word));
  const bool read = fd >= 0 && pread(fd, &word, sizeof(word), at) == sizeof(word);
  if (fd >= 0) close(fd);
  munmap(page, 4096);
  return read && word >> 55 & 1;
}

Finding check_tracking() {
  constexpr const char* name = "written pages";
  bool exists;
  const int error =
      userfaultfd_error(UFFD_USER_MODE_ONLY, 1ull << 15 /* UFFD_FEATURE_WP_ASYNC */, &exists);
  if (!exists) {
    return {name, kWarn, fmt::format("no userfaultfd ({})", strerror(error)),
            "changed pages are found by comparing contents, which is slower; sysctl "
            "vm.unprivileged_userfaultfd=1"};
  }
  if (!error) return {name, kOk, "tracked by userfaultfd", ""};
  if (soft_dirty_works() &&
      !userfaultfd_error(UFFD_USER_MODE_ONLY, UFFD_FEATURE_PAGEFAULT_FLAG_WP, &exists))
    return {name, kOk, "tracked by soft-dirty bits", ""};
  return {name, kWarn, "cannot be tracked (userfaultfd of Linux 6.7, or soft-dirty bits)",
          "changed pages are found by comparing contents"};
}

Finding check_lazy() {
  bool exists;
  using restore::kPagerEvents;
  if (!userfaultfd_error(0, kPagerEvents | restore::kPagerForkEvent, &exists))
    return {"restore --lazy", kOk, "a program can run before its memory is read", ""};
  const int error = userfaultfd_error(UFFD_USER_MODE_ONLY, kPagerEvents, &exists);
  if (!error)
    return {"restore --lazy", kOk,
            "a program can run before its memory is read; it is traced until then", ""};
  return {"restore --lazy", kWarn, fmt::format("not possible ({})", strerror(error)),
          "all memory is read before the program runs; root (CAP_SYS_PTRACE) needs not wait"};
}

Finding check_pagemap_scan() {
  struct {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, inverted, mask, anyof, ret;
  } scan{};
  scan.size = sizeof(scan);
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  uint64_t region[3] = {};
  scan.start = reinterpret_cast<uint64_t>(page);
  scan.end = scan.start + 4096;
  scan.vec = reinterpret_cast<uint64_t>(region);
  scan.vec_len = 1;
  scan.ret = 1 << 3;  // PAGE_IS_PRESENT
  int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  long r = ioctl(fd, _IOWR('f', 16, scan), &scan);
  int error = errno;
  if (fd >= 0) close(fd);
  munmap(page, 4096);
  if (r >= 0) return {"pagemap scan", kOk, "available", ""};
  return {"pagemap scan", kWarn, fmt::format("not available ({})", strerror(error)),
          "Linux 6.7 has it; memory is read through /proc/self/pagemap"};
}

Finding check_huge_pages() {
  std::string huge = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
  if (huge.find("[never]") != std::string::npos) {
    return {"huge pages", kWarn, "transparent huge pages are off",
            "copying large processes stops them longer (25 ms per GiB)"};
  }
  return {"huge pages", kOk, huge.empty() ? "unknown" : huge, ""};
}

std::string driver_version(const std::string& path) {
  // In a child process, because a real driver starts threads and maps the GPU.
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return "";
  pid_t child = fork();
  if (child == 0) {
    void* driver = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    int version = 0, count = 0;
    std::string text;
    if (!driver) {
      text = std::string("!") + dlerror();
    } else {
      auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
      auto get_version = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDriverGetVersion"));
      auto get_count = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
      if (!init || !get_version || !get_count) {
        text = "!it is not a CUDA driver";
      } else {
        int result = init(0);
        get_version(&version);
        if (result == 0) get_count(&count);
        text = result == 0 ? fmt::format("CUDA {}.{}, {} device{}", version / 1000,
                                         version % 1000 / 10, count, count == 1 ? "" : "s")
                           : fmt::format("!cuInit fails with error {}", result);
      }
    }
    (void)!write(fds[1], text.data(), text.size());
    _exit(0);
  }
  close(fds[1]);
  std::string out;
  char buffer[512];
  for (ssize_t n; (n = read(fds[0], buffer, sizeof(buffer))) > 0;)
    out.append(buffer, static_cast<size_t>(n));
  close(fds[0]);
  waitpid(child, nullptr, 0);
  return out;
}

Finding check_driver(bool sim) {
  std::string path;
  if (const char* chosen = getenv("GPUCKPT_DRIVER"); chosen && *chosen) path = chosen;
  if (sim) path = installation().sim_driver;
  bool is_simulated = path == installation().sim_driver;
  if (path.empty()) path = "libcuda.so.1";
  std::string text = driver_version(path);
  if (!text.empty() && text[0] != '!')
    return {"driver", kOk, fmt::format("{}: {}{}", path, text, is_simulated ? " (simulated)" : ""),
            ""};
  if (path == "libcuda.so.1" && readable(installation().sim_driver)) {
    return {"driver", kWarn, "no NVIDIA driver here",
            "the simulated GPU works: gpuckpt run --sim; check it with gpuckpt doctor --sim"};
  }
  return {"driver", kFail,
          fmt::format("{}: {}", path, text.empty() ? "it ended while starting" : text.substr(1)),
          "install the NVIDIA driver, or set GPUCKPT_DRIVER"};
}

// Writes and syncs some MiB to measure the rate of the disk; leaves nothing behind.
double write_rate(const std::string& directory) {
  std::string path = fmt::format("{}/.gpuckpt-doctor.{}", directory, getpid());
  int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return 0;
  unlink(path.c_str());
  std::vector<char> block(8 << 20);
  for (size_t i = 0; i < block.size(); ++i) block[i] = static_cast<char>(i * 2654435761u >> 13);
  auto start = std::chrono::steady_clock::now();
  uint64_t written = 0;
  while (written < (64u << 20)) {
    if (write(fd, block.data(), block.size()) != static_cast<ssize_t>(block.size())) break;
    written += block.size();
  }
  bool synced = fsync(fd) == 0;
  std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  close(fd);
  return synced && written ? static_cast<double>(written) / took.count() : 0;
}

// How many bytes the newest snapshot added to the store; 0: there is none.
uint64_t newest_bytes(store::Store* store) {
  std::vector<store::SnapshotInfo> list;
  if (!store || !store->list(&list).ok() || list.empty()) return 0;
  auto meta = store::parse_json(list.back().meta);
  if (!meta.is_object() || !meta.contains("sizes") || !meta["sizes"].is_object()) return 0;
  return store::json_number(meta["sizes"], "stored_bytes");
}

// Compares how long a snapshot needs until it is durable with the time between a notice and the
// end.
Finding check_rate(double rate, store::Store* store, const std::string& window) {
  if (rate <= 0) return {"time to durable", kWarn, "could not be measured", "is the disk full?"};
  std::string text = fmt::format("{}/s to this disk: {:.1f} s for each GiB that is stored",
                                 store::show_size(static_cast<uint64_t>(rate)), (1 << 30) / rate);
  uint64_t bytes = newest_bytes(store);
  double expected = static_cast<double>(bytes) / rate;
  if (bytes)
    text += fmt::format("; the newest snapshot stored {}, one like it needs about {}",
                        store::show_size(bytes),
                        show_duration_us(static_cast<uint64_t>(expected * 1e6)));
  uint64_t window_ms = 0;
  parse_duration(window, &window_ms);
  if (expected * 1e3 > static_cast<double>(window_ms))
    return {"time to durable", kWarn,
            text + fmt::format(": longer than {}", show_duration_us(window_ms * 1000)),
            "snapshot more often (--every), so that less is new, or use a faster store"};
  return {"time to durable", kOk, text, ""};
}

std::vector<Finding> check_store(const std::string& given, const std::string& window) {
  std::vector<Finding> out;
  const std::string path = store_path(given);
  std::unique_ptr<store::Store> store;
  std::string directory;
  if (Status status = check_writable(path, &store, &directory); !status.ok()) {
    out.push_back({"store", kFail, status.text(), "choose another --store"});
    return out;
  }
  struct statvfs fs_info;
  uint64_t left =
      statvfs(directory.c_str(), &fs_info) == 0 ? uint64_t{fs_info.f_bavail} * fs_info.f_frsize : 0;
  out.push_back({"store", left < (1u << 30) ? kWarn : kOk,
                 fmt::format("{}: {}, {} free", path, store ? "present" : "will be made",
                             store::show_size(left)),
                 left < (1u << 30) ? "less than 1 GiB is free" : ""});
  double rate = write_rate(directory);
  out.push_back(check_rate(rate, store.get(), window));
  return out;
}

Status doctor(const Options& options, Context* context) {
  std::vector<Finding> findings = {check_machine(),   check_installation(),
                                   check_library(),   check_driver(simulated(options.sim)),
                                   check_clone3(),    check_namespaces(),
                                   check_job_ids(),   check_tracking(),
                                   check_lazy(),      check_pagemap_scan(),
                                   check_huge_pages()};
  for (Finding& finding : check_store(options.store, options.window))
    findings.push_back(std::move(finding));
  static const char* grades[] = {"ok", "warn", "fail"};
  Grade worst = kOk;
  nlohmann::json all = nlohmann::json::array();
  for (const Finding& finding : findings) {
    worst = std::max(worst, finding.grade);
    if (context->json) {
      all.push_back({{"name", finding.name},
                     {"grade", grades[finding.grade]},
                     {"text", finding.text},
                     {"remedy", finding.remedy}});
    } else {
      print("{:<5} {:<16} {}\n", grades[finding.grade], finding.name, finding.text);
      if (!finding.remedy.empty()) print("{:<5} {:<16} -> {}\n", "", "", finding.remedy);
    }
  }
  if (context->json) print_json(all);
  context->exit_code = worst == kFail ? kExitError : worst == kWarn ? kExitWarnings : kExitOk;
  return Status::Ok();
}

}  // namespace

void define_doctor(CommandLine& line, Context* context) {
  auto options = std::make_shared<Options>();
  options->store = "gpuckpt.store";
  Verb verb =
      line.verb("doctor", "Check whether snapshots will work here, and what to do where not");
  verb.option("--store", options->store, "The store to be used")
      .env("GPUCKPT_STORE")
      .show_default();
  add_sim(verb, &options->sim, "Check the simulated GPU instead of the installed driver");
  verb.option("--window", options->window,
              "Warn when a snapshot is expected to take longer until it is durable: the time "
              "between notice and end (AWS spot 120s, GCP and Kubernetes 30s)")
      .env("GPUCKPT_WINDOW")
      .duration()
      .show_default();
  add_json(verb, context);
  verb.footer(exit_codes({kExitOk, kExitError, kExitUsage, kExitWarnings}));
  verb.callback([options, context] { context->run([&] { return doctor(*options, context); }); });
}

}  // namespace gpuckpt::cli
