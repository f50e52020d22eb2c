// A filter that lets our calls pass is known as such, and one that does not is never taken for one
// that does.
#include "snapshot/calls/filter_program.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include <cstddef>
#include <vector>

#include "tests/catch.h"

using namespace gpuckpt;

namespace {

using Program = std::vector<sock_filter>;

sock_filter load(size_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset));
}
sock_filter load_number() { return load(offsetof(seccomp_data, nr)); }
sock_filter jump(uint16_t operation, uint32_t k, uint8_t yes, uint8_t no) {
  return BPF_JUMP(static_cast<uint16_t>(BPF_JMP | operation | BPF_K), k, yes, no);
}
sock_filter answer(uint32_t k) { return BPF_STMT(BPF_RET | BPF_K, k); }
const sock_filter kAllow = answer(SECCOMP_RET_ALLOW), kKill = answer(SECCOMP_RET_KILL_PROCESS);

FilterVerdict judge(const Program& p) { return judge_filter(p.data(), p.size()); }

// Answers `call` with `with` when the low half of `argument`, treated by `code`, is `value`.
Program for_argument(int call, int argument, uint32_t value, const Program& code, uint32_t with) {
  Program p = {load_number(), jump(BPF_JEQ, static_cast<uint32_t>(call), 1, 0), kAllow,
               load(offsetof(seccomp_data, args) + 8 * static_cast<size_t>(argument))};
  p.insert(p.end(), code.begin(), code.end());
  p.push_back(jump(BPF_JEQ, value, 0, 1));
  p.push_back(answer(with));
  p.push_back(kAllow);
  return p;
}

}  // namespace

TEST_CASE("a filter that ends what programs rarely do lets our calls pass") {
  const Program p = {load_number(), jump(BPF_JEQ, SYS_swapon, 1, 0),
                     jump(BPF_JEQ, SYS_reboot, 0, 1), kKill, kAllow};
  CHECK(judge(p).worst == FilterAnswer::kLets);
}

TEST_CASE("a call of ours that fails or ends the program is found and named") {
  Program p = {load_number(), jump(BPF_JEQ, SYS_openat, 0, 1), kKill, kAllow};
  CHECK(judge(p).worst == FilterAnswer::kEnds);
  CHECK(judge(p).call == SYS_openat);
  p[2] = answer(SECCOMP_RET_ERRNO | 1);
  CHECK(judge(p).worst == FilterAnswer::kFails);
  CHECK(judge(p).call == SYS_openat);
  for (uint32_t other : {SECCOMP_RET_TRAP, SECCOMP_RET_TRACE, SECCOMP_RET_USER_NOTIF,
                         SECCOMP_RET_KILL_THREAD, 0x12340000u}) {
    p[2] = answer(other);
    CHECK(judge(p).worst == FilterAnswer::kEnds);
  }
  p[2] = answer(SECCOMP_RET_LOG);
  CHECK(judge(p).worst == FilterAnswer::kLets);
}

TEST_CASE("what has another way may fail, and may not end the program") {
  Program p = {load_number(), jump(BPF_JEQ, SYS_kcmp, 0, 1), answer(SECCOMP_RET_ERRNO | 1), kAllow};
  CHECK(judge(p).worst == FilterAnswer::kLets);
  p[2] = kKill;
  CHECK(judge(p).worst == FilterAnswer::kEnds);
  p[1] = jump(BPF_JEQ, SYS_clone3, 0, 1), p[2] = answer(SECCOMP_RET_ERRNO | 38);
  CHECK(judge(p).worst == FilterAnswer::kLets);
  p[2] = answer(SECCOMP_RET_ERRNO | 1);  // libc makes clone instead for ENOSYS only
  CHECK(judge(p).worst == FilterAnswer::kFails);
}

