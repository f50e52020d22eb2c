// Shared memory of the huge page pool: anonymous, a memfd that is mapped and one that is not, a
// System V segment.
#include <linux/memfd.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/vfs.h>
#include "support/hugetlb.h"
int main(void) {
  const int rw = PROT_READ | PROT_WRITE;
  unsigned char* shared = map_pages(2, rw, MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB, -1);
  fill(shared + HUGE, 4);
  int fd = (int)syscall(SYS_memfd_create, "huge", MFD_HUGETLB);
  CHECK(fd >= 0 && ftruncate(fd, 2 * HUGE) == 0);
  unsigned char* of_fd = map_pages(1, rw, MAP_SHARED, fd);
  fill(of_fd, 5);
  int unmapped = (int)syscall(SYS_memfd_create, "unmapped", MFD_HUGETLB | MFD_HUGE_2MB);
  CHECK(unmapped >= 0 && ftruncate(unmapped, HUGE) == 0);
  unsigned char* at = map_pages(1, rw, MAP_SHARED, unmapped);
  fill(at, 6);
  CHECK(munmap(at, HUGE) == 0);
  unsigned char* segment = NULL;
  int id = shmget(IPC_PRIVATE, HUGE, IPC_CREAT | SHM_HUGETLB | 0600);
  if (id >= 0) {
    segment = shmat(id, NULL, 0);
    CHECK(shmctl(id, IPC_RMID, NULL) == 0);
    fill(segment, 7);
  } else {
    CHECK(errno == EPERM);  // not every user may
  }
  ready_and_wait();
  CHECK(is_huge(shared) && is_huge(of_fd) && (!segment || is_huge(segment)));
  CHECK(is_filled(shared + HUGE, 4) && shared[0] == 0);
  CHECK(is_filled(of_fd, 5) && (!segment || is_filled(segment, 7)));
  struct statfs fs;
  struct stat st;
  CHECK(fstatfs(fd, &fs) == 0 && fs.f_type == HUGETLBFS);
  CHECK(fstat(fd, &st) == 0 && st.st_size == 2 * (off_t)HUGE);
  CHECK(is_filled(map_pages(1, rw, MAP_SHARED, unmapped), 6));
  unsigned char* again = map_pages(2, rw, MAP_SHARED, fd);
  again[3] = 77;
  CHECK(of_fd[3] == 77 && again[HUGE] == 0);
  pid_t child = fork();
  if (child == 0) {
    shared[5] = 55;
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0 && shared[5] == 55);
  return survived();
}
