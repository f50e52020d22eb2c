// The PTX parser: a scanner and recursive descent. After the first syntax error the scanner only
// yields the end, so every loop ends by itself.
#include <stdarg.h>
#include <stdio.h>

#include "ptx/syntax/syntax.h"

namespace simgpu::ptx {

namespace {

struct TypeRow {
  const char* name;
  uint32_t bytes;
};
constexpr TypeRow kTypes[kTyCount] = {
    {"none", 0},    {"u8", 1},     {"u16", 2},  {"u32", 4},    {"u64", 8},    {"s8", 1},
    {"s16", 2},     {"s32", 4},    {"s64", 8},  {"b8", 1},     {"b16", 2},    {"b32", 4},
    {"b64", 8},     {"b128", 16},  {"f16", 2},  {"f16x2", 4},  {"bf16", 2},   {"bf16x2", 4},
    {"f32", 4},     {"f64", 8},    {"pred", 0}, {"u16x2", 4},  {"s16x2", 4},  {"f32x2", 8},
    {"e4m3x2", 2},  {"e5m2x2", 2}, {"tf32", 4}, {"e2m1x2", 1}, {"e2m3x2", 2}, {"e3m2x2", 2},
    {"ue8m0x2", 2},
};

struct SpecialRow {
  const char* name;
  uint8_t reg;
};
constexpr SpecialRow kSpecials[] = {
    {"%tid.x", kTidX},
    {"%tid.y", kTidY},
    {"%tid.z", kTidZ},
    {"%ntid.x", kNtidX},
    {"%ntid.y", kNtidY},
    {"%ntid.z", kNtidZ},
    {"%ctaid.x", kCtaidX},
    {"%ctaid.y", kCtaidY},
    {"%ctaid.z", kCtaidZ},
    {"%nctaid.x", kNctaidX},
    {"%nctaid.y", kNctaidY},
    {"%nctaid.z", kNctaidZ},
    {"%laneid", kLaneid},
    {"%warpid", kWarpid},
    {"%nwarpid", kNwarpid},
    {"%smid", kSmid},
    {"%nsmid", kNsmid},
    {"%gridid", kGridid},
    {"%lanemask_eq", kLaneEq},
    {"%lanemask_lt", kLaneLt},
    {"%lanemask_le", kLaneLe},
    {"%lanemask_gt", kLaneGt},
    {"%lanemask_ge", kLaneGe},
    {"%clock", kClock},
    {"%clock_hi", kClockHi},
    {"%clock64", kClock64},
    {"%globaltimer", kGlobaltimer},
    {"%globaltimer_lo", kGlobaltimerLo},
    {"%globaltimer_hi", kGlobaltimerHi},
    {"%dynamic_smem_size", kDynamicShared},
    {"%total_smem_size", kTotalShared},
    {"%aggr_smem_size", kAggrShared},
    {"%clusterid.x", kClusteridX},
    {"%clusterid.y", kClusteridY},
    {"%clusterid.z", kClusteridZ},
    {"%nclusterid.x", kNclusteridX},
    {"%nclusterid.y", kNclusteridY},
    {"%nclusterid.z", kNclusteridZ},
    {"%cluster_ctaid.x", kClusterCtaidX},
    {"%cluster_ctaid.y", kClusterCtaidY},
    {"%cluster_ctaid.z", kClusterCtaidZ},
    {"%cluster_nctaid.x", kClusterNctaidX},
    {"%cluster_nctaid.y", kClusterNctaidY},
    {"%cluster_nctaid.z", kClusterNctaidZ},
    {"%cluster_ctarank", kClusterCtarank},
    {"%cluster_nctarank", kClusterNctarank},
    {"%is_explicit_cluster", kIsExplicitCluster},
    {"WARP_SZ", kWarpSize},
    {"%current_graph_exec", kGraphExec},
    {"%pm0", kPm0},
    {"%pm1", kPm0},
    {"%pm2", kPm0},
    {"%pm3", kPm0},
};

enum class Token : uint8_t { kEnd, kName, kNumber, kString, kMark };

bool name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '%' ||
         c == '.';
}
bool digit(char c) { return c >= '0' && c <= '9'; }
bool name_part(char c) { return name_start(c) || digit(c); }

int hex_digit(char c) {
  if (digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

class Scanner {
 public:
  Scanner(const char* text, size_t length, Log* log) : at_(text), end_(text + length), log_(log) {
    advance();
  }
  Token kind = Token::kEnd;
  Text text;                                        // names and strings
  char mark = 0;                                    // punctuation
  uint64_t value = 0;                               // numbers
  OperandKind number_kind = OperandKind::kInteger;  // and what they are
  uint32_t line = 1;

  void fail(const char* what) {
    if (!failed_) {
      if (kind == Token::kEnd)
        log_->error(line, "%s, but the text ends here", what);
      else if (kind == Token::kMark)
        log_->error(line, "%s near '%c'", what, mark >= 32 && mark < 127 ? mark : '?');
      else if (kind == Token::kNumber)
        log_->error(line, "%s near a number", what);
      else
        log_->error(line, "%s near '%.*s'", what, (int)(text.size > 80 ? 80 : text.size),
                    text.data);
    }
    stop();
  }
  void stop() {
    failed_ = true;
    kind = Token::kEnd;
    at_ = end_;
  }
  bool failed() const { return failed_; }

  bool is(char c) const { return kind == Token::kMark && mark == c; }
  bool is(Text name) const { return kind == Token::kName && text == name; }
  bool accept(char c) {
    if (!is(c)) return false;
    advance();
    return true;
  }
  bool accept(Text name) {
    if (!is(name)) return false;
    advance();
    return true;
  }
  void expect(char c) {
    if (accept(c)) return;
    char message[] = "expected 'x'";
    message[10] = c;
    fail(message);
  }
  Text name() {
    if (kind != Token::kName) {
      fail("expected a name");
      return Text("", 0);
    }
    Text t = text;
    advance();
    return t;
  }
  uint64_t number() {
    bool minus = accept('-');
    if (kind != Token::kNumber) {
      fail("expected a number");
      return 0;
    }
    uint64_t v = value;
    advance();
    return minus ? 0 - v : v;
  }
  void skip_line() {
    while (at_ < end_ && *at_ != '\n') ++at_;
    advance();
  }

  void advance() {
    if (failed_) return;
    skip_blank();
    if (failed_ || at_ >= end_) {
      kind = Token::kEnd;
      return;
    }
    char c = *at_;
    if (digit(c) || (c == '.' && at_ + 1 < end_ && digit(at_[1]) && false)) return scan_number();
    if (name_start(c)) return scan_name();
    if (c == '"') return scan_string();
    kind = Token::kMark;
    mark = c;
    ++at_;
  }

 private:
  void skip_blank() {
    while (at_ < end_) {
      char c = *at_;
      if (c == '\n') {
        ++line;
        ++at_;
      } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v') {
        ++at_;
      } else if (c == '/' && at_ + 1 < end_ && at_[1] == '/') {
        while (at_ < end_ && *at_ != '\n') ++at_;
      } else if (c == '/' && at_ + 1 < end_ && at_[1] == '*') {
        skip_comment();
      } else if (c == '#') {  // a preprocessor line marker
        while (at_ < end_ && *at_ != '\n') ++at_;
      } else {
        return;
      }
    }
  }
  void skip_comment() {
    for (at_ += 2; at_ + 1 < end_; ++at_) {
      if (*at_ == '\n') ++line;
      if (at_[0] == '*' && at_[1] == '/') {
        at_ += 2;
        return;
      }
    }
    at_ = end_;
  }
  void scan_name() {
    const char* begin = at_;
    const bool directive = *at_ == '.';  // ".reg.b16" is two words
    for (++at_; at_ < end_;) {
      if (directive && *at_ == '.') break;
      if (name_part(*at_)) {
        ++at_;
      } else if (*at_ == ':' && at_ + 2 < end_ && at_[1] == ':' && name_part(at_[2])) {
        at_ += 2;
      } else {
        break;
      }
    }
    kind = Token::kName;
    text = Text(begin, at_ - begin);
  }
  void scan_string() {
    const char* begin = ++at_;
    while (at_ < end_ && *at_ != '"' && *at_ != '\n') ++at_;
    kind = Token::kString;
    text = Text(begin, at_ - begin);
    if (at_ >= end_ || *at_ != '"') return fail("unterminated string");
    ++at_;
  }
  void scan_number() {
    kind = Token::kNumber;
    number_kind = OperandKind::kInteger;
    value = 0;
    const char* begin = at_;
    char second = at_ + 1 < end_ ? at_[1] : 0;
    if (*at_ == '0' && (second == 'f' || second == 'F')) return scan_bits(8, OperandKind::kFloat32);
    if (*at_ == '0' && (second == 'd' || second == 'D'))
      return scan_bits(16, OperandKind::kFloat64);
    unsigned base = 10;
    if (*at_ == '0' && (second == 'x' || second == 'X')) {
      base = 16;
      at_ += 2;
    } else if (*at_ == '0' && (second == 'b' || second == 'B')) {
      base = 2;
      at_ += 2;
    } else if (*at_ == '0' && digit(second)) {
      base = 8;
    }
    while (at_ < end_ && hex_digit(*at_) >= 0 && hex_digit(*at_) < (int)base) {
      value = value * base + hex_digit(*at_);
      ++at_;
    }
    bool real = base <= 10 && at_ < end_ && (*at_ == '.' || *at_ == 'e' || *at_ == 'E');
    if (real) {
      char copy[64];
      size_t n = 0;
      at_ = begin;
      while (at_ < end_ && n + 1 < sizeof copy &&
             (digit(*at_) || *at_ == '.' || *at_ == 'e' || *at_ == 'E' ||
              ((*at_ == '-' || *at_ == '+') && (at_[-1] == 'e' || at_[-1] == 'E'))))
        copy[n++] = *at_++;
      copy[n] = 0;
      double d = strtod(copy, nullptr);
      memcpy(&value, &d, 8);
      number_kind = OperandKind::kFloat64;
    } else if (at_ < end_ && (*at_ == 'U' || *at_ == 'u')) {
      ++at_;
    }
  }
  void scan_bits(int digits, OperandKind kind_of) {
    at_ += 2;
    for (int i = 0; i < digits; ++i, ++at_) {
      if (at_ >= end_ || hex_digit(*at_) < 0) return fail("bad floating-point constant");
      value = value << 4 | hex_digit(*at_);
    }
    number_kind = kind_of;
  }

  const char* at_;
  const char* end_;
  Log* log_;
  bool failed_ = false;
};

class Parser {
 public:
  Parser(ModuleSyntax* module, size_t length, Log* log)
      : m_(*module), s_(module->text, length, log), log_(log) {
    for (const SpecialRow& row : kSpecials) {
      auto* symbol = m_.arena.make<uint8_t>();
      *symbol = row.reg;
      specials_.put(row.name, symbol);
    }
  }

  bool run() {
    bool any = false;
    while (s_.kind != Token::kEnd && !s_.failed()) {
      directive();
      any = true;
    }
    if (!s_.failed() && m_.version == 0) {
      s_.fail(any ? "no .version directive" : "no PTX text");
    }
    return log_->errors() == 0;
  }

 private:
  Text keep(const char* prefix, Text name) {
    size_t n = strlen(prefix);
    char* p = m_.arena.make<char>(n + name.size + 1);
    memcpy(p, prefix, n);
    memcpy(p + n, name.data, name.size);
    return Text(p, n + name.size);
  }

  // ---- module scope ----
  void directive() {
    if (s_.kind != Token::kName) {
      if (s_.accept(';')) return;
      return s_.fail("expected a directive");
    }
    if (s_.is(".file") || s_.is(".loc")) return s_.skip_line();
    if (s_.accept(".version")) return version();
    if (s_.accept(".target")) return target();
    if (s_.accept(".address_size")) {
      if (s_.number() != 64) s_.fail("only 64-bit addresses are supported");
      return;
    }
    if (s_.accept(".section")) return section();
    if (s_.is("@@DWARF")) return s_.skip_line();
    if (s_.accept(".pragma")) {
      while (s_.kind != Token::kEnd && !s_.accept(';')) s_.advance();
      return;
    }
    if (s_.accept(".alias")) return alias();
    linkage_and_object();
  }

  void version() {
    // "9.0" scans as one real number.
    if (s_.kind != Token::kNumber) return s_.fail("expected a version");
    double v = 0;
    if (s_.number_kind == OperandKind::kFloat64)
      memcpy(&v, &s_.value, 8);
    else
      v = (double)s_.value;
    if (!(v > 0 && v < 1000)) return s_.fail("bad .version");
    m_.version = (uint32_t)(v * 10 + 0.5);
    s_.advance();
  }

  void target() {
    do {
      Text t = s_.name();
      if (!t.starts("sm_")) continue;
      uint32_t sm = 0;
      for (uint32_t i = 3; i < t.size && digit(t[i]); ++i) sm = sm * 10 + (t[i] - '0');
      m_.target_sm = sm;
    } while (s_.accept(','));
  }

  void section() {
    s_.name();
    s_.expect('{');
    int depth = 1;
    while (depth > 0 && s_.kind != Token::kEnd) {
      if (s_.is('{')) ++depth;
      if (s_.is('}')) --depth;
      s_.advance();
    }
    if (depth > 0) s_.fail("unterminated .section");
  }

  void alias() {
    Text from = s_.name();
    s_.expect(',');
    Text to = s_.name();
    s_.expect(';');
    Symbol* target = m_.symbols.find(to);
    if (!target) return s_.fail("alias of an undeclared function");
    m_.symbols.put(from, target);
  }

  void linkage_and_object() {
    bool external = false;
    for (;;) {
      if (s_.accept(".extern"))
        external = true;
      else if (!s_.accept(".visible") && !s_.accept(".weak") && !s_.accept(".common"))
        break;
    }
    if (s_.is(".func") || s_.is(".entry")) return function(external);
    if (s_.is(".global") || s_.is(".const") || s_.is(".shared") || s_.is(".local"))
      return variables(external, nullptr);
    if (s_.is(".tex")) return old_texture(external);
    s_.fail("unknown directive");
  }

  // ---- texture, sampler and surface references ----
  static Opaque opaque_from(Text t) {
    return t == ".texref"       ? Opaque::kTexture
           : t == ".samplerref" ? Opaque::kSampler
           : t == ".surfref"    ? Opaque::kSurface
                                : Opaque::kNo;
  }

  // .tex .u32 name; is how .global .texref name; was written once.
  void old_texture(bool external) {
    s_.advance();
    s_.name();  // .u32, .u64, .s32: without effect
    references(Opaque::kTexture, external);
  }

  // name [= {member = value, ...}], ... ;
  void references(Opaque kind, bool external) {
    do {
      Declared d;
      d.type = Ty::kB64;
      Symbol* v = declare(Space::kGlobal, d);
      v->external = external;
      v->opaque = kind;
      if (v->bytes != 8) return s_.fail("arrays of references are not supported");
      if (s_.accept('=')) reference_members(&v->init);
      if (s_.failed()) return;
      enter(v);
    } while (s_.accept(','));
    s_.expect(';');
  }

  void reference_members(ReferenceInit* init) {
    static const char* const kModes[] = {"wrap", "clamp_to_edge", "mirror", "clamp_to_border"};
    s_.expect('{');
    while (!s_.failed() && !s_.is('}')) {
      Text member = s_.name();
      s_.expect('=');
      if (s_.failed()) return;
      if (s_.kind == Token::kNumber) {
        const uint64_t value = s_.number();
        if (member == "normalized_coords") init->normalized = value != 0;
        if (member == "force_unnormalized_coords" && value != 0) init->normalized = 0;
      } else {
        Text value = s_.name();
        if (member == "filter_mode") {
          init->filter = value == "linear";
        } else if (member.starts("addr_mode_") && member.size == 11 && member[10] >= '0' &&
                   member[10] <= '2') {
          int8_t* mode = &init->address[member[10] - '0'];
          *mode = value == "clamp_ogl" ? 1 : -1;
          for (int8_t k = 0; k < 4; ++k)
            if (value == kModes[k]) *mode = k;
          if (*mode < 0) return s_.fail("unknown address mode");
        }
      }
      if (!s_.accept(',')) break;
    }
    s_.expect('}');
  }

  // ---- variables ----
  // [.align N] [.attribute(...)] [.v2] .type [.ptr ...] name [dims], as in declarations and
  // parameters.
  struct Declared {
    Ty type = Ty::kNone;
    uint32_t align = 0;
    uint32_t vector = 1;
    bool managed = false;
  };
  Declared declaration_head() {
    Declared d;
    while (s_.kind == Token::kName && s_.text[0] == '.') {
      Text t = s_.text;
      Ty type;
      if (t == ".align") {
        s_.advance();
        d.align = (uint32_t)s_.number();
        if (d.align == 0 || (d.align & (d.align - 1)) != 0 || d.align > 4096) {
          s_.fail("bad alignment");
          d.align = 1;
        }
      } else if (t == ".attribute") {
        s_.advance();
        s_.expect('(');
        while (s_.kind != Token::kEnd && !s_.accept(')')) {
          if (s_.is(".managed")) d.managed = true;
          s_.advance();
        }
      } else if (t == ".ptr") {
        s_.advance();
        while (s_.is(".global") || s_.is(".const") || s_.is(".shared") || s_.is(".local") ||
               s_.is(".param") || s_.is(".generic"))
          s_.advance();
        if (s_.accept(".align")) s_.number();
      } else if (t == ".v2") {
        s_.advance();
        d.vector = 2;
      } else if (t == ".v4") {
        s_.advance();
        d.vector = 4;
      } else if (type_from(Text(t.data + 1, t.size - 1), &type)) {
        s_.advance();
        d.type = type;
      } else {
        s_.fail("unknown type");
      }
    }
    if (d.type == Ty::kNone) s_.fail("expected a type");
    return d;
  }

  Symbol* declare(Space space, const Declared& d) {
    auto* v = new (m_.arena.make<Symbol>()) Symbol();
    v->kind = SymbolKind::kVariable;
    v->line = s_.line;
    v->space = space;
    v->type = d.type;
    v->managed = d.managed;
    v->name = s_.name();
    uint64_t bytes = (uint64_t)type_bytes(d.type) * d.vector;
    v->align = d.align != 0 ? d.align : (uint32_t)(bytes == 0 ? 1 : bytes);
    while (s_.accept('[')) {
      if (s_.accept(']')) {
        v->unsized = true;
        continue;
      }
      uint64_t n = s_.number();
      s_.expect(']');
      if (n > (1ull << 40) || (n != 0 && bytes > (1ull << 42) / n)) {
        s_.fail("array too large");
        n = 0;
      }
      bytes *= n;
    }
    v->bytes = v->unsized ? 0 : bytes;
    return v;
  }

  void variables(bool external, FunctionSyntax* owner) {
    Space space = s_.is(".global")   ? Space::kGlobal
                  : s_.is(".const")  ? Space::kConst
                  : s_.is(".shared") ? Space::kShared
                  : s_.is(".local")  ? Space::kLocal
                                     : Space::kParam;
    s_.advance();
    if (s_.kind == Token::kName && s_.text[0] == '.' && s_.text.size == 2 && digit(s_.text[1]))
      s_.fail("constant banks are not supported");
    if (s_.kind == Token::kName && space == Space::kGlobal && !owner) {
      if (const Opaque kind = opaque_from(s_.text); kind != Opaque::kNo) {
        s_.advance();
        return references(kind, external);
      }
    }
    Declared d = declaration_head();
    do {
      Symbol* v = declare(space, d);
      v->external = external;
      v->owner = owner;
      if (s_.accept('=')) initialiser(v, d);
      if (s_.failed()) return;
      enter(v);
    } while (s_.accept(','));
    s_.expect(';');
  }

  // Makes a declared variable known.
  void enter(Symbol* v) {
    if (v->space == Space::kGlobal || v->space == Space::kConst) {
      Symbol* before = !v->owner ? m_.symbols.find(v->name) : nullptr;
      if (before && before->kind == SymbolKind::kVariable) return redeclare(before, v);
      v->index = (uint32_t)m_.variables.size();
      m_.variables.push(v);
    } else if (v->owner) {
      v->owner->variables.push(v);
    }
    if (!v->owner)
      m_.symbols.put(v->name, v);
    else
      scope_put(v);
  }

  // ".extern x" and later the definition, or the other way round: one variable.
  void redeclare(Symbol* before, Symbol* now) {
    if (now->external) return;
    if (!before->external) return s_.fail("variable defined twice");
    uint32_t index = before->index;
    *before = *now;
    before->index = index;
  }

  void initialiser(Symbol* v, const Declared& d) {
    Vec<InitPiece> pieces;
    uint32_t size = type_bytes(d.type);
    if (size == 0 || size > 8) return s_.fail("bad type for an initialiser");
    uint64_t offset = 0;
    if (s_.is('{'))
      list(v, d.type, size, &offset, &pieces, 0);
    else if (s_.kind == Token::kString)
      string(&offset, &pieces);
    else
      piece(d.type, size, &offset, &pieces);
    if (s_.failed()) return;
    if (v->unsized) {
      v->bytes = offset;
      v->unsized = false;
    }
    if (offset > v->bytes) return s_.fail("initialiser longer than its variable");
    v->piece_count = (uint32_t)pieces.size();
    v->pieces = m_.arena.make<InitPiece>(pieces.size() + 1);
    if (!pieces.empty()) memcpy((void*)v->pieces, pieces.data(), pieces.size() * sizeof(InitPiece));
  }

  void list(Symbol* v, Ty type, uint32_t size, uint64_t* offset, Vec<InitPiece>* pieces,
            int depth) {
    if (depth > 8) return s_.fail("initialiser nested too deep");
    s_.expect('{');
    while (!s_.failed() && !s_.is('}')) {
      if (s_.is('{'))
        list(v, type, size, offset, pieces, depth + 1);
      else
        piece(type, size, offset, pieces);
      if (!s_.accept(',')) break;
    }
    s_.expect('}');
  }

  void string(uint64_t* offset, Vec<InitPiece>* pieces) {
    for (uint32_t i = 0; i < s_.text.size; ++i)
      pieces->push({(uint32_t)(*offset)++, 1, 0, nullptr, {}, (uint8_t)s_.text[i]});
    s_.advance();
  }

  void piece(Ty type, uint32_t size, uint64_t* offset, Vec<InitPiece>* pieces) {
    InitPiece p{};
    p.offset = (uint32_t)*offset;
    p.bytes = (uint8_t)size;
    *offset += size;
    bool minus = s_.accept('-');
    if (s_.kind == Token::kNumber) {
      uint64_t value = s_.value;
      OperandKind kind = s_.number_kind;
      s_.advance();
      if (kind == OperandKind::kInteger &&
          s_.accept('(')) {  // 0xFF00(symbol): one byte of an address
        address(&p);
        s_.expect(')');
        p.shift = value == 0 ? 0 : (uint8_t)(__builtin_ctzll(value) & ~7);
      } else {
        p.value = number_as(type, kind, value, minus);
      }
    } else {
      address(&p);
    }
    pieces->push(p);
  }

  void address(InitPiece* p) {
    bool generic = s_.accept("generic");
    if (generic) s_.expect('(');
    Text name = s_.name();
    p->symbol = lookup(name);
    p->late_name = name;
    if (generic) s_.expect(')');
    p->value = offset_suffix();
  }

  uint64_t offset_suffix() {
    uint64_t value = 0;
    for (;;) {
      if (s_.accept('+'))
        value += s_.number();
      else if (s_.is('-'))
        value += s_.number();
      else
        return value;
    }
  }

  uint64_t number_as(Ty type, OperandKind kind, uint64_t value, bool minus) {
    double d;
    if (kind == OperandKind::kFloat32) {
      float f;
      uint32_t bits = (uint32_t)value ^ (minus ? 0x80000000u : 0);
      if (type == Ty::kF64) {
        memcpy(&f, &bits, 4);
        d = f;
        memcpy(&value, &d, 8);
        return value;
      }
      return bits;
    }
    if (kind == OperandKind::kFloat64) {
      value ^= minus ? 1ull << 63 : 0;
      if (type != Ty::kF32) return value;
      memcpy(&d, &value, 8);
      float f = (float)d;
      uint32_t bits;
      memcpy(&bits, &f, 4);
      return bits;
    }
    if (minus) value = 0 - value;
    if (type == Ty::kF32) {
      float f = (float)(int64_t)value;
      uint32_t bits;
      memcpy(&bits, &f, 4);
      return bits;
    }
    if (type == Ty::kF64) {
      d = (double)(int64_t)value;
      memcpy(&value, &d, 8);
    }
    return value;
  }

  // ---- functions ----
  void function(bool external) {
    auto* f = new (m_.arena.make<FunctionSyntax>()) FunctionSyntax();
    f->index = (uint32_t)m_.functions.size();
    m_.functions.push(f);
    f->entry = s_.is(".entry");
    f->external = external;
    f->line = s_.line;
    s_.advance();
    scopes_.clear();
    f->scope_parent.push(0);
    scopes_.push(0);
    scope_base_ = ++scope_serial_ << 32;
    f_ = f;
    if (!f->entry && s_.is('(')) parameters(f, &f->results);
    if (s_.is(".attribute")) {
      s_.advance();
      while (s_.kind != Token::kEnd && !s_.accept(')')) s_.advance();
    }
    f->name = s_.name();
    if (s_.is('(')) parameters(f, &f->params);
    function_directives(f);
    FunctionSyntax* before = publish(f);
    (void)before;
    if (s_.accept(';')) {
      f_ = nullptr;
      return;
    }
    f->defined = true;
    s_.expect('{');
    body(f);
    f_ = nullptr;
  }

  // Prototypes come first and may be many: the symbol points at the definition once there is one.
  FunctionSyntax* publish(FunctionSyntax* f) {
    Symbol* symbol = m_.symbols.find(f->name);
    if (!symbol || symbol->kind != SymbolKind::kFunction) {
      symbol = new (m_.arena.make<Symbol>()) Symbol();
      symbol->kind = SymbolKind::kFunction;
      symbol->name = f->name;
      symbol->function = f;
      m_.symbols.put(f->name, symbol);
      return nullptr;
    }
    FunctionSyntax* before = symbol->function;
    if (s_.is('{')) {
      if (before->defined) s_.fail("function defined twice");
      symbol->function = f;
    }
    return before;
  }

  void function_directives(FunctionSyntax* f) {
    while (s_.kind == Token::kName) {
      Text t = s_.text;
      s_.advance();
      uint32_t v[3] = {1, 1, 1};
      int n = 0;
      if (t == ".pragma") {
        while (s_.kind != Token::kEnd && !s_.accept(';')) s_.advance();
        continue;
      }
      if (t == ".attribute") {
        while (s_.kind != Token::kEnd && !s_.accept(')')) s_.advance();
        continue;
      }
      if (s_.kind == Token::kNumber) {
        do {
          uint64_t x = s_.number();
          if (n < 3) v[n++] = (uint32_t)x;
        } while (s_.accept(','));
      }
      if (t == ".maxnreg") f->max_registers = v[0];
      if (t == ".maxntid") f->max_threads = v[0] * v[1] * v[2];
      if (t == ".reqntid") memcpy(f->required, v, sizeof v);
      if (t == ".reqnctapercluster") memcpy(f->cluster, v, sizeof v);
    }
  }

  void parameters(FunctionSyntax* f, Vec<Symbol*>* out) {
    s_.expect('(');
    uint32_t offset = 0;
    while (!s_.failed() && !s_.is(')')) {
      const bool in_register = !f->entry && s_.accept(".reg");
      if (!in_register && !s_.accept(".param")) return s_.fail("expected .param");
      Declared d = declaration_head();
      Symbol* p = declare(Space::kParam, d);
      p->owner = f;
      p->entry_param = f->entry;
      if (in_register && !register_parameter(f, p)) return;
      if (p->unsized) s_.fail("variadic parameters are not supported");
      if (p->bytes > 65536) s_.fail("parameter too large");
      offset = (offset + p->align - 1) & ~(p->align - 1);
      p->offset = offset;
      offset += (uint32_t)p->bytes;
      out->push(p);
      if (!in_register) scope_put(p);
      if (!s_.accept(',')) break;
    }
    s_.expect(')');
  }
  // ".reg .u32 x" among parameters: passed like any other, under its register's name (`first`;
  // `count` says that there is one).
  bool register_parameter(FunctionSyntax* f, Symbol* p) {
    if (p->bytes != type_bytes(p->type) || p->bytes == 0 || p->bytes > 8) {
      s_.fail("bad type of a register parameter");
      return false;
    }
    p->first = (uint32_t)f->registers.size();
    p->count = 1;
    f->registers.push({p->type});
    auto* r = new (m_.arena.make<Symbol>()) Symbol();
    r->kind = SymbolKind::kRegisters;
    r->type = p->type;
    r->space = Space::kReg;
    r->name = p->name;
    r->first = p->first;
    scope_put(r);
    return true;
  }

  void body(FunctionSyntax* f) {
    while (!s_.failed() && s_.kind != Token::kEnd) {
      if (s_.accept('}')) {
        scopes_.pop();
        if (scopes_.empty()) return;
        continue;
      }
      if (s_.accept('{')) {
        if (scopes_.size() > 200) return s_.fail("scopes nested too deep");
        f->scope_parent.push(scopes_.back());
        scopes_.push((uint32_t)f->scope_parent.size() - 1);
        continue;
      }
      statement(f);
    }
    if (!s_.failed()) s_.fail("function without end");
  }

  void statement(FunctionSyntax* f) {
    if (s_.accept(';')) return;
    if (s_.accept('@')) return instruction(f, true);
    if (s_.kind != Token::kName) return s_.fail("expected an instruction");
    Text t = s_.text;
    if (t[0] == '.') {
      if (t == ".loc" || t == ".file") return s_.skip_line();
      if (t == ".reg") return registers(f);
      if (t == ".local" || t == ".shared" || t == ".global" || t == ".const" || t == ".param")
        return variables(false, f);
      if (t == ".extern") {
        s_.advance();
        return variables(true, f);
      }
      if (t == ".pragma" || t == ".noreturn" || t == ".branchtargets" || t == ".calltargets") {
        while (s_.kind != Token::kEnd && !s_.accept(';')) s_.advance();
        return;
      }
      return s_.fail("unknown directive");
    }
    instruction(f, false);
  }

  void registers(FunctionSyntax* f) {
    s_.advance();
    if (s_.is(".v2") || s_.is(".v4")) return s_.fail("vector registers are not supported");
    Declared d = declaration_head();
    do {
      auto* r = new (m_.arena.make<Symbol>()) Symbol();
      r->kind = SymbolKind::kRegisters;
      r->type = d.type;
      r->space = Space::kReg;
      r->name = s_.name();
      r->count = 0;
      uint64_t n = 1;
      if (s_.accept('<')) {
        n = s_.number();
        s_.expect('>');
        if (n > 1000000) {
          s_.fail("too many registers");
          n = 0;
        }
        r->count = (uint32_t)n;
      }
      r->first = (uint32_t)f->registers.size();
      if (f->registers.size() + n > 4000000) {
        s_.fail("too many registers");
        n = 0;
      }
      for (uint64_t i = 0; i < n; ++i) f->registers.push({d.type});
      // A range is found by its prefix, apart from single names.
      if (r->count != 0)
        ranges_.put(r->name, r, scope_key(scopes_.back()));
      else
        scope_put(r);
    } while (s_.accept(','));
    s_.expect(';');
  }

  uint64_t scope_key(uint32_t scope) const { return scope_base_ | (scope + 1); }
  void scope_put(Symbol* v) { locals_.put(v->name, v, scope_key(scopes_.back())); }

  Symbol* lookup(Text name) {
    if (f_)
      for (size_t i = scopes_.size(); i-- > 0;)
        if (Symbol* s = locals_.find(name, scope_key(scopes_[i]))) return s;
    return m_.symbols.find(name);
  }

  // A register by name: a single one, or %r17 from a range %r<20>, innermost scope first.
  bool find_register(Text name, uint32_t* reg) {
    uint32_t digits = name.size;
    while (digits > 1 && digit(name[digits - 1])) --digits;
    Text prefix(name.data, digits);
    uint64_t number = 0;
    for (uint32_t i = digits; i < name.size && number < 100000000; ++i)
      number = number * 10 + (name[i] - '0');
    for (size_t i = scopes_.size(); i-- > 0;) {
      Symbol* s = locals_.find(name, scope_key(scopes_[i]));
      if (s) {
        if (s->kind != SymbolKind::kRegisters) return false;
        *reg = s->first;
        return true;
      }
      if (digits == name.size) continue;
      s = ranges_.find(prefix, scope_key(scopes_[i]));
      if (s && number < s->count) {
        *reg = s->first + (uint32_t)number;
        return true;
      }
    }
    return false;
  }

  void instruction(FunctionSyntax* f, bool guarded) {
    InstructionSyntax in{};
    in.scope = scopes_.back();
    in.line = s_.line;
    if (guarded) {
      in.guarded = true;
      in.guard_negated = s_.accept('!');
      Text name = s_.name();
      if (s_.failed()) return;
      if (!find_register(name, &in.guard) || f->registers[in.guard].type != Ty::kPred)
        return s_.fail("the guard is not a predicate");
    }
    in.line = s_.line;
    Text name = s_.name();
    if (s_.failed()) return;
    if (!guarded && s_.accept(':')) return label(f, name);
    in.opcode = name;
    Vec<Operand> operands;
    while (!s_.failed() && !s_.is(';')) {
      operand(&operands.push(Operand()), 0);
      s_.accept(',');
      if (operands.size() > 64) return s_.fail("too many operands");
    }
    s_.expect(';');
    if (s_.failed()) return;
    in.operand_count = (uint32_t)operands.size();
    in.operands = m_.arena.make<Operand>(operands.size() + 1);
    if (!operands.empty())
      memcpy((void*)in.operands, operands.data(), operands.size() * sizeof(Operand));
    f->body.push(in);
  }

  void label(FunctionSyntax* f, Text name) {
    if (s_.accept(".callprototype")) return prototype(name);
    auto* l = m_.arena.make<LabelSyntax>();
    l->name = name;
    l->at = (uint32_t)f->body.size();
    if (s_.accept(".branchtargets")) {
      Vec<Text> names;
      do names.push(s_.name());
      while (s_.accept(','));
      s_.expect(';');
      l->target_count = (uint32_t)names.size();
      l->targets = m_.arena.make<Text>(names.size());
      memcpy((void*)l->targets, names.data(), names.size() * sizeof(Text));
    } else if (s_.accept(".calltargets")) {
      while (s_.kind != Token::kEnd && !s_.accept(';')) s_.advance();
      return;
    }
    if (f->label_map.find(name, scopes_.back() + 1)) return s_.fail("label defined twice");
    f->labels.push(l);
    f->label_map.put(name, l, scopes_.back() + 1);
  }

  // name: .callprototype (.param .b32 _) _ (.param .b64 _, ...);
  void prototype(Text name) {
    auto* f = new (m_.arena.make<FunctionSyntax>()) FunctionSyntax();
    auto* symbol = new (m_.arena.make<Symbol>()) Symbol();
    symbol->kind = SymbolKind::kPrototype;
    symbol->name = name;
    symbol->function = f;
    m_.functions.push(f);  // owned there; never defined
    f->external = true;
    scopes_.push((uint32_t)f_->scope_parent.size());
    f_->scope_parent.push(scopes_[scopes_.size() - 2]);
    if (s_.is('(')) parameters(f, &f->results);
    s_.name();
    if (s_.is('(')) parameters(f, &f->params);
    while (s_.kind != Token::kEnd && !s_.accept(';')) s_.advance();
    scopes_.pop();
    scope_put(symbol);
  }

  void operand(Operand* o, int depth) {
    if (depth > 4) return s_.fail("operand nested too deep");
    if (s_.accept('[')) return address_operand(o, depth);
    if (s_.accept('{')) {
      list_operand(o, '}', depth);
      if (s_.accept('|')) {  // the predicate of a texture fetch
        o->pair = true;
        o->second = new (m_.arena.make<Operand>()) Operand();
        operand(o->second, depth + 1);
      }
      return;
    }
    if (s_.accept('(')) return list_operand(o, ')', depth);
    bool negated = s_.accept('!');
    bool minus = !negated && s_.accept('-');
    if (s_.kind == Token::kNumber) {
      o->kind = s_.number_kind;
      o->value = s_.value;
      if (minus) {
        o->value = o->kind == OperandKind::kFloat32   ? o->value ^ 0x80000000u
                   : o->kind == OperandKind::kFloat64 ? o->value ^ (1ull << 63)
                                                      : 0 - o->value;
      }
      s_.advance();
      return;
    }
    if (minus || s_.kind != Token::kName) return s_.fail("expected an operand");
    name_operand(o);
    o->negated = negated;
    if (s_.accept('|')) {
      o->pair = true;
      o->items = new (m_.arena.make<Operand>()) Operand();
      operand(o->items, depth + 1);
    }
  }

  void name_operand(Operand* o) {
    Text name = s_.name();
    o->name = name;
    if (name == "_") {
      o->kind = OperandKind::kSink;
      return;
    }
    if (find_register(name, &o->reg)) {
      o->kind = OperandKind::kRegister;
      return;
    }
    if (special(name, &o->special)) {
      o->kind = OperandKind::kSpecial;
      return;
    }
    if (part_of_register(name, o)) return;
    o->symbol = lookup(name);
    o->kind = o->symbol ? OperandKind::kSymbol : OperandKind::kName;
    if (o->kind == OperandKind::kSymbol && s_.accept('[')) return element(o);
    if (s_.is('+') || (s_.is('-') && o->kind == OperandKind::kSymbol)) o->value = offset_suffix();
  }

  // %r1.b0 to .b3, .h0, .h1: then the register's value is 1 to 6.
  bool part_of_register(Text name, Operand* o) {
    if (name.size < 4 || name[name.size - 3] != '.') return false;
    const char kind = name[name.size - 2], digit = name[name.size - 1];
    if (digit < '0' || digit > (kind == 'b' ? '3' : '1') || (kind != 'b' && kind != 'h'))
      return false;
    if (!find_register(Text(name.data, name.size - 3), &o->reg)) return false;
    o->kind = OperandKind::kRegister;
    o->value = (uint64_t)(digit - '0') + (kind == 'b' ? 1 : 5);
    return true;
  }

  // name[i], counted in elements.
  void element(Operand* o) {
    if (o->symbol->kind != SymbolKind::kVariable) return s_.fail("an index on what is no variable");
    if (s_.kind == Token::kName) return s_.fail("an index in a register: calculate the address");
    o->indexed = true;
    o->value = (s_.number() + offset_suffix()) * type_bytes(o->symbol->type);
    s_.expect(']');
  }

  bool special(Text name, uint8_t* out) {
    if (name.starts("%envreg")) {
      unsigned n = 0;
      for (uint32_t i = 7; i < name.size && digit(name[i]) && n < 100; ++i)
        n = n * 10 + (name[i] - '0');
      if (name.size == 7 || n > 31) return false;
      *out = (uint8_t)(kEnvreg0 + n);
      return true;
    }
    if (name.starts("%reserved_smem_offset_")) {
      *out = kReservedShared;
      return true;
    }
    uint8_t* found = specials_.find(name);
    if (!found) return false;
    *out = *found;
    return true;
  }

  void address_operand(Operand* o, int depth) {
    o->kind = OperandKind::kAddress;
    o->items = new (m_.arena.make<Operand>()) Operand();
    operand(o->items, depth + 1);
    o->count = 1;
    o->value = o->items->kind == OperandKind::kSymbol ? o->items->value : 0;
    if (o->items->kind == OperandKind::kInteger) o->value = o->items->value;
    o->value += offset_suffix();
    // [texture, {coordinates}], [texture, sampler, {coordinates}]
    for (; o->count < 3 && s_.accept(',');) {
      auto* items = m_.arena.make<Operand>(o->count + 1);
      for (uint32_t k = 0; k < o->count; ++k) new (&items[k]) Operand(o->items[k]);
      operand(new (&items[o->count]) Operand(), depth + 1);
      o->items = items;
      ++o->count;
    }
    s_.expect(']');
  }

  void list_operand(Operand* o, char close, int depth) {
    o->kind = OperandKind::kList;
    Vec<Operand> items;
    while (!s_.failed() && !s_.is(close)) {
      operand(&items.push(Operand()), depth + 1);
      if (!s_.accept(',')) break;
      if (items.size() > 4096) return s_.fail("list too long");
    }
    s_.expect(close);
    o->count = (uint32_t)items.size();
    o->items = m_.arena.make<Operand>(items.size() + 1);
    if (!items.empty()) memcpy((void*)o->items, items.data(), items.size() * sizeof(Operand));
  }

  ModuleSyntax& m_;
  Scanner s_;
  Log* log_;
  FunctionSyntax* f_ = nullptr;
  NameMap<uint8_t> specials_;
  NameMap<Symbol> locals_, ranges_;
  Vec<uint32_t> scopes_;
  uint64_t scope_base_ = 0, scope_serial_ = 0;
};

}  // namespace

uint32_t type_bytes(Ty t) { return kTypes[(unsigned)t].bytes; }
bool type_from(Text name, Ty* out) {
  for (unsigned i = 1; i < kTyCount; ++i)
    if (name == kTypes[i].name) {
      *out = (Ty)i;
      return true;
    }
  return false;
}

void Log::error(uint32_t line, const char* format, ...) {
  ++errors_;
  if (room_ == 0 || errors_ > 20 || used_ + 1 >= room_) return;
  int n = snprintf(buffer_ + used_, room_ - used_, "ptx input, line %u; error   : ", line);
  if (n > 0) used_ += (size_t)n < room_ - used_ ? (size_t)n : room_ - used_ - 1;
  va_list args;
  va_start(args, format);
  n = vsnprintf(buffer_ + used_, room_ - used_, format, args);
  va_end(args);
  if (n > 0) used_ += (size_t)n < room_ - used_ ? (size_t)n : room_ - used_ - 1;
  if (used_ + 1 < room_) {
    buffer_[used_++] = '\n';
    buffer_[used_] = 0;
  }
}

bool parse(ModuleSyntax* module, const char* text, size_t length, Log* log) {
  while (length > 0 && text[length - 1] == 0) --length;  // fat binaries pad with NULs
  module->text = module->arena.make<char>(length + 1);
  if (length != 0) memcpy(module->text, text, length);
  return Parser(module, length, log).run();
}

}  // namespace simgpu::ptx
