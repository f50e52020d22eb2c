// Links several PTX texts to one. It works on the declarations at module scope: which names are
// private to a text, and which one defines a name for all. Bodies are copied; private names that
// collide with another text's get a suffix.
#include <stdio.h>

#include "ptx/engine.h"
#include "ptx/syntax/syntax.h"

namespace simgpu::ptx {

namespace {

bool letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$';
}
bool digit(char c) { return c >= '0' && c <= '9'; }
bool word_part(char c) { return letter(c) || digit(c); }

enum class Linkage : uint8_t { kPrivate, kExtern, kVisible, kWeak };

// One declaration at module scope, as written in its text.
struct Item {
  uint32_t begin, end;
  Text name;
  Linkage linkage;
  bool named;    // a variable or a function; else a directive that is copied as it is
  bool defines;  // not a mere prototype
  bool dropped;
};

// Which texts use a name at module scope: one, or several.
struct Use {
  uint32_t input;
  bool shared;
};
struct Global {
  uint32_t input;
  uint32_t item;
  Linkage linkage;
};

class Output {
 public:
  ~Output() { free(data_); }
  void add(const char* text, size_t n) {
    if (used_ + n + 1 > room_) {
      room_ = (used_ + n + 1) * 2;
      data_ = static_cast<char*>(realloc(data_, room_));
      if (!data_) abort();
    }
    memcpy(data_ + used_, text, n);
    used_ += n;
    data_[used_] = 0;
  }
  void add(const char* text) { add(text, strlen(text)); }
  char* take(size_t* length) {
    *length = used_;
    char* r = data_;
    data_ = nullptr;
    return r;
  }

 private:
  char* data_ = nullptr;
  size_t used_ = 0, room_ = 0;
};

// Splits a text into its declarations.
class Splitter {
 public:
  Splitter(const char* text, size_t length) : text_(text), end_((uint32_t)length) {}
  uint32_t version = 0, target = 0;
  Text target_name;
  Vec<Item> items;

  // Returns false if the text cannot be split as PTX.
  bool run() {
    while (blank(), at_ < end_)
      if (!item()) return false;
    return version != 0 && target != 0;
  }
  uint32_t line() const {
    uint32_t n = 1;
    for (uint32_t k = 0; k < at_ && k < end_; ++k) n += text_[k] == '\n';
    return n;
  }

