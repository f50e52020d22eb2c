// A filter like those of sandboxes: what ordinary programs do not do ends the program, or fails.
// Neither a snapshot nor what is done after a restore may need any of it.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include "feature.h"

static struct sock_filter code[256];
static unsigned short length;

static void add(unsigned short what, unsigned k, unsigned char yes, unsigned char no) {
  code[length++] = (struct sock_filter){what, yes, no, k};
}

static void answer(int first, int last, unsigned with) {
  add(BPF_JMP | BPF_JGE | BPF_K, (unsigned)first, 0, 2);
  add(BPF_JMP | BPF_JGT | BPF_K, (unsigned)last, 1, 0);
  add(BPF_RET | BPF_K, with, 0, 0);
}

int main(void) {
  static const int ends[][2] = {{SYS_uselib, SYS_uselib},
                                {SYS_ustat, SYS_ustat},
                                {SYS_sysfs, SYS_sysfs},
                                {SYS_vhangup, SYS_vhangup},
                                {SYS_pivot_root, SYS_pivot_root},
                                {SYS_adjtimex, SYS_adjtimex},
                                {SYS_chroot, SYS_chroot},
                                {SYS_acct, SYS_ioperm},
                                {SYS_create_module, SYS_security},
                                {SYS_lookup_dcookie, SYS_lookup_dcookie},
                                {SYS_clock_settime, SYS_clock_settime},
                                {SYS_vserver, SYS_set_mempolicy},
                                {SYS_kexec_load, SYS_kexec_load},
                                {SYS_add_key, SYS_request_key},
                                {SYS_migrate_pages, SYS_migrate_pages},
                                {SYS_unshare, SYS_unshare},
                                {SYS_move_pages, SYS_move_pages},
                                {SYS_perf_event_open, SYS_perf_event_open},
                                {SYS_fanotify_init, SYS_fanotify_mark},
                                {SYS_name_to_handle_at, SYS_clock_adjtime},
                                {SYS_setns, SYS_setns},
                                {SYS_finit_module, SYS_finit_module},
                                {SYS_kexec_file_load, SYS_bpf},
                                {SYS_pkey_mprotect, SYS_pkey_free},
                                {335, 423},
                                {425, 433},
                                {440, 440},
                                {442, 450},
                                {457, 4000}};
  static const int fails[] = {SYS_ptrace, SYS_kcmp, SYS_userfaultfd, SYS_setpriority, SYS_keyctl, SYS_modify_ldt};
  add(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
  for (unsigned i = 0; i < sizeof ends / sizeof *ends; ++i) answer(ends[i][0], ends[i][1], SECCOMP_RET_KILL_PROCESS);
  for (unsigned i = 0; i < sizeof fails / sizeof *fails; ++i) answer(fails[i], fails[i], SECCOMP_RET_ERRNO | EPERM);
  answer(SYS_clone3, SYS_clone3, SECCOMP_RET_ERRNO | ENOSYS);
  add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
  struct sock_fprog filter = {length, code};
  // Root may do so without giving up that programs gain rights.
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
  }
  const int gains_none = prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0);
  ready_and_wait();
  CHECK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == gains_none);
  CHECK(syscall(SYS_setpriority, 0, 0, 0) == -1 && errno == EPERM);
  CHECK(syscall(SYS_clone3, 0, 0) == -1 && errno == ENOSYS);
  return survived();
}
