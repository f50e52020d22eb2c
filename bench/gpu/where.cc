// Where a program is, or where it dies, on a machine without a debugger.
//   where PID            the stacks of all its threads, once
//   where -- COMMAND     runs it and all it starts; every fatal signal is reported before it is
//                        delivered; ends as COMMAND does
// A report: signal, registers, and of the words on the stack those that point behind a call in
// code, as file+offset. No unwinder: works with broken stacks and files without symbols.
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace {

struct Map {
  uint64_t start, end, offset;
  bool code;
  std::string name;
};

std::vector<Map> maps_of(pid_t pid) {
  std::vector<Map> maps;
  char line[1024], flags[8], name[700];
  snprintf(line, sizeof line, "/proc/%d/maps", pid);
  FILE* file = fopen(line, "r");
  while (file && fgets(line, sizeof line, file)) {
    Map m;
    name[0] = 0;
    if (sscanf(line, "%lx-%lx %7s %lx %*s %*s %699[^\n]", &m.start, &m.end, flags, &m.offset,
               name) < 4)
      continue;
    m.code = flags[2] == 'x';
    const char* base = strrchr(name, '/');
    m.name = base ? base + 1 : name[0] ? name : "anonymous";
    maps.push_back(m);
  }
  if (file) fclose(file);
  return maps;
}

std::string place(const std::vector<Map>& maps, uint64_t at, bool* code = nullptr) {
  char text[64];
  for (const Map& m : maps)
    if (at >= m.start && at < m.end) {
      if (code) *code = m.code;
      snprintf(text, sizeof text, "+0x%lx (0x%lx)", at - m.start + m.offset, at);
      return m.name + text;
    }
  if (code) *code = false;
  snprintf(text, sizeof text, "0x%lx", at);
  return text;
}

size_t peek(pid_t pid, uint64_t at, void* to, size_t bytes) {
  iovec mine{to, bytes}, theirs{reinterpret_cast<void*>(at), bytes};
  ssize_t n = process_vm_readv(pid, &mine, 1, &theirs, 1, 0);
  return n > 0 ? static_cast<size_t>(n) : 0;
}

bool after_call(pid_t pid, uint64_t at) {
  unsigned char b[7] = {};
  if (peek(pid, at - 7, b, 7) != 7) return false;
  if (b[2] == 0xe8) return true;
  for (int i : {0, 1, 3, 4, 5})
    if (b[i] == 0xff && (b[i + 1] & 0x38) == 0x10) return true;
  return false;
}

// The thread is stopped.
void report(pid_t tid, const char* why) {
  user_regs_struct r = {};
  iovec io{&r, sizeof r};
  if (ptrace(PTRACE_GETREGSET, tid, NT_PRSTATUS, &io) != 0) return;
  char name[64] = "", path[64];
  snprintf(path, sizeof path, "/proc/%d/comm", tid);
  if (FILE* file = fopen(path, "r")) {
    if (!fgets(name, sizeof name, file)) name[0] = 0;
    fclose(file);
    name[strcspn(name, "\n")] = 0;
  }
  std::vector<Map> maps = maps_of(tid);
  fprintf(stderr, "where: thread %d (%s): %s at %s\n", tid, name, why, place(maps, r.rip).c_str());
  fprintf(
      stderr,
      "where:   rax %llx rbx %llx rcx %llx rdx %llx rsi %llx rdi %llx rbp %llx rsp %llx r8 %llx "
      "r9 %llx r10 %llx r11 %llx r12 %llx r13 %llx r14 %llx r15 %llx fs %llx\n",
      r.rax, r.rbx, r.rcx, r.rdx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11, r.r12,
      r.r13, r.r14, r.r15, r.fs_base);
  siginfo_t info;
  if (ptrace(PTRACE_GETSIGINFO, tid, 0, &info) == 0 && info.si_signo != SIGTRAP)
    fprintf(stderr, "where:   signal %d code %d address %s\n", info.si_signo, info.si_code,
            place(maps, reinterpret_cast<uint64_t>(info.si_addr)).c_str());
  static uint64_t words[2048];
  size_t got = peek(tid, r.rsp, words, sizeof words) / 8;
  if (!got) got = peek(tid, r.rsp, words, 4096 - r.rsp % 4096) / 8;
  int found = 0;
  for (size_t i = 0; i < got && found < 48; ++i) {
    bool code;
    std::string at = place(maps, words[i], &code);
    if (!code || !after_call(tid, words[i])) continue;
    fprintf(stderr, "where:   %s\n", at.c_str());
    ++found;
  }
}

int look(pid_t pid) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/task", pid);
  DIR* tasks = opendir(path);
  if (!tasks) {
    fprintf(stderr, "where: no process %d\n", pid);
    return 1;
  }
  while (dirent* task = readdir(tasks)) {
    pid_t tid = atoi(task->d_name);
    if (tid <= 0) continue;
    if (ptrace(PTRACE_SEIZE, tid, 0, 0) != 0 || ptrace(PTRACE_INTERRUPT, tid, 0, 0) != 0) {
      fprintf(stderr, "where: thread %d: %s\n", tid, strerror(errno));
      continue;
    }
    int status;
    if (waitpid(tid, &status, __WALL) == tid && WIFSTOPPED(status)) report(tid, "is");
    ptrace(PTRACE_DETACH, tid, 0, 0);
  }
  closedir(tasks);
  return 0;
}

bool is_fatal(int number) {
  for (int fatal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS, SIGTRAP})
    if (number == fatal) return true;
  return false;
}

int run(char** command) {
  pid_t child = fork();
  if (child == 0) {
    raise(SIGSTOP);
    execvp(command[0], command);
    fprintf(stderr, "where: %s: %s\n", command[0], strerror(errno));
    _exit(127);
  }
  int status, reports = 0, result = 1;
  waitpid(child, &status, WUNTRACED);
  long options =
      PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC;
  if (ptrace(PTRACE_SEIZE, child, 0, options) != 0)
    fprintf(stderr, "where: cannot trace: %s\n", strerror(errno));
  kill(child, SIGCONT);
  for (;;) {
    pid_t pid = waitpid(-1, &status, __WALL);
    if (pid < 0) break;
    if (!WIFSTOPPED(status)) {
      if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
        fprintf(stderr, "where: %d ended by signal %d\n", pid, WTERMSIG(status));
      if (pid == child) result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      continue;
    }
    int number = WSTOPSIG(status), event = status >> 16;
    if (event == PTRACE_EVENT_STOP && (number == SIGSTOP || number == SIGTSTP)) {
      ptrace(PTRACE_LISTEN, pid, 0, 0);  // a group stop: it stays stopped
    } else if (event) {
      ptrace(PTRACE_CONT, pid, 0, 0);
    } else {
      if (is_fatal(number) && reports++ < 12) {
        char why[64];
        snprintf(why, sizeof why, "got signal %d (%s)", number, strsignal(number));
        report(pid, why);
      }
      ptrace(PTRACE_CONT, pid, 0, number);
    }
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc >= 3 && !strcmp(argv[1], "--")) return run(argv + 2);
  if (argc == 2 && atoi(argv[1]) > 0) return look(atoi(argv[1]));
  fprintf(stderr, "usage: where PID | where -- COMMAND...\n");
  return 2;
}
