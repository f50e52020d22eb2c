#include "restore/preflight/checks.h"

#include <cpuid.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "base/files/file_time.h"
#include "base/procfs/proc.h"
#include "base/text/text.h"
#include "restore/descriptors/socket_names.h"
#include "restore/files/removed_files.h"
#include "restore/files/unnoticed_open.h"
#include "restore/files/written_files.h"
#include "restore/memory/vdso.h"

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

// Bits of cpuid that say which instructions a program can use. The other bits concern the kernel,
// or differ between machines that run the same programs (hypervisor, topology, mitigations).
struct Feature {
  uint32_t leaf, subleaf;
  int word;  // 1 ebx, 2 ecx, 3 edx, 0 eax
  int bit;
  const char* name;
};
constexpr Feature kFeatures[] = {
    {1, 0, 2, 0, "sse3"},
    {1, 0, 2, 1, "pclmulqdq"},
    {1, 0, 2, 9, "ssse3"},
    {1, 0, 2, 12, "fma"},
    {1, 0, 2, 13, "cx16"},
    {1, 0, 2, 19, "sse4_1"},
    {1, 0, 2, 20, "sse4_2"},
    {1, 0, 2, 22, "movbe"},
    {1, 0, 2, 23, "popcnt"},
    {1, 0, 2, 25, "aes"},
    {1, 0, 2, 26, "xsave"},
    {1, 0, 2, 27, "osxsave"},
    {1, 0, 2, 28, "avx"},
    {1, 0, 2, 29, "f16c"},
    {1, 0, 2, 30, "rdrand"},
    {7, 0, 1, 0, "fsgsbase"},
    {7, 0, 1, 3, "bmi1"},
    {7, 0, 1, 4, "hle"},
    {7, 0, 1, 5, "avx2"},
    {7, 0, 1, 8, "bmi2"},
    {7, 0, 1, 9, "erms"},
    {7, 0, 1, 11, "rtm"},
    {7, 0, 1, 16, "avx512f"},
    {7, 0, 1, 17, "avx512dq"},
    {7, 0, 1, 18, "rdseed"},
    {7, 0, 1, 19, "adx"},
    {7, 0, 1, 21, "avx512ifma"},
    {7, 0, 1, 23, "clflushopt"},
    {7, 0, 1, 24, "clwb"},
    {7, 0, 1, 28, "avx512cd"},
    {7, 0, 1, 29, "sha_ni"},
    {7, 0, 1, 30, "avx512bw"},
    {7, 0, 1, 31, "avx512vl"},
    {7, 0, 2, 1, "avx512vbmi"},
    {7, 0, 2, 4, "ospke"},
    {7, 0, 2, 5, "waitpkg"},
    {7, 0, 2, 6, "avx512_vbmi2"},
    {7, 0, 2, 8, "gfni"},
    {7, 0, 2, 9, "vaes"},
    {7, 0, 2, 10, "vpclmulqdq"},
    {7, 0, 2, 11, "avx512_vnni"},
    {7, 0, 2, 12, "avx512_bitalg"},
    {7, 0, 2, 14, "avx512_vpopcntdq"},
    {7, 0, 2, 22, "rdpid"},
    {7, 0, 2, 25, "cldemote"},
    {7, 0, 2, 27, "movdiri"},
    {7, 0, 2, 28, "movdir64b"},
    {7, 0, 3, 2, "avx512_4vnniw"},
    {7, 0, 3, 3, "avx512_4fmaps"},
    {7, 0, 3, 4, "fsrm"},
    {7, 0, 3, 8, "avx512_vp2intersect"},
    {7, 0, 3, 14, "serialize"},
    {7, 0, 3, 22, "amx_bf16"},
    {7, 0, 3, 23, "avx512_fp16"},
    {7, 0, 3, 24, "amx_tile"},
    {7, 0, 3, 25, "amx_int8"},
    {7, 1, 0, 0, "sha512"},
    {7, 1, 0, 4, "avx_vnni"},
    {7, 1, 0, 5, "avx512_bf16"},
    {7, 1, 0, 21, "amx_fp16"},
    {7, 1, 0, 23, "avx_ifma"},
    {0x80000001, 0, 2, 0, "lahf_lm"},
    {0x80000001, 0, 2, 5, "lzcnt"},
    {0x80000001, 0, 2, 6, "sse4a"},
    {0x80000001, 0, 2, 8, "prefetchw"},
    {0x80000001, 0, 2, 11, "xop"},
    {0x80000001, 0, 2, 16, "fma4"},
    {0x80000001, 0, 2, 21, "tbm"},
    {0x80000001, 0, 2, 29, "monitorx"},
    {0x80000001, 0, 3, 27, "rdtscp"},
};

