#include "restore/pager/pager.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <new>
#include <thread>

#include "gpuckpt/wire.h"
#include "restore/memory/plan_builder.h"
#include "restore/pager/missing_pages.h"
#include "restore/pager/traced_program.h"

namespace gpuckpt::restore {

using store::Extent;
using store::SnapshotReader;
using store::Status;

namespace {

Status register_ranges(const LazyProcess& process, const std::vector<AddressRange>& ranges) {
  const int uffd = process.uffd.get();
  uffdio_api api{UFFD_API, kPagerEvents | (process.kernel_waits ? kPagerForkEvent : 0), 0};
  if (ioctl(uffd, UFFDIO_API, &api) != 0)
    return Status::Refused(errno == EPERM ? "userfaultfd that follows forks needs CAP_SYS_PTRACE"
                                          : "the kernel's userfaultfd cannot do it");
  fcntl(uffd, F_SETFL, O_NONBLOCK);
  for (const AddressRange& r : ranges) {
    uffdio_register area{{r.start, r.end - r.start}, UFFDIO_REGISTER_MODE_MISSING, 0};
    if (ioctl(uffd, UFFDIO_REGISTER, &area) == 0) continue;
    Status s = Status::Refused(std::string("memory cannot be registered: ") + strerror(errno));
    for (const AddressRange& done : ranges) {
      if (&done == &r) break;
      MissingPages::unregister(uffd, done.start, done.end);
    }
    return s;
  }
  return Status::Ok();
}

void become_pager(const std::vector<int>& others) {
  prctl(PR_SET_NAME, wire::kPagerName);
  setsid();
  let_segments_go();
  for (int other : others) close(other);
  for (int sig = 1; sig <= 31; ++sig)
    if (sig != SIGCHLD) signal(sig, SIG_IGN);
  const int null = open("/dev/null", O_RDWR);
  for (int i = 0; i < 3; ++i) dup2(null, i);
}

bool fill(MissingPages* pages) {
  // For tests, and for programs that need the disk for themselves at first.
  if (const char* delay = getenv("GPUCKPT_LAZY_DELAY_MS"))
    usleep(static_cast<useconds_t>(atoi(delay)) * 1000);
  return pages->fill();
}

// The messages on Pager::control: the pager says that the program may go on, the supervisor that
// all threads are there, the pager why it cannot trace them, or nothing.
bool say(int control, const char* text) {
  return send(control, text, strlen(text) + 1, MSG_NOSIGNAL) > 0;
}
bool hear(int control, char (*text)[256]) {
  ssize_t n;
  do n = recv(control, *text, sizeof(*text) - 1, 0);
  while (n < 0 && errno == EINTR);
  (*text)[n > 0 ? n : 0] = 0;
  return n > 0;
}

// Both return the pager's exit status.
int fill_and_stay(MissingPages* pages, int control) {
  if (!fill(pages)) return 1;
  pages->release();
  char text[256];
  hear(control, &text);
  return 0;
}

int fill_and_trace(const LazyProcess& process, MissingPages* pages, std::atomic<int>* missing,
                   int control) {
  TracedProgram program(process.pid, pages, missing);
  char text[256];
  if (!program.supply_for(process.image.threads) || !say(control, "")) return 1;
  std::thread filling([&] {
    if (!fill(pages)) _exit(1);
    pages->release();
    --*missing;
    program.all_there();
  });
  filling.detach();
  if (!hear(control, &text)) return 1;  // the restore failed
  if (Status attached = program.attach(); !attached.ok()) {
    program.forego();
    say(control, attached.text().c_str());
    return 0;
  }
  if (!say(control, "")) return 1;
  close(control);
  return program.run() ? 0 : 1;
}

}  // namespace

ProcessesMissing::ProcessesMissing() {
  void* memory = mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  count_ = memory == MAP_FAILED ? nullptr : new (memory) std::atomic<int>(0);
}

ProcessesMissing::~ProcessesMissing() {
  if (count_) munmap(count_, sizeof(*count_));
}

Status start_pager(const LazyProcess& process, const SnapshotReader& reader,
                   const std::vector<AddressRange>& ranges, unsigned threads,
                   const ProcessesMissing& missing, const std::vector<int>& others, Pager* pager) {
  Fd pagemap;
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
    return Status::Refused(std::string("no sockets for the pages: ") + strerror(errno));
  Fd mine(pair[0]), theirs(pair[1]);
  if (!process.kernel_waits) {
    const std::string path = "/proc/" + std::to_string(process.pid) + "/pagemap";
    pagemap = Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!pagemap || !missing.count())
      return Status::Refused(std::string("the program's pages cannot be watched: ") +
                             strerror(errno));
  }
  if (Status s = register_ranges(process, ranges); !s.ok()) return s;
  std::vector<Extent> data = data_extents(reader);
  if (!process.kernel_waits) ++*missing.count();
  pager->pid = fork();
  if (pager->pid < 0)
    return Status::Error(std::string("no process for the pages: ") + strerror(errno));
  if (pager->pid == 0) {
    mine.reset();
    become_pager(others);
    MissingPages pages(reader, std::move(data), threads, process.kernel_waits);
    pages.add(process.uffd.get(), std::move(pagemap), ranges);
    std::thread([&pages] { pages.serve(); }).detach();
    if (process.kernel_waits) _exit(fill_and_stay(&pages, theirs.get()));
    _exit(fill_and_trace(process, &pages, missing.count(), theirs.get()));
  }
  pager->control = std::move(mine);
  pager->traces = !process.kernel_waits;
  char text[256];
  theirs.reset();
  if (pager->traces && !hear(pager->control.get(), &text))
    return Status::Error("the memory that the program's first calls use cannot be read");
  return Status::Ok();
}

Status trace_program(const Pager& pager) {
  char text[256];
  if (!pager.traces) return Status::Ok();
  if (!say(pager.control.get(), "") || !hear(pager.control.get(), &text))
    return Status::Error("the process that reads the program's memory has ended");
  if (!text[0]) return Status::Ok();
  return Status::Refused(text);
}

}  // namespace gpuckpt::restore
