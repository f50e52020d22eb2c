#include "snapshot/process/warnings.h"

#include <cstdarg>

#include "base/text/text.h"
#include "snapshot/control/state.h"
#include "snapshot/job/barrier.h"

namespace gpuckpt {
namespace {

Warnings own;  // of a process that is alone or leads, from forget_warnings() on

void add_lines(Text* text, const Warnings& warnings) {
  char lines[sizeof(warnings.text)];
  if (const uint32_t used = warnings.used) {
    __builtin_memcpy(lines, warnings.text, used);
    lines[used - 1] = 0;
    text->add("%s%s", text->used ? "\n" : "", lines);
  }
  if (warnings.more) text->add("\nand %u more of this kind", warnings.more.load());
}

void add_line(bool names_itself, const char* pattern, va_list args) {
  const bool member = job_barrier.role() == JobBarrier::Role::kMember;
  Warnings* warnings =
      member && job_barrier.shared_state() ? &job_barrier.shared_state()->warnings : &own;
  char line[512];
  size_t n = 0;
  if (names_itself && job_barrier.active())
    n = format(line, sizeof(line), "process %d: ", library.pid);
  n += vformat(line + n, sizeof(line) - n - 1, pattern, args);
  line[n++] = '\n';
  uint32_t at = warnings->used;
  do {
    if (at + n > sizeof(warnings->text)) {
      ++warnings->more;
      return;
    }
  } while (!warnings->used.compare_exchange_weak(at, at + static_cast<uint32_t>(n)));
  __builtin_memcpy(warnings->text + at, line, n);
}

}  // namespace

void add_warning(const char* pattern, ...) {
  va_list args;
  va_start(args, pattern);
  add_line(true, pattern, args);
  va_end(args);
}

void add_job_warning(const char* pattern, ...) {
  va_list args;
  va_start(args, pattern);
  add_line(false, pattern, args);
  va_end(args);
}

void forget_warnings() {
  own.used = 0;
  own.more = 0;
}

void append_warnings(char* to, size_t room) {
  Text text(to, 0);
  text.room = room;
  text.used = length(to);
  add_lines(&text, own);
  if (job_barrier.active() && job_barrier.shared_state())
    add_lines(&text, job_barrier.shared_state()->warnings);
}

}  // namespace gpuckpt
