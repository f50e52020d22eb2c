// Messages of the library: one line each to stderr by a raw write, never to stdout. No decision
// depends on a message.
//
// GPUCKPT_LOG = off | error | warn (default) | info | debug. When the application has closed or
// re-used descriptor 2, the line is dropped rather than written into one of its files.
//
// Owner: process-wide. Threads: any, signal handlers too. Errors: none are reported; a line that
// cannot be written is lost.
#pragma once

#include <cstdarg>

namespace gpuckpt {

enum class LogLevel : int { kOff = 0, kError = 1, kWarn = 2, kInfo = 3, kDebug = 4 };

// Reads the level from the value of GPUCKPT_LOG (null: default) and remembers which file descriptor
// 2 is.
void log_start(const char* value);
// Remembers descriptor 2 anew (after a restore).
void log_adopt_stderr();
void log_line(LogLevel level, const char* pattern, ...) __attribute__((format(printf, 2, 3)));
// Is descriptor 2 still the file it was at the start?
bool log_stderr_is_ours();

}  // namespace gpuckpt
