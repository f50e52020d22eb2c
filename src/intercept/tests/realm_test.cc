// realm_test HOW: the driver's traces in the process are known, and can be wound back.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <string>

#include "check.h"
#include "control.h"

static const TestControl* control;
static CUresult (*init)(unsigned);
static CUresult (*create)(CUstream*, unsigned);
static CUresult (*get_name)(char*, int, CUdevice);
static CUresult (*set_current)(CUcontext);
static CUresult (*get_current)(CUcontext*);

static uint64_t ask(int what) {
  char text[32];
  CHECK(get_name(text, sizeof text, what) == CUDA_SUCCESS);
  return strtoull(text, nullptr, 16);
}
static void* ask_pointer(int what) { return reinterpret_cast<void*>(ask(what)); }
static int other_thread() {
  int found = 0;
  for (int tid = getpid() + 1; tid < getpid() + 2000 && !found; tid++) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d", tid);
    if (access(path, F_OK) == 0) found = tid;
  }
  return found;
}

static void rewind_test() {
  uint64_t reservation = ask(0);
  CUstream old_stream;
  CHECK(create(&old_stream, 0) == CUDA_SUCCESS);
  uint64_t high = control->heap_high_water();
  CHECK(set_current(reinterpret_cast<CUcontext>(0x10)) == CUDA_SUCCESS);
  for (int generation = 1; generation <= 3; generation++) {
    // The child is a restored process: no other threads, no driver descriptors, no driver mappings.
    pid_t child = fork();
    if (child == 0) {
      alarm(20);
      for (int fd = 3; fd < 64; fd++)
        if (control->owns_fd(fd)) close(fd);
      munmap(reinterpret_cast<void*>(reservation), 64 << 20);
      control->rewind();
      CHECK(control->generation() == static_cast<uint32_t>(generation));
      control->gate_open();
      CHECK(ask(3) == 0 || ask(3) == ask(3));
      CHECK(init(0) == CUDA_SUCCESS);
      CHECK(ask(3) == 1);            // cuInit ran as in a new process
      CHECK(ask(0) == reservation);  // at the old address
      CHECK(control->owns(reservation, 4096));
      CUstream fresh;
      CHECK(create(&fresh, 0) == CUDA_SUCCESS);
      CHECK(reinterpret_cast<uint64_t>(fresh) >= 0x200000000000 + high);  // never an old pointer
      CUcontext current;
      CHECK(get_current(&current) == CUDA_SUCCESS &&
            current == nullptr);  // a new key, no old value
      CHECK(control->owns_fd(static_cast<int>(ask(1))));
      *static_cast<volatile char*>(static_cast<void*>(old_stream)) = 1;  // old heap is still memory
      if (generation < 3) {
        // and again, from the restored one
        high = control->heap_high_water();
        continue;
      }
      exit(0);  // runs the exit handlers of all generations
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    if (status) fprintf(stderr, "generation %d: status %x\n", generation, status);
    CHECK(status == 0);
    return;
  }
}

int main(int argc, char** argv) {
  CHECK(argc == 2);
  control = static_cast<const TestControl*>(dlsym(RTLD_DEFAULT, "gpuckpt_test_control"));
  auto load = [](auto& f, const char* name) {
    f = reinterpret_cast<std::remove_reference_t<decltype(f)>>(dlsym(RTLD_DEFAULT, name));
    CHECK(f);
  };
  load(init, "cuInit");
  load(create, "cuStreamCreate");
  load(get_name, "cuDeviceGetName");
  load(set_current, "cuCtxSetCurrent");
  load(get_current, "cuCtxGetCurrent");
  CHECK(init(0) == CUDA_SUCCESS);
  CHECK(control->unknown_imports()[0] == 0);
  std::string how = argv[1];
  if (how == "heap") {
    CUstream s;
    CHECK(create(&s, 100) == CUDA_SUCCESS);
    CHECK(control->heap_contains(s));
    CHECK(control->heap_contains(ask_pointer(2)));  // strdup
    CHECK(control->heap_contains(ask_pointer(4)));  // libc's block, grown by us
    CHECK(!control->heap_contains(malloc(10)));
    for (unsigned size : {1u, 100u, 5000u, 100000u, 3000000u}) {
      CHECK(create(&s, size) == CUDA_SUCCESS && control->heap_contains(s));
      auto* bytes = reinterpret_cast<char*>(s);
      memset(bytes + 8, 1, size - (size > 8 ? 8 : size));
    }
  } else if (how == "maps") {
    uint64_t at = ask(0);
    CHECK(control->owns(at, 4096) && control->owns(at + (64 << 20) - 4096, 4096));
    CHECK(!control->owns(at + (64 << 20), 4096) &&
          !control->owns(reinterpret_cast<uint64_t>(&at), 8));
    CHECK(control->owns(at - 4096, 8192));
  } else if (how == "fds") {
    int fd = static_cast<int>(ask(1));
    CHECK(control->owns_fd(fd) && control->owns_fd(fd + 1) && control->owns_fd(fd + 2));
    int mine = open("/dev/null", O_RDONLY);
    CHECK(!control->owns_fd(mine) && !control->owns_fd(0));
  } else if (how == "threads") {
    int tid = other_thread();
    uint64_t pc = 0, sp = 0;
    usleep(50000);
    CHECK(tid && control->driver_thread(tid, &pc, &sp));
    CHECK(pc && sp && sp % 16 == 0);
    CHECK(!control->driver_thread(getpid(), &pc, &sp));
    // As a restore does: the thread goes on at pc with sp, and is gone soon after. Here by a signal
    // handler.
    static uint64_t go_pc, go_sp;
    go_pc = pc;
    go_sp = sp;
    struct sigaction act {};
    act.sa_flags = SA_SIGINFO;
    act.sa_sigaction = [](int, siginfo_t*, void* context) {
      auto* uc = static_cast<ucontext_t*>(context);
      uc->uc_mcontext.gregs[REG_RIP] = static_cast<long long>(go_pc);
      uc->uc_mcontext.gregs[REG_RSP] = static_cast<long long>(go_sp);
    };
    sigaction(SIGUSR2, &act, nullptr);
    syscall(SYS_tgkill, getpid(), tid, SIGUSR2);
    for (int i = 0; i < 200 && other_thread(); i++) usleep(10000);
    CHECK(!other_thread());
  } else if (how == "rewind") {
    rewind_test();
  } else if (how == "exit") {
    return 0;  // the driver's exit handlers run
  } else {
    return 2;
  }
  return 0;
}
