#include "device/modules/image_calls.h"

#include "device/modules/image_parts.h"

namespace gpuckpt::device {

NameSet::~NameSet() {
  for (char* name : names_) release(name);
}

bool NameSet::has(const char* name, size_t length) const {
  for (const char* known : names_)
    if (!__builtin_strncmp(known, name, length) && !known[length]) return true;
  return false;
}

bool NameSet::add(const char* name, size_t length) {
  if (has(name, length)) return false;
  auto* copy = static_cast<char*>(allocate(length + 1));
  if (!copy) return false;
  __builtin_memcpy(copy, name, length);
  return names_.push(copy);
}

namespace {

// ---- PTX: a function or variable leads to what its text mentions ----

struct Statement {
  const char* name = nullptr;
  size_t length = 0;
  bool expects = false;  // the next word that can be is its name
  bool leads = false;
};

void end_statement(Statement* s, NameSet* names, bool* grown) {
  if (s->name && s->leads) *grown |= names->add(s->name, s->length);
  *s = {};
}

bool grow_ptx(const char* text, size_t length, NameSet* names) {
  PtxScanner scan(text, length);
  Statement now;
  int braces = 0, parentheses = 0;
  bool grown = false;
  while (scan.next()) {
    const char c = *scan.word;
    if (c == '(') ++parentheses;
    if (c == ')' && parentheses) --parentheses;
    if (c == '{') ++braces;
    if (c == '}' && braces && --braces == 0 && !now.expects) {
      end_statement(&now, names, &grown);
      continue;
    }
    if (c == ';' && !braces) {
      end_statement(&now, names, &grown);
      continue;
    }
    if (!is_word(c)) continue;
    if (!braces && !parentheses) {
      if (scan.is(".func") || scan.is(".entry") || scan.is(".global") || scan.is(".const")) {
        now = {};
        now.expects = true;
        continue;
      }
      if (now.expects && c != '.' && !(c >= '0' && c <= '9')) {
        now.name = scan.word;
        now.length = scan.length;
        now.expects = false;
        continue;
      }
    }
    if (now.name && !now.leads) now.leads = names->has(scan.word, scan.length);
  }
  return grown;
}

// ---- machine code ----

// Whether data of the file holds the address of a function that is in the set and defined here:
// then any kernel may call it.
bool address_taken(const ElfTables& elf, const NameSet& names) {
  bool taken = false;
  for (unsigned i = 0; i < elf.sections() && !taken; ++i) {
    const Elf64_Shdr relocations = elf.section(i);
    if ((relocations.sh_type != SHT_REL && relocations.sh_type != SHT_RELA) ||
        relocations.sh_info >= elf.sections() || relocations.sh_entsize < sizeof(Elf64_Rel) ||
        relocations.sh_link >= elf.sections())
      continue;
    const char* place = elf.section_name(elf.section(relocations.sh_info));
    if (__builtin_strncmp(place, ".nv.", 4)) continue;
    const Elf64_Shdr table = elf.section(relocations.sh_link);
    if (table.sh_type != SHT_SYMTAB || table.sh_entsize < sizeof(Elf64_Sym) ||
        table.sh_link >= elf.sections())
      continue;
    const uint64_t count = relocations.sh_size / relocations.sh_entsize;
    for (uint64_t at = 0; at < count && !taken; ++at) {
      const auto r = load<Elf64_Rel>(elf.contents(relocations) + at * relocations.sh_entsize);
      const uint64_t index = ELF64_R_SYM(r.r_info);
      if (index >= table.sh_size / table.sh_entsize) continue;
      const auto symbol = load<Elf64_Sym>(elf.contents(table) + index * table.sh_entsize);
      taken = symbol.st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol.st_info) == STT_FUNC &&
              names.has(elf.text(elf.section(table.sh_link), symbol.st_name));
    }
  }
  return taken;
}

// Pairs of symbols, caller and callee. Other values of the callee stand for something else.
constexpr const char* kCallGraph = ".nv.callgraph";

bool grow_elf(const ElfTables& elf, NameSet* names) {
  bool grown = false;
  for (unsigned i = 0; i < elf.sections(); ++i) {
    const Elf64_Shdr calls = elf.section(i);
    if (!elf.contents(calls) || __builtin_strcmp(elf.section_name(calls), kCallGraph)) continue;
    if (calls.sh_link >= elf.sections()) continue;
    const Elf64_Shdr table = elf.section(calls.sh_link);
    if (table.sh_type != SHT_SYMTAB || table.sh_entsize < sizeof(Elf64_Sym) ||
        table.sh_link >= elf.sections())
      continue;
    auto name = [&](uint32_t index) {
      if (index >= table.sh_size / table.sh_entsize) return "";
      const auto symbol = load<Elf64_Sym>(elf.contents(table) + index * table.sh_entsize);
      return elf.text(elf.section(table.sh_link), symbol.st_name);
    };
    for (uint64_t at = 0; at + 8 <= calls.sh_size; at += 8) {
      const char* caller = name(load<uint32_t>(elf.contents(calls) + at));
      const char* callee = name(load<uint32_t>(elf.contents(calls) + at + 4));
      if (*caller && *callee && names->has(callee))
        grown |= names->add(caller, __builtin_strlen(caller));
    }
  }
  if (!address_taken(elf, *names)) return grown;
  elf.each_symbol([&](const Elf64_Shdr&, uint64_t, const Elf64_Sym& symbol, const char* name) {
    if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_shndx != SHN_UNDEF && *name)
      grown |= names->add(name, __builtin_strlen(name));
  });
  return grown;
}

struct Growth {
  NameSet* names;
  bool grown;
};

bool grow_part(void* context, PartKind kind, const uint8_t* bytes, size_t size) {
  auto* growth = static_cast<Growth*>(context);
  ElfTables elf;
  if (kind == PartKind::kElf && !elf.open(bytes, size)) return false;
  auto again = [&] {
    return kind == PartKind::kElf
               ? grow_elf(elf, growth->names)
               : grow_ptx(reinterpret_cast<const char*>(bytes), size, growth->names);
  };
  while (again()) growth->grown = true;
  return true;
}

}  // namespace

// Parts may call each other: until none adds a name.
bool callers_in(const ImageView& image, NameSet* names) {
  Growth growth = {names, false};
  do {
    growth.grown = false;
    if (!each_part(image, &growth, grow_part)) return false;
  } while (growth.grown);
  return true;
}

}  // namespace gpuckpt::device
