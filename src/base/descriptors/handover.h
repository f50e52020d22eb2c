// Passes descriptors between processes: a process offers one under a number, another process of the
// same user fetches it. No thread waits for that: the process that fetches sends our signal with a
// value that names the number and a socket of its own, and the signal's handler sends the
// descriptor there.
//
// A process and what is restored from it are the same: it keeps its number and its identity, and
// offers the same things under the same numbers.
//
// Owner: a descriptor stays its caller's, and open while it is offered. Threads: any;
// handover_serve() is for signal handlers. Errors: -1 or -errno.
#pragma once

#include <cstdint>

namespace gpuckpt {

// Our signal with a value, to another process of ours.
void send_wake(int pid, uint64_t value);
void send_wake_to_thread(int pid, int tid, uint64_t value);

inline constexpr int kMostOffers = 4096;
inline constexpr uint64_t kGiveCookie = 0x4770756'0000'00000ull;  // | number << 20 | socket's name
inline constexpr uint64_t kGiveMask = ~0xfff'fffffull;

// The process that offers; process ids are reused.
uint64_t handover_identity();

// The number of the offer, or -1. The descriptor stays the caller's, and open while it is offered.
int handover_offer(int fd);
void handover_withdraw(int number);
// Calls `one` for each process that has fetched something, until it says stop (false).
bool handover_each_taker(void* context, bool (*one)(void* context, int number, int pid));

// In a restored process. Until `resume` what is not offered again is not there yet.
void handover_forget();
void handover_offer_again(int number, int fd);
void handover_resume();

// In the signal's handler. Raw calls only.
void handover_serve(uint64_t value, int from_pid);

// Asks `pid` for its offer; -errno (-ENOENT: it has no such offer, -ESTALE: it is another process
// by now, -ESRCH: it has ended). Waits at most that long.
long handover_fetch(int pid, uint64_t identity, int number, uint64_t patience_us);
// Waits until `pid`, which may be restored just now, has resumed. False: it has not, or has ended.
bool handover_await(int pid, uint64_t patience_us);

}  // namespace gpuckpt
