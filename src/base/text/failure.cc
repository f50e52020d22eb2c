#include "base/text/failure.h"

#include <cstdarg>

#include "base/text/text.h"

namespace gpuckpt {

bool Failure::fail(int why, const char* pattern, ...) {
  va_list args;
  va_start(args, pattern);
  vformat(text, sizeof(text), pattern, args);
  va_end(args);
  code = why;
  return false;
}

bool Failure::refuse(const char* pattern, ...) {
  va_list args;
  va_start(args, pattern);
  vformat(text, sizeof(text), pattern, args);
  va_end(args);
  code = kExitRefused;
  return false;
}

bool Failure::refuse_for_now(const char* pattern, ...) {
  va_list args;
  va_start(args, pattern);
  vformat(text, sizeof(text), pattern, args);
  va_end(args);
  code = kRefusedForNow;
  return false;
}

}  // namespace gpuckpt
