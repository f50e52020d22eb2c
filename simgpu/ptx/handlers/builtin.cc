// Device-side system calls: vprintf, __assertfail, malloc, free; and what NVIDIA's device runtime
// library has beside launches: cudaGraphSetConditional.
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
      if (grown == nullptr) return;
      if (grown_ == nullptr) memcpy(grown, small_, used_);
      grown_ = grown;
      room_ = room;
    }
    memcpy((grown_ != nullptr ? grown_ : small_) + used_, text, n);
    used_ += n;
  }
  void send(Ctx& c) {
    if (c.grid->launch->output != nullptr && used_ != 0)
      c.grid->launch->output(c.grid->launch->output_context, grown_ != nullptr ? grown_ : small_,
                             used_);
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

}  // namespace

int device_printf(Ctx& c, uint32_t lane, uint64_t format, uint64_t arguments) {
  char text[4096], piece[1200], spec[64], string[2048];
  if (!read_string(c, lane, format, text, sizeof text)) return -1;
  Line line;
  uint64_t at = arguments;
  int converted = 0;
  auto word = [&](unsigned bytes, uint64_t* v) {
    at = (at + bytes - 1) & ~(uint64_t)(bytes - 1);
    *v = 0;
    bool good = read_bytes(c, lane, at, v, bytes);
    at += bytes;
    return good;
  };
  for (const char* p = text; *p != 0;) {
    if (*p != '%') {
      const char* q = p;
      while (*q != 0 && *q != '%') ++q;
      line.add(p, (size_t)(q - p));
      p = q;
      continue;
    }
    if (p[1] == '%') {
      line.add("%", 1);
      p += 2;
      continue;
    }
    // %[flags][width][.precision][size]type, rebuilt with the size that our libc needs.
    const char* begin = p++;
    size_t n = 0;
    spec[n++] = '%';
    while (is_flag(*p) && n < 8) spec[n++] = *p++;
    for (int part = 0; part < 2; ++part) {
      if (part == 1) {
        if (*p != '.') break;
        spec[n++] = *p++;
      }
      if (*p == '*') {
        uint64_t v;
        if (!word(4, &v)) return -1;
        int w = (int)(uint32_t)v;
        if (w > 512) w = 512;
        if (w < -512) w = -512;
        n += (size_t)snprintf(spec + n, 8, "%d", w);
        ++p;
      } else {
        int w = 0;
        bool any = false;
        for (; is_digit(*p); ++p) {
          if (w < 512) w = w * 10 + (*p - '0');
          any = true;
        }
        if (w > 512) w = 512;
        if (any) n += (size_t)snprintf(spec + n, 8, "%d", w);
      }
    }
    unsigned bytes = 4;
    bool is_char = false, is_short = false;
    while (*p == 'l' || *p == 'h' || *p == 'j' || *p == 'z' || *p == 't' || *p == 'L') {
      if (*p == 'h') {
        is_char = is_short;
        is_short = true;
      } else {
        bytes = 8;
      }
      ++p;
    }
    int got = 0;
    uint64_t v;
    switch (*p) {
      case 'd':
      case 'i': {
        if (!word(bytes, &v)) return -1;
        long long x = bytes == 8 ? (long long)v
                      : is_char  ? (signed char)v
                      : is_short ? (short)v
                                 : (int)(uint32_t)v;
        memcpy(spec + n, "lld", 4);
        got = snprintf(piece, sizeof piece, spec, x);
        break;
      }
      case 'u':
      case 'x':
      case 'X':
      case 'o': {
        if (!word(bytes, &v)) return -1;
        if (bytes == 4 && is_short) v &= is_char ? 0xff : 0xffff;
        spec[n++] = 'l';
        spec[n++] = 'l';
        spec[n++] = *p;
        spec[n] = 0;
        got = snprintf(piece, sizeof piece, spec, (unsigned long long)v);
        break;
      }
      case 'c':
        if (!word(4, &v)) return -1;
        spec[n++] = 'c';
        spec[n] = 0;
        got = snprintf(piece, sizeof piece, spec, (int)(unsigned char)v);
        break;
      case 'p':
        if (!word(8, &v)) return -1;
        memcpy(spec + n, "p", 2);
        got = snprintf(piece, sizeof piece, spec, (void*)v);
        break;
      case 's':
        if (!word(8, &v)) return -1;
        memcpy(spec + n, "s", 2);
        if (v == 0)
          memcpy(string, "(null)", 7);
        else if (!read_string(c, lane, v, string, sizeof string))
          return -1;
        if (n == 1) {
          line.add(string, strlen(string));
        } else {
          got = snprintf(piece, sizeof piece, spec, string);
        }
        break;
      case 'f':
      case 'F':
      case 'e':
      case 'E':
      case 'g':
      case 'G':
      case 'a':
      case 'A': {
        if (!word(8, &v)) return -1;
        spec[n++] = *p;
        spec[n] = 0;
        got = snprintf(piece, sizeof piece, spec, __builtin_bit_cast(double, v));
        break;
      }
      default:  // not a conversion: as it stands
        line.add(begin, (size_t)(p - begin) + (*p != 0 ? 1 : 0));
        if (*p != 0) ++p;
        continue;
    }
    if (got > 0) line.add(piece, (size_t)got < sizeof piece ? (size_t)got : sizeof piece - 1);
    ++converted;
    ++p;
  }
  line.send(c);
  return converted;
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
  if (n > 0 && c.grid->launch->errors != nullptr)
    c.grid->launch->errors(c.grid->launch->output_context, text,
                           (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
  fault(c, i, Outcome::kAssert, 0, "assertion `%s` failed at %s:%u", message, file,
        (uint32_t)argument[2]);
}

// False: the launch ends (c.event is set).
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
        failed = true;  // after the other lanes have told theirs
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
        if (c.grid->launch->set_conditional == nullptr ||
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