TEST_CASE("arguments that ours never have may be forbidden, and no others") {
  const uint32_t error = SECCOMP_RET_ERRNO | 1;
  CHECK(judge(for_argument(SYS_ioctl, 1, TIOCSTI, {}, error)).worst == FilterAnswer::kLets);
  CHECK(judge(for_argument(SYS_ioctl, 1, TIOCGWINSZ, {}, error)).worst == FilterAnswer::kFails);
  // As libseccomp writes it: with a mask that leaves all bits.
  const Program masked = {BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xffffffff)};
  CHECK(judge(for_argument(SYS_ioctl, 1, TIOCSTI, masked, error)).worst == FilterAnswer::kLets);
  CHECK(judge(for_argument(SYS_socket, 0, 40, {}, error)).worst == FilterAnswer::kLets);  // vsock
  CHECK(judge(for_argument(SYS_socket, 0, 16, {}, error)).worst == FilterAnswer::kFails);
  CHECK(judge(for_argument(SYS_personality, 0, 8, {}, error)).worst == FilterAnswer::kLets);
  const Program new_user = {BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0x10000000)};
  CHECK(judge(for_argument(SYS_clone, 0, 0x10000000, new_user, error)).worst ==
        FilterAnswer::kLets);
  const Program thread = {BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0x10000)};
  CHECK(judge(for_argument(SYS_clone, 0, 0x10000, thread, error)).worst == FilterAnswer::kFails);
}

TEST_CASE("comparisons of what is partly known have both outcomes") {
  const uint32_t error = SECCOMP_RET_ERRNO | 1;
  Program p = for_argument(SYS_mmap, 2, 0, {}, error);
  for (uint16_t operation : {BPF_JGT, BPF_JGE, BPF_JSET}) {
    p[4] = jump(operation, 4, 0, 1);
    CHECK(judge(p).worst == FilterAnswer::kFails);
  }
  // Nothing is greater than all ones, and everything is at least 0.
  p[4] = jump(BPF_JGT, 0xffffffff, 0, 1);
  CHECK(judge(p).worst == FilterAnswer::kLets);
  p[4] = jump(BPF_JGE, 0, 1, 0);
  CHECK(judge(p).worst == FilterAnswer::kLets);
  // A shifted value has zeros below.
  p = for_argument(SYS_mmap, 2, 1, {BPF_STMT(BPF_ALU | BPF_LSH | BPF_K, 4)}, error);
  CHECK(judge(p).worst == FilterAnswer::kLets);
  p = for_argument(SYS_mmap, 2, 16, {BPF_STMT(BPF_ALU | BPF_LSH | BPF_K, 4)}, error);
  CHECK(judge(p).worst == FilterAnswer::kFails);
}

TEST_CASE("the words in memory and the second register are followed") {
  // The number goes to memory, to the other register and back.
  Program p = {load_number(),
               BPF_STMT(BPF_ST, 3),
               BPF_STMT(BPF_LDX | BPF_W | BPF_MEM, 3),
               BPF_STMT(BPF_LD | BPF_W | BPF_IMM, 0),
               BPF_STMT(BPF_MISC | BPF_TXA, 0),
               jump(BPF_JEQ, SYS_swapoff, 0, 1),
               kKill,
               kAllow};
  CHECK(judge(p).worst == FilterAnswer::kLets);
  p[5] = jump(BPF_JEQ, SYS_close, 0, 1);
  CHECK(judge(p).worst == FilterAnswer::kEnds);
}

TEST_CASE("another machine's calls are not ours") {
  const Program p = {load(offsetof(seccomp_data, arch)), jump(BPF_JEQ, AUDIT_ARCH_X86_64, 1, 0),
                     kKill, kAllow};
  CHECK(judge(p).worst == FilterAnswer::kLets);
}

TEST_CASE("a program that leads nowhere, or too many ways, is none that lets us pass") {
  CHECK(judge({load_number()}).worst == FilterAnswer::kEnds);
  CHECK(judge({load_number(), jump(BPF_JEQ, SYS_read, 200, 0), kAllow}).worst ==
        FilterAnswer::kEnds);
  CHECK(judge({load(offsetof(seccomp_data, args)), BPF_STMT(BPF_RET | BPF_A, 0)}).worst ==
        FilterAnswer::kEnds);
  Program many;
  for (uint32_t bit = 0; bit < 32; ++bit) {
    many.push_back(load(offsetof(seccomp_data, args) + 8 * (bit % 6)));
    many.push_back(jump(BPF_JSET, 1u << bit, 0, 0));
  }
  many.push_back(kAllow);
  CHECK(judge(many).worst == FilterAnswer::kEnds);
}