 private:
  void blank() {
    while (at_ < end_) {
      char c = text_[at_];
      if (c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == ';' || c == 0)
        ++at_;
      else if (!comment())
        return;
    }
  }
  bool comment() {
    if (text_[at_] != '/' || at_ + 1 >= end_) return false;
    if (text_[at_ + 1] == '/') {
      to_line_end();
      return true;
    }
    if (text_[at_ + 1] != '*') return false;
    for (at_ += 2; at_ + 1 < end_ && !(text_[at_] == '*' && text_[at_ + 1] == '/');) ++at_;
    at_ = at_ + 2 < end_ ? at_ + 2 : end_;
    return true;
  }
  void to_line_end() {
    while (at_ < end_ && text_[at_] != '\n') ++at_;
  }
  void string() {
    for (++at_; at_ < end_ && text_[at_] != '"'; ++at_)
      if (text_[at_] == '\n') return;
    if (at_ < end_) ++at_;
  }
  Text directive() {
    const uint32_t begin = at_;
    for (++at_; at_ < end_ && (word_part(text_[at_]) || text_[at_] == ':');) ++at_;
    return Text(text_ + begin, at_ - begin);
  }
  Text word() {
    while (at_ < end_ && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
    const uint32_t begin = at_;
    while (at_ < end_ && (word_part(text_[at_]) || text_[at_] == '.')) ++at_;
    return Text(text_ + begin, at_ - begin);
  }

  bool item() {
    const uint32_t begin = at_;
    if (text_[at_] == '@') {  // @@DWARF
      to_line_end();
      return true;
    }
    if (text_[at_] != '.') return false;
    Text first = directive();
    if (first == ".version") {
      const Text v = word();
      unsigned major = 0, minor = 0;
      uint32_t k = 0;
      for (; k < v.size && digit(v[k]); ++k) major = major * 10 + (unsigned)(v[k] - '0');
      for (++k; k < v.size && digit(v[k]); ++k) minor = minor * 10 + (unsigned)(v[k] - '0');
      version = major * 10 + minor;
      return true;
    }
    if (first == ".target") {
      target_name = word();
      for (uint32_t k = 3; k < target_name.size && digit(target_name[k]); ++k)
        target = target * 10 + (unsigned)(target_name[k] - '0');
      to_line_end();
      return true;
    }
    if (first == ".address_size") return word() == "64";
    if (first == ".file" || first == ".loc") {
      to_line_end();
      return true;
    }
    Item it{};
    it.begin = begin;
    if (first == ".section") {  // debugging information of one text means nothing in another
      while (at_ < end_ && text_[at_] != '{') ++at_;
      return body();
    }
    if (first == ".pragma" || first == ".alias") {
      while (at_ < end_ && text_[at_] != ';') ++at_;
      ++at_;
      it.end = at_ < end_ ? at_ : end_;
      items.push(it);
      return true;
    }
    at_ = begin;
    return declaration(&it);
  }

  bool declaration(Item* it) {
    it->named = true;
    int depth = 0;
    bool function = false;
    while (at_ < end_) {
      const char c = text_[at_];
      if (c == '"') {
        string();
      } else if (c == '/' && comment()) {
      } else if (c == '.') {
        const Text d = directive();
        if (depth != 0) continue;
        if (d == ".extern") it->linkage = Linkage::kExtern;
        if (d == ".visible") it->linkage = Linkage::kVisible;
        if (d == ".weak" || d == ".common") it->linkage = Linkage::kWeak;
        function |= d == ".func" || d == ".entry";
      } else if (letter(c) || c == '%') {
        const uint32_t begin = at_;
        for (++at_; at_ < end_ && word_part(text_[at_]);) ++at_;
        if (depth == 0 && it->name.empty() && c != '%') it->name = Text(text_ + begin, at_ - begin);
      } else if (digit(c)) {
        while (at_ < end_ && word_part(text_[at_])) ++at_;
      } else if (c == '{' && function && depth == 0) {
        it->defines = true;
        if (!body()) return false;
        return finish(it);
      } else if (c == ';' && depth == 0) {
        ++at_;
        it->defines = !function && it->linkage != Linkage::kExtern;
        return finish(it);
      } else {
        if (c == '(' || c == '{' || c == '[') ++depth;
        if (c == ')' || c == '}' || c == ']') --depth;
        ++at_;
      }
    }
    return false;
  }
  bool finish(Item* it) {
    it->end = at_;
    items.push(*it);
    return !it->name.empty();
  }
  // From '{' to behind its '}'.
  bool body() {
    int depth = 0;
    while (at_ < end_) {
      const char c = text_[at_];
      if (c == '"') {
        string();
        continue;
      }
      if (c == '/' && comment()) continue;
      depth += c == '{';
      depth -= c == '}';
      ++at_;
      if (c == '}' && depth == 0) return true;
    }
    return false;
  }

  const char* text_;
  uint32_t at_ = 0, end_;
};

class Linker {
 public:
  Linker(const LinkInput* inputs, size_t count, Log* log)
      : inputs_(inputs), count_(count), log_(*log) {}
  ~Linker() {
    for (Splitter* s : parts_) delete_part(s);
  }

  char* run(size_t* length) {
    if (count_ == 0) {
      log_.error(1, "nothing to link");
      return nullptr;
    }
    for (size_t k = 0; k < count_; ++k)
      if (!split(k)) return nullptr;
    for (uint32_t k = 0; k < count_; ++k) note(k);
    for (uint32_t k = 0; k < count_; ++k) collect(k);
    if (log_.errors() != 0) return nullptr;
    Output out;
    header(&out);
    for (uint32_t k = 0; k < count_; ++k) copy(k, &out);
    return out.take(length);
  }

