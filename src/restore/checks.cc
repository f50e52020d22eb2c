#include "restore/checks.h"

#include <cpuid.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <set>

namespace gpuckpt::restore {

using namespace process;

namespace {

Cpuid here(const Cpuid& saved) {
  Cpuid c{saved.leaf, saved.subleaf, 0, 0, 0, 0};
  if (saved.leaf == 0xffff0000)
    asm("xgetbv" : "=a"(c.eax), "=d"(c.edx) : "c"(0));
  else
    __cpuid_count(c.leaf, c.subleaf, c.eax, c.ebx, c.ecx, c.edx);
  return c;
}

uint64_t mtime_of(const struct stat& st) {
  return static_cast<uint64_t>(st.st_mtim.tv_sec) * 1000000000 +
         static_cast<uint64_t>(st.st_mtim.tv_nsec);
}

int own_seccomp() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("Seccomp:", 0) == 0) return std::stoi(line.substr(8));
  return 0;
}

}  // namespace

std::vector<std::string> check_machine(const Image& image) {
  std::vector<std::string> wrong;
  bool features = false, layout = false;
  for (const Cpuid& c : image.cpu) {
    Cpuid now = here(c);
    uint32_t missing = 0;
    if (c.leaf == 1) missing = (c.ecx & ~now.ecx) | (c.edx & ~now.edx);
    if (c.leaf == 7 && c.subleaf == 0)
      missing = (c.ebx & ~now.ebx) | (c.ecx & ~now.ecx) | (c.edx & ~now.edx);
    if (c.leaf == 7 && c.subleaf == 1) missing = c.eax & ~now.eax;
    if (c.leaf == 0x80000001) missing = (c.ecx & ~now.ecx) | (c.edx & ~now.edx);
    if (missing) features = true;
    if (c.leaf == 0xd && c.subleaf >= 2 && (c.eax != now.eax || c.ebx != now.ebx)) layout = true;
    if (c.leaf == 0xffff0000 && (c.eax != now.eax || c.edx != now.edx)) layout = true;
  }
  if (features)
    wrong.push_back(
        "this CPU lacks instructions that the program's CPU had; restore on the same or a newer "
        "CPU model");
  if (layout)
    wrong.push_back(
        "this CPU saves its registers in another layout than the program's CPU (XSAVE); restore on "
        "the same CPU model");

  const char* vdso = reinterpret_cast<const char*>(getauxval(AT_SYSINFO_EHDR));
  if (!vdso || memcmp(vdso, image.vdso_bytes.data(), image.vdso_bytes.size()) != 0) {
    std::string text = "the kernel's vdso differs from the one at the snapshot (kernel " +
                       std::string(image.head.kernel) + "); restore on that kernel";
    wrong.push_back(text);
  }
  if (own_seccomp() < static_cast<int>(image.head.seccomp))
    wrong.push_back(
        "the program ran under a seccomp filter, which cannot be put back; restore inside the same "
        "kind of sandbox");
  if (geteuid() != 0 && geteuid() != image.head.uid[1])
    wrong.push_back("the program ran as user " + std::to_string(image.head.uid[1]) +
                    ", this is user " + std::to_string(geteuid()) + "; restore as that user");
  return wrong;
}

std::vector<std::string> check_files(const Image& image, const Options& options) {
  std::vector<std::string> wrong;
  std::set<std::string> written;
  for (const auto& [d, path] : image.fds)
    if (d.kind == kFdFile && (d.flags & 3) != 0) written.insert(path);
  auto complain = [&](const std::string& path, const std::string& what) {
    wrong.push_back(path + " " + what);
  };

  for (const auto& [f, path] : image.files) {
    if (f.stored_space >= 0) continue;
    struct stat st;
    if (stat(path.c_str(), &st) != 0)
      complain(path,
               "is mapped by the program and is not here (" + std::string(strerror(errno)) + ")");
    else if (static_cast<uint64_t>(st.st_size) != f.size || mtime_of(st) != f.mtime_ns)
      complain(path, "is mapped by the program and has changed since the snapshot (it had " +
                         std::to_string(f.size) + " bytes)");
  }
  std::set<std::string> seen;
  for (const auto& [d, path] : image.fds) {
    if ((d.kind != kFdFile && d.kind != kFdDirectory && d.kind != kFdFifo) ||
        !seen.insert(path).second)
      continue;
    struct stat st;
    if (stat(path.c_str(), &st) != 0) {
      complain(path, "was open and is not here (" + std::string(strerror(errno)) + ")");
      continue;
    }
    if (d.kind != kFdFile) continue;
    const uint64_t size = static_cast<uint64_t>(st.st_size);
    if (!written.count(path)) {
      if (size != d.size || mtime_of(st) != d.mtime_ns)
        complain(path, "was open for reading and has changed since the snapshot");
    } else if (!options.keep_files && size < d.size) {
      complain(path, "was open for writing and is shorter than at the snapshot (" +
                         std::to_string(size) + " of " + std::to_string(d.size) +
                         " bytes); --files=keep restores all the same");
    }
    if (access(path.c_str(), (d.flags & 3) == 0   ? R_OK
                             : (d.flags & 3) == 1 ? W_OK
                                                  : R_OK | W_OK) != 0)
      complain(path,
               "cannot be opened as the program had it (" + std::string(strerror(errno)) + ")");
  }
  struct stat st;
  if (stat(image.cwd.c_str(), &st) != 0)
    complain(image.cwd, "was the working directory and is not here");
  return wrong;
}

}  // namespace gpuckpt::restore
