#include "device/modules/image_parts.h"

#include <elf.h>

#define ZSTD_STATIC_LINKING_ONLY
#include <zstd.h>

namespace gpuckpt::device {
namespace {

// Entry of a fatbin container, by offset.
constexpr size_t kEntryKind = 0, kEntryHeader = 4, kEntryPayload = 8, kEntryCompressed = 16,
                 kEntryFlags = 40, kEntryPlain = 56;
constexpr uint64_t kFlagLz4 = 0x2000, kFlagZstd = 0x8000;
constexpr uint64_t kMaxPlain = 1ull << 30;

void* zstd_allocate(void*, size_t bytes) { return allocate(bytes); }
void zstd_release(void*, void* block) { release(block); }

size_t unpack_zstd(const uint8_t* in, size_t in_size, uint8_t* out, size_t out_size) {
  ZSTD_DCtx* context = ZSTD_createDCtx_advanced({zstd_allocate, zstd_release, nullptr});
  if (!context) return 0;
  size_t got = ZSTD_decompressDCtx(context, out, out_size, in, in_size);
  ZSTD_freeDCtx(context);
  return ZSTD_isError(got) ? 0 : got;
}

constexpr uint16_t kPtxEntry = 1,
                   kElfEntry = 2;  // others (LTO-IR and the like) are not run as such

bool visit_entry(uint16_t kind, const uint8_t* bytes, size_t size, void* context,
                 PartVisitor visit) {
  if (kind != kPtxEntry && kind != kElfEntry) return true;
  return visit(context, kind == kPtxEntry ? PartKind::kPtx : PartKind::kElf, bytes, size);
}

bool visit_fatbin(const uint8_t* bytes, uint64_t size, void* context, PartVisitor visit) {
  bool complete = true;
  uint64_t at = load<uint16_t>(bytes + 6);
  while (at + 64 <= size) {
    const uint8_t* entry = bytes + at;
    uint64_t header = load<uint32_t>(entry + kEntryHeader);
    uint64_t payload = load<uint64_t>(entry + kEntryPayload);
    if (header < 64 || header > size - at || payload > size - at - header) return false;
    uint64_t flags = load<uint64_t>(entry + kEntryFlags);
    auto kind = load<uint16_t>(entry + kEntryKind);
    const uint8_t* data = entry + header;
    if (flags & (kFlagLz4 | kFlagZstd)) {
      uint64_t packed = load<uint32_t>(entry + kEntryCompressed);
      uint64_t plain = load<uint64_t>(entry + kEntryPlain);
      auto* room = packed <= payload && plain < kMaxPlain
                       ? static_cast<uint8_t*>(allocate(plain + 1))
                       : nullptr;
      size_t got = !room                ? 0
                   : (flags & kFlagLz4) ? unpack_lz4(data, packed, room, plain)
                                        : unpack_zstd(data, packed, room, plain);
      complete &= got && visit_entry(kind, room, got, context, visit);
      release(room);
    } else {
      complete &= visit_entry(kind, data, payload, context, visit);
    }
    at += header + payload;
  }
  return complete;
}

// ---- PTX ----

// After `.global` or `.const` at module scope: up to the semicolon.
void list_declaration(PtxScanner& scan, bool external, void* context, FoundVariable found) {
  bool managed = false, name_next = true, value = false;
  int depth = 0;
  while (scan.next() && !scan.is(";")) {
    char c = *scan.word;
    if (c == '[' || c == '{' || c == '(') ++depth;
    if (c == ']' || c == '}' || c == ')') --depth;
    if (scan.is(".managed")) managed = true;
    if (depth) continue;
    if (c == '=') value = true;
    if (c == ',') {
      name_next = true;
      value = false;
    }
    bool identifier = is_word(c) && c != '.' && !(c >= '0' && c <= '9');
    if (name_next && !value && identifier) {
      if (!external) found(context, scan.word, scan.length, managed);
      name_next = false;
    }
  }
}

}  // namespace

void list_ptx_variables(const char* text, size_t length, void* context, FoundVariable found) {
  PtxScanner scan(text, length);
  int depth = 0;
  bool external = false;
  while (scan.next()) {
    if (*scan.word == '{') ++depth;
    if (*scan.word == '}') --depth;
    if (depth) continue;
    if (scan.is(".extern")) {
      external = true;
    } else if (scan.is(".global") || scan.is(".const")) {
      list_declaration(scan, external, context, found);
      external = false;
    } else if (*scan.word == ';' || *scan.word == '}') {
      external = false;
    }
  }
}

bool list_elf_variables(const uint8_t* bytes, size_t length, void* context, FoundVariable found) {
  ElfTables elf;
  if (!elf.open(bytes, length)) return false;
  elf.each_symbol([&](const Elf64_Shdr&, uint64_t, const Elf64_Sym& symbol, const char* name) {
    if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || !symbol.st_shndx ||
        symbol.st_shndx >= elf.sections())
      return;
    const char* place = elf.section_name(elf.section(symbol.st_shndx));
    bool global = !__builtin_strncmp(place, ".nv.global", 10);
    bool constant = !__builtin_strncmp(place, ".nv.constant3", 13);
    if ((global || constant) && *name) found(context, name, __builtin_strlen(name), false);
  });
  return true;
}