uint32_t word(const Cpuid& c, int n) {
  return n == 0 ? c.eax : n == 1 ? c.ebx : n == 2 ? c.ecx : c.edx;
}

// The number that /proc/self/status has behind `name`; 0: none.
uint32_t own_status(const char* name) {
  char text[8192];
  if (read_file("/proc/self/status", text, sizeof(text)) <= 0) return 0;
  const char* s = status_field(text, name);
  return static_cast<uint32_t>(scan_dec(&s));
}

// Are there fewer system call filters here? Where the kernel does not count them, the modes tell.
bool has_fewer_filters(const Image& image) {
  if (own_status("Seccomp:") < image.head.seccomp) return true;
  const uint32_t here = own_status("Seccomp_filters:");
  return image.head.seccomp && here && here < image.system_filters;
}

// Whether the file is a standard stream of the restore: then the restored program gets it from
// there.
bool is_standard_stream(const Image& image, const std::string& path) {
  for (const auto& [d, name] : image.fds)
    if (d.fd <= 2 && name == path) return true;
  return false;
}

}  // namespace

bool is_unchanged(const MappedFile& f, const std::string& path) {
  struct stat st;
  return f.mtime_ns && stat(path.c_str(), &st) == 0 &&
         static_cast<uint64_t>(st.st_size) == f.size && mtime_of(st) == f.mtime_ns;
}

std::string check_filters(const Image& image) {
  if (!has_fewer_filters(image)) return "";
  return "the program ran under a seccomp filter, which cannot be put back; restore inside the "
         "same "
         "kind of sandbox";
}

std::vector<std::string> check_machine(const Image& image) {
  std::vector<std::string> wrong;
  bool layout = false;
  uint32_t saves = 0;  // XCR0: the register components that the program's CPU saved
  for (const Cpuid& c : image.cpu)
    if (c.leaf == 0xffff0000) saves = c.eax;
  std::string lacking;
  for (const Cpuid& c : image.cpu) {
    Cpuid now = here(c);
    for (const Feature& f : kFeatures)
      if (f.leaf == c.leaf && f.subleaf == c.subleaf &&
          (word(c, f.word) >> f.bit & 1) > (word(now, f.word) >> f.bit & 1))
        lacking += (lacking.empty() ? "" : ", ") + std::string(f.name);
    // A CPU that saves more components is accepted; the program's components must be at the same
    // offsets (the kernel takes a signal frame with fewer components).
    if (c.leaf == 0xd && c.subleaf >= 2 && c.subleaf < 32 && saves >> c.subleaf & 1 &&
        (c.eax != now.eax || c.ebx != now.ebx))
      layout = true;
    if (c.leaf == 0xffff0000 && (c.eax & ~now.eax || c.edx & ~now.edx)) layout = true;
  }
  if (!lacking.empty())
    wrong.push_back("this CPU lacks instructions that the program's CPU had (" + lacking +
                    ") and that code already chosen may use; restore on the same or a newer CPU "
                    "model");
  if (layout)
    wrong.push_back(
        "this CPU saves its registers in another layout than the program's CPU (XSAVE); restore on "
        "the same CPU model");

  if (geteuid() != 0 && geteuid() != image.head.uid[1])
    wrong.push_back("the program ran as user " + std::to_string(image.head.uid[1]) +
                    ", this is user " + std::to_string(geteuid()) + "; restore as that user");
  return wrong;
}

Paths restored_files(const Tree& tree) {
  Paths paths;
  for (const auto& m : tree.members)
    for (const auto& [o, path] : m->image.shared)
      if (o.kind == kSharedShm || o.kind == kSharedFile) paths.insert(path);
  return paths;
}

Paths written_files(const Tree& tree) {
  Paths paths;
  for (const auto& m : tree.members)
    for (const auto& [d, path] : m->image.fds)
      if (d.kind == kFdFile && (d.flags & 3) != 0) paths.insert(path);
  return paths;
}

