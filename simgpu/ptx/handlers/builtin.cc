// Device-side system calls: vprintf, __assertfail, malloc, free; and functions of NVIDIA's device
// runtime library other than launches: cudaGraphSetConditional.
#include <stdio.h>

#include "ptx/handlers/device_heap.h"

namespace simgpu::ptx {

namespace {

// Output of one call, sent in one piece so that lines of different threads do not mix.
class Line {
 public:
  ~Line() { free(grown_); }
  void add(const char* text, size_t n) {
    if (used_ + n > room_) {
      size_t room = room_ * 2 > used_ + n ? room_ * 2 : used_ + n;
      auto* grown = static_cast<char*>(realloc(grown_, room));
      if (!grown) return;
      if (!grown_) memcpy(grown, small_, used_);
      grown_ = grown;
      room_ = room;
    }
    memcpy((grown_ ? grown_ : small_) + used_, text, n);
    used_ += n;
  }
  void send(Ctx& c) {
    if (c.grid->launch->output && used_ != 0)
      c.grid->launch->output(c.grid->launch->output_context, grown_ ? grown_ : small_, used_);
  }
  size_t size() const { return used_; }

 private:
  char small_[1024];
  char* grown_ = nullptr;
  size_t used_ = 0, room_ = sizeof small_;
};

// Reads a NUL-terminated string of device memory. False: bad address, or longer than the limit.
bool read_string(Ctx& c, uint32_t lane, uint64_t address, char* to, size_t room) {
  for (size_t n = 0; n + 1 < room; ++n) {
    if (!read_bytes(c, lane, address + n, &to[n], 1)) return false;
    if (to[n] == 0) return true;
  }
  to[room - 1] = 0;
  return true;
}

bool is_flag(char x) { return x == '-' || x == '+' || x == ' ' || x == '#' || x == '0'; }
bool is_digit(char x) { return x >= '0' && x <= '9'; }
bool is_size(char x) {
  return x == 'l' || x == 'h' || x == 'j' || x == 'z' || x == 't' || x == 'L';
}

// vprintf of one lane. Each conversion, %[flags][width][.precision][size]type, is written by our
// libc's snprintf, with the size that our libc needs for what the kernel passed.
class DevicePrintf {
 public:
  DevicePrintf(Ctx& c, uint32_t lane, uint64_t arguments) : c_(c), lane_(lane), at_(arguments) {}

  // The number of conversions; -1: the format or an argument lies at a bad address.
  int print(uint64_t format) {
    char text[4096];
    if (!read_string(c_, lane_, format, text, sizeof text)) return -1;
    for (p_ = text; *p_;) {
      if (*p_ != '%') {
        plain_text();
      } else if (p_[1] == '%') {
        line_.add("%", 1);
        p_ += 2;
      } else if (!conversion()) {
        return -1;
      }
    }
    line_.send(c_);
    return converted_;
  }

 private:
  // The next argument, which lies aligned. False: it is at a bad address.
  bool argument(unsigned bytes, uint64_t* value) {
    at_ = (at_ + bytes - 1) & ~(uint64_t)(bytes - 1);
    *value = 0;
    const bool good = read_bytes(c_, lane_, at_, value, bytes);
    at_ += bytes;
    return good;
  }

  void plain_text() {
    const char* end = p_;
    while (*end && *end != '%') ++end;
    line_.add(p_, (size_t)(end - p_));
    p_ = end;
  }

  bool conversion() {
    const char* begin = p_++;
    used_ = 0;
    bytes_ = 4;
    is_char_ = is_short_ = false;
    specify('%');
    while (is_flag(*p_) && used_ < 8) specify(*p_++);
    if (!width()) return false;
    if (*p_ == '.') {
      specify(*p_++);
      if (!width()) return false;
    }
    size();
    switch (*p_) {
      case 'd':
      case 'i':
        if (!signed_number()) return false;
        break;
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        if (!unsigned_number()) return false;
        break;
      case 'c':
        if (!character()) return false;
        break;
      case 'p':
        if (!pointer()) return false;
        break;
      case 's':
        if (!string()) return false;
        break;
      case 'f':
      case 'F':
      case 'e':
      case 'E':
      case 'g':
      case 'G':
      case 'a':
      case 'A':
        if (!real()) return false;
        break;
      default:  // not a conversion: printed unchanged
        if (*p_) ++p_;
        line_.add(begin, (size_t)(p_ - begin));
        return true;
    }
    ++converted_;
    ++p_;
    return true;
  }

  // A width or a precision: a number, or '*', which takes it from the arguments. At most 512.
  bool width() {
    constexpr int kMost = 512;
    int width = 0;
    bool any = false;
    if (*p_ == '*') {
      uint64_t value;
      if (!argument(4, &value)) return false;
      width = (int)(uint32_t)value;
      any = true;
      ++p_;
    } else {
      for (; is_digit(*p_); ++p_) {
        if (width < kMost) width = width * 10 + (*p_ - '0');
        any = true;
      }
    }
    if (width > kMost) width = kMost;
    if (width < -kMost) width = -kMost;
    if (any) used_ += (size_t)snprintf(spec_ + used_, 8, "%d", width);
    return true;
  }

  void size() {
    for (; is_size(*p_); ++p_) {
      if (*p_ == 'h') {
        is_char_ = is_short_;
        is_short_ = true;
      } else {
        bytes_ = 8;
      }
    }
  }

  bool signed_number() {
    uint64_t v;
    if (!argument(bytes_, &v)) return false;
    const long long x = bytes_ == 8 ? (long long)v
                        : is_char_  ? (signed char)v
                        : is_short_ ? (short)v
                                    : (int)(uint32_t)v;
    specify('l');
    specify('l');
    write('d', x);
    return true;
  }

