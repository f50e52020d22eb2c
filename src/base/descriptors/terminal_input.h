// Unread input of a pseudo terminal in line mode: put into an empty terminal through its master, so
// that it is read as the lines it was. Raw system calls: the snapshot puts back what it had to
// read, and a restore does the same.
//
// Owner: the caller's descriptors. Threads: one per terminal. Errors: false.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuckpt {

struct KernelTermios {  // struct termios2
  uint32_t iflag, oflag, cflag, lflag;
  uint8_t line, cc[19];
  uint32_t ispeed, ospeed;
};

constexpr long kGetTerminalSettings = 0x802c542a,
               kSetTerminalSettings = 0x402c542b;  // TCGETS2, TCSETS2

// Does the kernel cut the input into lines? (With EXTPROC it does not.)
bool reads_lines(const KernelTermios& settings);

// How many bytes of `input`, as it was read with processing switched off, are complete lines, where
// FIONREAD has counted `readable` bytes in them. It does not count the ends of file, which read as
// zeros.
uint32_t complete_lines(const char* input, uint32_t bytes, uint32_t readable,
                        const KernelTermios& settings);

// Writes `input`, whose first `complete` bytes are complete lines, to the master. The kernel
// forgets where lines end when line mode is switched on with input in the terminal: so it is on
// before, with all other processing off. `stop`: the output is stopped behind it, by the character.
// The terminal is left with these settings; the program's own come after. PRECONDITION: no unread
// input, the master is not in packet mode. False: not all of it has arrived.
bool put_lines(int master, int slave, const KernelTermios& settings, const char* input,
               uint32_t bytes, uint32_t complete, bool stop);

}  // namespace gpuckpt