bool elf_size(const uint8_t* bytes, uint64_t limit, uint64_t* size) {
  if (limit < sizeof(Elf64_Ehdr) || bytes[EI_CLASS] != ELFCLASS64) return false;
  auto header = load<Elf64_Ehdr>(bytes);
  uint64_t end = sizeof header;
  auto extend = [&](uint64_t offset, uint64_t length) {
    if (offset > limit || length > limit - offset) return false;
    if (offset + length > end) end = offset + length;
    return true;
  };
  if (!extend(header.e_shoff, uint64_t{header.e_shnum} * header.e_shentsize) ||
      !extend(header.e_phoff, uint64_t{header.e_phnum} * header.e_phentsize))
    return false;
  if (header.e_shnum && header.e_shentsize < sizeof(Elf64_Shdr)) return false;
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    auto section = load<Elf64_Shdr>(bytes + header.e_shoff + uint64_t{i} * header.e_shentsize);
    if (section.sh_type != SHT_NOBITS && !extend(section.sh_offset, section.sh_size)) return false;
  }
  *size = end;
  return true;
}

bool ElfTables::open(const uint8_t* bytes, size_t length) {
  uint64_t size;
  if (length < sizeof(Elf64_Ehdr) || __builtin_memcmp(bytes, ELFMAG, SELFMAG) ||
      !elf_size(bytes, length, &size))
    return false;
  bytes_ = bytes;
  header_ = load<Elf64_Ehdr>(bytes);
  return true;
}
unsigned ElfTables::sections() const {
  return header_.e_shstrndx < header_.e_shnum ? header_.e_shnum : 0;
}
Elf64_Shdr ElfTables::section(uint64_t index) const {
  return load<Elf64_Shdr>(bytes_ + header_.e_shoff + index * header_.e_shentsize);
}
const char* ElfTables::section_name(const Elf64_Shdr& s) const {
  return text(section(header_.e_shstrndx), s.sh_name);
}
const uint8_t* ElfTables::contents(const Elf64_Shdr& s) const {
  return s.sh_type == SHT_NOBITS ? nullptr : bytes_ + s.sh_offset;
}
const char* ElfTables::text(const Elf64_Shdr& table, uint64_t offset) const {
  if (table.sh_type == SHT_NOBITS || offset >= table.sh_size) return "";
  const auto* start = reinterpret_cast<const char*>(bytes_ + table.sh_offset);
  uint64_t end = offset;
  while (end < table.sh_size && start[end]) ++end;
  return end < table.sh_size ? start + offset : "";
}

size_t unpack_lz4(const uint8_t* in, size_t in_size, uint8_t* out, size_t out_size) {
  size_t read = 0, written = 0;
  auto length_of = [&](size_t nibble, size_t* length) {
    *length = nibble;
    if (nibble != 15) return true;
    for (uint8_t more = 255; more == 255;) {
      if (read >= in_size) return false;
      more = in[read++];
      *length += more;
    }
    return true;
  };
  while (read < in_size) {
    uint8_t token = in[read++];
    size_t literals, match;
    if (!length_of(token >> 4, &literals) || literals > in_size - read ||
        literals > out_size - written)
      return 0;
    __builtin_memcpy(out + written, in + read, literals);
    read += literals;
    written += literals;
    if (read == in_size) break;  // the last sequence has no match
    if (in_size - read < 2) return 0;
    size_t offset = static_cast<size_t>(in[read] | in[read + 1] << 8);
    read += 2;
    if (!length_of(token & 15, &match)) return 0;
    match += 4;
    if (!offset || offset > written || match > out_size - written) return 0;
    for (size_t i = 0; i < match; ++i) out[written + i] = out[written + i - offset];
    written += match;
  }
  return written;
}

