#include "base/text/failure.h"

#include <cstdarg>

#include "base/text/text.h"

namespace gpuckpt {
namespace {

void vfail(Failure* f, int why, const char* pattern, va_list args) {
  vformat(f->text, sizeof(f->text), pattern, args);
  f->code = why;
}

}  // namespace

bool Failure::fail(int why, const char* pattern, ...) {
  va_list args;
  va_start(args, pattern);
  vfail(this, why, pattern, args);
  va_end(args);
  return false;
}

bool Failure::refuse(const char* pattern, ...) {
  va_list args;
  va_start(args, pattern);
  vfail(this, kExitRefused, pattern, args);
  va_end(args);
  return false;
}

bool Failure::refuse_for_now(const char* pattern, ...) {
  va_list args;
  va_start(args, pattern);
  vfail(this, kRefusedForNow, pattern, args);
  va_end(args);
  return false;
}

}  // namespace gpuckpt
