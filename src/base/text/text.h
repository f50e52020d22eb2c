// Text without libc: formatting into fixed buffers, scanning of /proc, durations.
//
// Owner: the caller's buffers. Threads: any. Errors: text that does not fit is cut; scanners that
// return bool leave their result alone when they return false.
#pragma once

#include <cstdarg>
#include <cstddef>
#include <cstdint>

namespace gpuckpt {

size_t length(const char* s);
bool equal(const char* a, const char* b);
bool starts_with(const char* s, const char* prefix);
bool ends_with(const char* s, const char* suffix);
// Copies with truncation; always terminates.
void copy(char* to, size_t room, const char* from);

// A subset of printf: %s %d %i %u %o %x %c %p %% with l, ll, z, width and 0. Always terminates;
// returns the length written.
size_t vformat(char* to, size_t room, const char* pattern, va_list args);
size_t format(char* to, size_t room, const char* pattern, ...)
    __attribute__((format(printf, 3, 4)));

// Reads a number and moves *s behind it. Without digits the result is 0 and *s stays.
uint64_t scan_hex(const char** s);
uint64_t scan_dec(const char** s);
uint64_t scan_oct(const char** s);
int64_t scan_signed(const char** s);

// "500ms", "30s", "5m", "2h", "30" (seconds) -> milliseconds. False: not a duration.
bool scan_duration_ms(const char* s, uint64_t* ms);
// "4096", "64K", "1.5GiB", "2t" (powers of 1024) -> bytes. False: not a size.
bool scan_size(const char* s, uint64_t* bytes);

// Text being built in a fixed buffer. What does not fit is dropped and `full` says so.
struct Text {
  char* at;
  size_t room;
  size_t used = 0;
  bool full = false;
  Text(char* buffer, size_t n) : at(buffer), room(n) {
    if (n) at[0] = 0;
  }
  void add(const char* pattern, ...) __attribute__((format(printf, 2, 3)));
  void add_bytes(const char* bytes, size_t count);
};

}  // namespace gpuckpt