namespace {

constexpr uint64_t kContainerLimit = 1ull << 32;
constexpr size_t kMaxParts = 4096;

// Bytes of a container, or 0: it is none.
uint64_t container_size(const void* container, uint64_t limit) {
  if (limit < 16 || load<uint32_t>(container) != kContainerMagic) return 0;
  uint64_t header = load<uint16_t>(static_cast<const char*>(container) + 6);
  uint64_t body = load<uint64_t>(static_cast<const char*>(container) + 8);
  return header < 16 || body > limit || header > limit - body ? 0 : header + body;
}

uint64_t padded(uint64_t size) { return (size + 15) / 16 * 16; }

// A wrapper: its container, and those to be linked with it.
bool measure_wrapper(const FatbinWrapper& wrapper, ImageView* out) {
  if (!wrapper.data || wrapper.version < 1 || wrapper.version > kLinkedWrapper) return false;
  out->kind = ImageKind::kFatbin;
  out->wrapped = true;
  out->bytes = wrapper.data;
  out->size = container_size(wrapper.data, kContainerLimit);
  if (!out->size || wrapper.version != kLinkedWrapper) return out->size != 0;
  out->parts = static_cast<const void* const*>(wrapper.more);
  for (size_t i = 0; out->parts && out->parts[i]; ++i) {
    uint64_t size = container_size(out->parts[i], kContainerLimit);
    if (!size || i == kMaxParts) return false;
    out->size = padded(out->size) + size;
  }
  return true;
}

}  // namespace

void gather(const ImageView& image, uint8_t* out) {
  uint64_t size = image.parts ? container_size(image.bytes, kContainerLimit) : image.size;
  __builtin_memcpy(out, image.bytes, size);
  for (size_t i = 0; image.parts && image.parts[i]; ++i) {
    out += padded(size);
    size = container_size(image.parts[i], kContainerLimit);
    __builtin_memcpy(out, image.parts[i], size);
  }
}

const uint8_t* next_container(const uint8_t* at, const uint8_t* end) {
  uint64_t size = container_size(at, static_cast<uint64_t>(end - at));
  uint64_t left = static_cast<uint64_t>(end - at);
  return size && padded(size) < left ? at + padded(size) : nullptr;
}

bool measure_image(const void* image, uint64_t limit, ImageView* out) {
  if (!image || limit < 4) return false;
  *out = {};
  uint32_t magic = load<uint32_t>(image);
  if (magic == kWrapperMagic) return measure_wrapper(load<FatbinWrapper>(image), out);
  out->bytes = image;
  if (magic == kContainerMagic) {
    out->kind = ImageKind::kFatbin;
    out->size = container_size(image, limit);
    return out->size != 0;
  }
  if (!__builtin_memcmp(image, ELFMAG, SELFMAG)) {
    out->kind = ImageKind::kElf;
    return elf_size(static_cast<const uint8_t*>(image), limit, &out->size);
  }
  const char* text = static_cast<const char*>(image);
  for (uint64_t i = 0; i < limit; ++i) {
    auto c = static_cast<unsigned char>(text[i]);
    if (!c) {
      out->kind = ImageKind::kText;
      out->size = i + 1;
      return i > 0;
    }
    if (i < 16 && c < 0x20 && c != '\n' && c != '\r' && c != '\t') return false;
  }
  return false;
}

bool each_part(const ImageView& image, void* context, PartVisitor visit) {
  const auto* bytes = static_cast<const uint8_t*>(image.bytes);
  switch (image.kind) {
    case ImageKind::kText:
      return visit(context, PartKind::kPtx, bytes, image.size);
    case ImageKind::kFatbin: {
      bool complete = true;
      const uint8_t* end = bytes + image.size;
      for (const uint8_t* at = bytes; at; at = next_container(at, end))
        complete &=
            visit_fatbin(at, container_size(at, static_cast<uint64_t>(end - at)), context, visit);
      return complete;
    }
    case ImageKind::kElf:
      return visit(context, PartKind::kElf, bytes, image.size);
    case ImageKind::kUnknown:
      return false;
  }
  return false;
}

bool list_variables(const ImageView& image, void* context, FoundVariable found) {
  struct Search {
    void* context;
    FoundVariable found;
  } search = {context, found};
  return each_part(image, &search, [](void* in, PartKind kind, const uint8_t* bytes, size_t size) {
    auto* s = static_cast<Search*>(in);
    if (kind == PartKind::kElf) return list_elf_variables(bytes, size, s->context, s->found);
    list_ptx_variables(reinterpret_cast<const char*>(bytes), size, s->context, s->found);
    return true;
  });
}

}  // namespace gpuckpt::device