  bool unsigned_number() {
    uint64_t v;
    if (!argument(bytes_, &v)) return false;
    if (bytes_ == 4 && is_short_) v &= is_char_ ? 0xff : 0xffff;
    specify('l');
    specify('l');
    write(*p_, (unsigned long long)v);
    return true;
  }

  bool character() {
    uint64_t v;
    if (!argument(4, &v)) return false;
    write('c', (int)(unsigned char)v);
    return true;
  }

  bool pointer() {
    uint64_t v;
    if (!argument(8, &v)) return false;
    write('p', (void*)v);
    return true;
  }

  bool string() {
    char text[2048] = "(null)";
    uint64_t v;
    if (!argument(8, &v)) return false;
    if (v && !read_string(c_, lane_, v, text, sizeof text)) return false;
    if (used_ == 1)  // neither width nor precision: as long as it is
      line_.add(text, strlen(text));
    else
      write('s', text);
    return true;
  }

  bool real() {
    uint64_t v;
    if (!argument(8, &v)) return false;
    write(*p_, __builtin_bit_cast(double, v));
    return true;
  }

  void specify(char x) { spec_[used_++] = x; }

  template <class T>
  void write(char type, T value) {
    char piece[1200];
    specify(type);
    specify(0);
    const int got = snprintf(piece, sizeof piece, spec_, value);
    if (got > 0) line_.add(piece, (size_t)got < sizeof piece ? (size_t)got : sizeof piece - 1);
  }

  Ctx& c_;
  uint32_t lane_;
  uint64_t at_;              // of the next argument
  const char* p_ = nullptr;  // in the format
  char spec_[64];            // the conversion as our libc gets it
  size_t used_ = 0;          // of spec_
  unsigned bytes_ = 4;       // of a number that is an argument
  bool is_char_ = false, is_short_ = false;
  int converted_ = 0;
  Line line_;
};

}  // namespace

int device_printf(Ctx& c, uint32_t lane, uint64_t format, uint64_t arguments) {
  return DevicePrintf(c, lane, arguments).print(format);
}

static void assert_fail(Ctx& c, const Ins* i, uint32_t lane, const uint64_t* argument) {
  char message[256], file[512], function[512];
  if (!read_string(c, lane, argument[0], message, sizeof message)) message[0] = 0;
  if (!read_string(c, lane, argument[1], file, sizeof file)) file[0] = 0;
  if (!read_string(c, lane, argument[3], function, sizeof function)) function[0] = 0;
  char text[1600];
  const Block& b = *c.block;
  int n = snprintf(text, sizeof text,
                   "%s:%u: %s: block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `%s` failed.\n",
                   file, (uint32_t)argument[2], function, b.ctaid[0], b.ctaid[1], b.ctaid[2],
                   c.warp->tid[0][lane], c.warp->tid[1][lane], c.warp->tid[2][lane], message);
  if (n > 0 && c.grid->launch->errors)
    c.grid->launch->errors(c.grid->launch->output_context, text,
                           (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
  fault(c, i, Outcome::kAssert, 0, "assertion `%s` failed at %s:%u", message, file,
        (uint32_t)argument[2]);
}

// Returns false if the launch ends (c.event is set).
bool call_builtin(Ctx& c, const Ins* i) {
  const CallSite& site = *i->call;
  bool failed = false;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    if (!(c.mask >> lane & 1)) continue;
    uint64_t argument[5] = {};
    for (uint32_t k = 0; k < site.param_count && k < 5; ++k)
      read_bytes(c, lane, kLocalWindow | (c.frame->local_base + site.params[k].offset),
                 &argument[k], site.params[k].bytes > 8 ? 8 : site.params[k].bytes);
    uint64_t result = 0;
    switch (site.builtin) {
      case Builtin::kVprintf: {
        int n = device_printf(c, lane, argument[0], argument[1]);
        if (n < 0) {
          fault(c, i, Outcome::kIllegalAddress, argument[0], "printf reads from a bad address");
          return false;
        }
        result = (uint32_t)n;
        break;
      }
      case Builtin::kAssertFail:
        assert_fail(c, i, lane, argument);
        failed = true;  // set after the other lanes have reported theirs
        break;
      case Builtin::kMalloc:
        result = device_malloc(c, argument[0]);
        break;
      case Builtin::kFree:
        if (argument[0] != 0 && !device_free(c, argument[0])) {
          fault(c, i, Outcome::kIllegalAddress, argument[0],
                "free of 0x%llx, which malloc did not give or free took before",
                (unsigned long long)argument[0]);
          return false;
        }
        break;
      case Builtin::kSetConditional:
        if (!c.grid->launch->set_conditional ||
            !c.grid->launch->set_conditional(argument[0], (uint32_t)argument[1])) {
          fault(c, i, Outcome::kIllegalInstruction, argument[0],
                "cudaGraphSetConditional of 0x%llx, which is no conditional handle",
                (unsigned long long)argument[0]);
          return false;
        }
        break;
      case Builtin::kDevice:
        result = site.device(c, site, lane);
        break;
      default:
        break;
    }
    for (uint32_t k = 0; k < site.result_count && k < 1; ++k)
      write_bytes(c, lane, kLocalWindow | (c.frame->local_base + site.results[k].offset), &result,
                  site.results[k].bytes > 8 ? 8 : site.results[k].bytes);
  }
  return !failed;
}

}  // namespace simgpu::ptx