namespace {

// Whether the file can be made there, together with missing folders above it.
bool may_make(const std::string& path) {
  std::string folder = path;
  do folder.resize(std::max<size_t>(folder.rfind('/'), 1));
  while (access(folder.c_str(), F_OK) != 0 && errno == ENOENT && folder != "/");
  return access(folder.c_str(), W_OK | X_OK) == 0;
}

// Is this file the name of a socket of the process? Then it is made again with it.
bool is_socket_name(const Image& image, const std::string& path) {
  return std::any_of(image.sockets.begin(), image.sockets.end(), [&](const Image::Socket& entry) {
    const std::string bound = entry.head.mode ? file_name(entry.head) : "";
    return bound.starts_with("/") ? bound == path : !bound.empty() && path.ends_with("/" + bound);
  });
}

}  // namespace

std::vector<std::string> check_files(const Image& image, const Paths& restored,
                                     const Paths& written, const Paths& stored,
                                     const Options& options) {
  std::vector<std::string> wrong;
  if (std::string text = vdso_mismatch(image); !text.empty()) wrong.push_back(text);
  auto complain = [&](const std::string& path, const std::string& what) {
    wrong.push_back(path + " " + what);
  };

  for (const auto& [f, path] : image.files) {
    if (f.stored_space >= 0 || stored.count(path)) continue;
    struct stat st;
    if (stat(path.c_str(), &st) != 0)
      complain(path,
               "is mapped by the program and is not here (" + std::string(strerror(errno)) + ")");
    else if (!restored.count(path) &&
             (static_cast<uint64_t>(st.st_size) != f.size || mtime_of(st) != f.mtime_ns))
      complain(path, "is mapped by the program and has changed since the snapshot (it had " +
                         std::to_string(f.size) + " bytes)");
  }
  std::set<std::pair<std::string, uint32_t>> seen;
  for (const auto& [d, path] : image.fds) {
    const bool gone =
        (d.kind == kFdDirectory || d.kind == kFdFifo || d.kind == kFdPath) && d.value[0];
    if ((d.kind != kFdFile && d.kind != kFdDirectory && d.kind != kFdFifo && d.kind != kFdPath) ||
        gone || !seen.insert({path, d.flags & O_ACCMODE}).second)
      continue;
    struct stat st;
    const bool link = d.kind == kFdPath && S_ISLNK(d.mode), comes_back = stored.count(path);
    if ((link ? lstat(path.c_str(), &st) : stat(path.c_str(), &st)) != 0) {
      if (comes_back) continue;
      // A named pipe has no contents: it is made again.
      if (d.kind == kFdFifo && errno == ENOENT && may_make(path)) continue;
      if (d.kind == kFdPath && errno == ENOENT && is_socket_name(image, path)) continue;
      complain(path, "was open and is not here (" + std::string(strerror(errno)) + ")");
      continue;
    }
    if (d.kind == kFdFifo && !S_ISFIFO(st.st_mode))
      complain(path, "was a named pipe, and something else is there now");
    if (d.kind != kFdFile) continue;
    const uint64_t size = static_cast<uint64_t>(st.st_size);
    if (comes_back) {
      // Written to where it is: the user must be allowed to all the same.
    } else if (!written.count(path)) {
      if (!restored.count(path) && (size != d.size || mtime_of(st) != d.mtime_ns))
        complain(path, "was open for reading and has changed since the snapshot");
    } else if (!options.keep_files && !restored.count(path) && size < d.size) {
      complain(path, "was open for writing and is shorter than at the snapshot (" +
                         std::to_string(size) + " of " + std::to_string(d.size) +
                         " bytes); --files=keep restores all the same");
    }
    if (access(path.c_str(), (d.flags & 3) == 0   ? R_OK
                             : (d.flags & 3) == 1 ? W_OK
                                                  : R_OK | W_OK) != 0 &&
        !(errno == EACCES && is_own_file(path)) &&
        !(options.running ? is_standard_stream(image, path)
                          : standard_stream_of(path, d.flags) >= 0))
      complain(path,
               "cannot be opened as the program had it (" + std::string(strerror(errno)) + ")");
  }
  for (std::string& text : check_removed(image)) wrong.push_back(std::move(text));
  struct stat st;
  if (!image.cwd_gone && stat(image.cwd.c_str(), &st) != 0)
    complain(image.cwd, "was the working directory and is not here");
  return wrong;
}

}  // namespace gpuckpt::restore
