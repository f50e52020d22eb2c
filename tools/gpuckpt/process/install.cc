#include "process/install.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <fstream>
#include <vector>

#include <fmt/format.h>

namespace gpuckpt::cli {

using store::Status;

const Installation& installation() {
  static const Installation found = [] {
    Installation out;
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    std::string exe(path, n > 0 ? static_cast<size_t>(n) : 0);
    size_t slash = exe.rfind('/');
    std::string bin = slash == std::string::npos ? "." : exe.substr(0, slash);
    out.root = bin.substr(0, bin.rfind('/'));
    out.library = out.root + "/lib/libgpuckpt.so";
    out.writer = bin + "/gpuckpt-writer";
    out.launcher = bin + "/gpuckpt-launch";
    out.sim_folder = out.root + "/lib/simgpu";
    out.sim_driver = out.sim_folder + "/libcuda.so.1";
    out.sim_runtime = out.sim_folder + "/libcudart.so.13";
    out.sim_compilers = out.sim_folder + "/libsimgpu_compilers.so";
    out.sim_python = out.sim_folder + "/python";
    return out;
  }();
  return found;
}

bool readable(const std::string& path) { return access(path.c_str(), R_OK) == 0; }

std::string find_program(const std::string& name) {
  auto executable = [](const std::string& path) {
    struct stat st;
    return stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode) && access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != std::string::npos) return executable(name) ? name : "";
  const char* path = getenv("PATH");
  std::string list = path ? path : "/usr/local/bin:/usr/bin:/bin";
  for (size_t at = 0; at <= list.size();) {
    size_t end = std::min(list.find(':', at), list.size());
    std::string directory = list.substr(at, end - at);
    std::string candidate = (directory.empty() ? "." : directory) + "/" + name;
    if (executable(candidate)) return candidate;
    at = end + 1;
  }
  return "";
}

Status check_preloadable(const std::string& given) {
  std::string program = given;
  for (int depth = 0; depth < 5; ++depth) {
    std::ifstream in(program, std::ios::binary);
    char head[4096] = {};
    in.read(head, sizeof(head));
    size_t size = static_cast<size_t>(in.gcount());
    if (size == 0)
      return Status::Error(fmt::format("cannot read {}: {}", program, strerror(errno)));
    struct stat st;
    if (stat(program.c_str(), &st) == 0 && (st.st_mode & (S_ISUID | S_ISGID)) &&
        (st.st_uid != geteuid() || (st.st_mode & S_ISGID))) {
      return Status::Refused(
          fmt::format("{} is setuid or setgid: the system ignores LD_PRELOAD for it", program));
    }
    if (size > 2 && head[0] == '#' && head[1] == '!') {
      std::string line(head + 2, strnlen(head + 2, size - 2));
      line = line.substr(0, line.find('\n'));
      size_t from = line.find_first_not_of(" \t"), to = line.find_first_of(" \t", from);
      if (from == std::string::npos)
        return Status::Error(fmt::format("{} names no interpreter in its first line", program));
      std::string interpreter = line.substr(from, to - from);
      if (interpreter.ends_with("/env") && to != std::string::npos) {
        size_t argument = line.find_first_not_of(" \t", to);
        std::string name =
            argument == std::string::npos
                ? ""
                : line.substr(argument, line.find_first_of(" \t", argument) - argument);
        if (!name.empty() && name[0] != '-') {
          std::string found = find_program(name);
          if (!found.empty()) interpreter = found;
        }
      }
      program = interpreter;
      continue;
    }
    Elf64_Ehdr elf;
    if (size < sizeof(elf) || memcmp(head, ELFMAG, SELFMAG) != 0)
      return Status::Ok();  // exec reports what it is
    memcpy(&elf, head, sizeof(elf));
    if (elf.e_ident[EI_CLASS] != ELFCLASS64) {
      return Status::Refused(
          fmt::format("{} is a 32-bit program; gpuckpt snapshots 64-bit x86 programs", program));
    }
    if (elf.e_machine != EM_X86_64) {
      return Status::Refused(fmt::format(
          "{} is built for another processor (ELF machine {}); gpuckpt snapshots x86-64 programs",
          program, elf.e_machine));
    }
    std::vector<Elf64_Phdr> headers(elf.e_phnum);
    in.clear();
    in.seekg(static_cast<std::streamoff>(elf.e_phoff));
    in.read(reinterpret_cast<char*>(headers.data()),
            static_cast<std::streamsize>(headers.size() * sizeof(Elf64_Phdr)));
    for (const Elf64_Phdr& header : headers) {
      if (header.p_type != PT_INTERP) continue;
      std::string loader(std::min<uint64_t>(header.p_filesz, 255), 0);
      in.clear();
      in.seekg(static_cast<std::streamoff>(header.p_offset));
      in.read(loader.data(), static_cast<std::streamsize>(loader.size()));
      loader = loader.c_str();
      if (loader.find("ld-linux") == std::string::npos) {
        return Status::Refused(
            fmt::format("{} uses the loader {}, not glibc's: gpuckpt does not support that libc",
                        program, loader));
      }
      return Status::Ok();
    }
    return Status::Refused(fmt::format(
        "{} is statically linked: LD_PRELOAD cannot reach it; link it dynamically", program));
  }
  return Status::Error(fmt::format("{}: too many levels of #! lines", given));
}

Status check_loads(const std::string& program, const std::string& preload,
                   const std::string& must_contain) {
  int out[2];
  if (pipe2(out, O_CLOEXEC) != 0)
    return Status::Error(fmt::format("cannot create a pipe: {}", strerror(errno)));
  pid_t child = fork();
  if (child < 0) return Status::Error(fmt::format("cannot fork: {}", strerror(errno)));
  if (child == 0) {
    // glibc's loader lists what it would load, and exits before the program's first instruction.
    setenv("LD_TRACE_LOADED_OBJECTS", "1", 1);
    setenv("LD_PRELOAD", preload.c_str(), 1);
    dup2(out[1], 1);
    dup2(out[1], 2);
    int null = open("/dev/null", O_RDONLY);
    if (null >= 0) dup2(null, 0);
    execl(program.c_str(), program.c_str(), nullptr);
    _exit(127);
  }
  close(out[1]);
  std::string text;
  char buffer[4096];
  // The loader needs far less than ten seconds; a program that takes longer does more than list its
  // libraries.
  for (int waited = 0; waited < 100;) {
    pollfd p{out[0], POLLIN, 0};
    int ready = poll(&p, 1, 100);
    if (ready == 0) ++waited;
    if (ready <= 0) continue;
    ssize_t n = read(out[0], buffer, sizeof(buffer));
    if (n <= 0) break;
    text.append(buffer, static_cast<size_t>(n));
  }
  close(out[0]);
  kill(child, SIGKILL);
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  size_t trouble = text.find("cannot be preloaded");
  if (trouble == std::string::npos && text.find(must_contain) != std::string::npos)
    return Status::Ok();
  std::string why = text;
  if (trouble != std::string::npos) {
    size_t from = text.rfind('\n', trouble), to = text.find('\n', trouble);
    from = from == std::string::npos ? 0 : from + 1;
    why = text.substr(from, to - from);
  } else if (size_t version = text.find("version `"); version != std::string::npos) {
    size_t from = text.rfind('\n', version);
    from = from == std::string::npos ? 0 : from + 1;
    why = text.substr(from, text.find('\n', version) - from);
  }
  if (why.size() > 400) why.resize(400);
  return Status::Refused(fmt::format("libgpuckpt.so does not load into {}: {}", program,
                                     why.empty() ? "the loader says nothing" : why));
}

}  // namespace gpuckpt::cli
