// Descriptors for whoever asks: a process offers one under a number, another process of the same
// user fetches it. No thread waits for that: who fetches sends our signal with a value that names
// the number and a socket of its own, and the signal's handler sends the descriptor there.
#pragma once

#include <cstdint>

namespace gpuckpt {

// Our signal with a value, to another process of ours.
void send_wake(int pid, uint64_t value);

inline constexpr int kMostOffers = 4096;
inline constexpr uint64_t kGiveCookie = 0x4770756'0000'00000ull;  // | number << 20 | socket's name
inline constexpr uint64_t kGiveMask = ~0xfff'fffffull;

// The number of the offer, or -1. The descriptor stays the caller's, and open while it is offered.
int handover_offer(int fd);
void handover_withdraw(int number);

// In the signal's handler. Raw calls only.
void handover_serve(uint64_t value, int from_pid);

// Asks `pid` for its offer; -errno. Waits at most that long.
long handover_fetch(int pid, int number, uint64_t patience_us);

}  // namespace gpuckpt