 private:
  static void delete_part(Splitter* s) {
    s->~Splitter();
    free(s);
  }
  const char* name_of(size_t k) const { return inputs_[k].name ? inputs_[k].name : "PTX input"; }
  bool split(size_t k) {
    size_t length = inputs_[k].length;
    while (length > 0 && inputs_[k].text[length - 1] == 0) --length;
    void* memory = length < 1u << 30 ? calloc(1, sizeof(Splitter)) : nullptr;
    if (!memory) {
      log_.error(1, "%s: too long", name_of(k));
      return false;
    }
    auto* s = new (memory) Splitter(inputs_[k].text, length);
    parts_.push(s);
    if (s->run()) return true;
    log_.error(s->line(), "%s: not PTX that can be linked", name_of(k));
    return false;
  }

  void note(uint32_t k) {
    for (const Item& it : parts_[k]->items) {
      if (!it.named) continue;
      Use* use = uses_.find(it.name);
      if (!use) {
        use = arena_.make<Use>();
        *use = Use{k, false};
        uses_.put(it.name, use);
      }
      use->shared |= use->input != k;
    }
  }
  // A private name that another text uses, too, is renamed; of several definitions for all, at most
  // one may be strong.
  void collect(uint32_t k) {
    Splitter& s = *parts_[k];
    for (uint32_t i = 0; i < s.items.size(); ++i) {
      Item& it = s.items[i];
      if (!it.named) continue;
      if (it.linkage == Linkage::kPrivate) {
        Use* use = uses_.find(it.name);
        if (use->shared) renamed_.put(it.name, use, k + 1);
        continue;
      }
      if (it.linkage == Linkage::kExtern || !it.defines) continue;
      Global* g = globals_.find(it.name);
      if (!g) {
        g = arena_.make<Global>();
        *g = Global{k, i, it.linkage};
        globals_.put(it.name, g);
      } else if (it.linkage == Linkage::kWeak) {
        it.dropped = true;
      } else if (g->linkage == Linkage::kWeak) {
        parts_[g->input]->items[g->item].dropped = true;
        *g = Global{k, i, it.linkage};
      } else {
        log_.error(1, "'%.*s' is defined in %s and in %s", (int)it.name.size, it.name.data,
                   name_of(g->input), name_of(k));
      }
    }
  }

  void header(Output* out) {
    const Splitter* newest = parts_[0];
    uint32_t version = 0;
    for (Splitter* s : parts_) {
      if (s->version > version) version = s->version;
      if (s->target > newest->target) newest = s;
    }
    char text[128];
    snprintf(text, sizeof text, ".version %u.%u\n.target %.*s\n.address_size 64\n", version / 10,
             version % 10, (int)newest->target_name.size, newest->target_name.data);
    out->add(text);
  }

  void copy(uint32_t k, Output* out) {
    const char* text = inputs_[k].text;
    for (const Item& it : parts_[k]->items) {
      if (it.dropped) continue;
      const uint32_t end = it.end;
      uint32_t done = it.begin;
      for (uint32_t at = it.begin; at < end;) {
        const char c = text[at];
        if (c == '"') {
          for (++at; at < end && text[at] != '"' && text[at] != '\n';) ++at;
          if (at < end) ++at;
          continue;
        }
        if (c == '.' || c == '%' || digit(c)) {  // directives, registers, numbers
          for (++at; at < end && word_part(text[at]);) ++at;
          continue;
        }
        if (!letter(c)) {
          ++at;
          continue;
        }
        const uint32_t begin = at;
        while (at < end && word_part(text[at])) ++at;
        if (at < end && text[at] == '.') continue;  // an instruction
        if (!renamed_.find(Text(text + begin, at - begin), k + 1)) continue;
        out->add(text + done, at - done);
        char suffix[32];
        snprintf(suffix, sizeof suffix, "__link%u", k);
        out->add(suffix);
        done = at;
      }
      out->add(text + done, end - done);
      out->add("\n");
    }
  }

  const LinkInput* inputs_;
  const size_t count_;
  Log& log_;
  Arena arena_;
  Vec<Splitter*> parts_;
  NameMap<Use> uses_;
  NameMap<Use> renamed_;  // private names; scope: input + 1
  NameMap<Global> globals_;
};

}  // namespace

char* link(const LinkInput* inputs, size_t count, size_t* length, char* log, size_t log_bytes) {
  Log messages(log, log_bytes);
  return Linker(inputs, count, &messages).run(length);
}

}  // namespace simgpu::ptx
