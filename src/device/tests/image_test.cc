#include "device/modules/image.h"
#include "device/modules/image_calls.h"

#include <elf.h>
#include <zstd.h>

#include <cstring>
#include <string>
#include <vector>
#include "tests/catch.h"

using namespace gpuckpt::device;

namespace {

void collect(void* context, const char* name, size_t length, bool managed) {
  static_cast<std::vector<std::string>*>(context)->push_back(std::string(name, length) +
                                                             (managed ? "!" : ""));
}
using Names = std::vector<std::string>;

Names ptx_names(const std::string& text) {
  Names names;
  list_ptx_variables(text.data(), text.size(), &names, collect);
  return names;
}

const char kPtx[] = R"(
// .global .u32 in_a_comment;
.version 9.0
.target sm_75
.address_size 64
/* .const .u32 neither; */
.extern .global .align 4 .u32 elsewhere;
.visible .global .align 4 .u32 counter = 3;
.global .align 16 .b8 table[64] = {1, 2, 3};
.const .align 4 .f32 weights[2][3];
.visible .const .u64 pointer = generic(table);
.global .attribute(.managed) .align 4 .s32 shared_with_host;
.global .align 8 .u64 list[2] = {counter, table}, second;
.global .align 1 .b8 $str[4] = {72, 105, 10, 0};
.visible .entry kernel(.param .u64 p) {
  .reg .u32 %r<3>;
  .shared .align 4 .b8 tile[32];
  ld.global.u32 %r1, [counter];
  st.global.u32 [table+4], %r1;
  ret;
}
.visible .global .f32 last;
)";
const Names kPtxNames = {"counter", "table",  "weights", "pointer", "shared_with_host!",
                         "list",    "second", "$str",    "last"};

void put(std::vector<uint8_t>& out, size_t at, const void* bytes, size_t n) {
  if (out.size() < at + n) out.resize(at + n);
  memcpy(out.data() + at, bytes, n);
}
template <typename T>
void put(std::vector<uint8_t>& out, size_t at, T value) {
  put(out, at, &value, sizeof value);
}

std::vector<uint8_t> entry(uint16_t kind, uint64_t flags, const std::vector<uint8_t>& packed,
                           uint64_t plain) {
  std::vector<uint8_t> e(80);
  uint64_t padded = (packed.size() + 7) / 8 * 8;
  put<uint16_t>(e, 0, kind);
  put<uint32_t>(e, 4, 80);
  put<uint64_t>(e, 8, padded);
  put<uint32_t>(e, 16, flags & 0xa000 ? static_cast<uint32_t>(packed.size()) : 0);
  put<uint64_t>(e, 40, flags);
  put<uint64_t>(e, 56, plain);
  put(e, 80, packed.data(), packed.size());
  e.resize(80 + padded);
  return e;
}

std::vector<uint8_t> container(const std::vector<std::vector<uint8_t>>& entries) {
  std::vector<uint8_t> out(16);
  for (auto& e : entries) out.insert(out.end(), e.begin(), e.end());
  put<uint32_t>(out, 0, kContainerMagic);
  put<uint16_t>(out, 4, 1);
  put<uint16_t>(out, 6, 16);
  put<uint64_t>(out, 8, out.size() - 16);
  return out;
}

std::vector<uint8_t> bytes_of(const std::string& s) { return {s.begin(), s.end()}; }

}  // namespace

TEST_CASE("PTX variables are found") { REQUIRE(ptx_names(kPtx) == kPtxNames); }

TEST_CASE("PTX cut anywhere is survived") {
  std::string text = kPtx;
  for (size_t n = 0; n < text.size(); ++n) {
    std::vector<char> exact(text.begin(), text.begin() + static_cast<long>(n));
    Names names;
    list_ptx_variables(exact.data(), exact.size(), &names, collect);
    REQUIRE(names.size() <= kPtxNames.size() + 1);
  }
}

TEST_CASE("text is measured with its terminator") {
  ImageView view;
  REQUIRE(measure_image(kPtx, 1 << 20, &view));
  REQUIRE(view.kind == ImageKind::kText);
  REQUIRE(view.size == sizeof kPtx);
  REQUIRE_FALSE(measure_image("\x01\x02\x03\x04", 4, &view));
  REQUIRE_FALSE(measure_image("abc", 3, &view));  // no end within the limit
}

TEST_CASE("fat binaries: plain, zstd, wrapper") {
  std::string text(kPtx);
  std::vector<uint8_t> packed(ZSTD_compressBound(text.size()));
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  auto fat = container({entry(1, 0x11, bytes_of(text), 0), entry(1, 0x8011, packed, text.size())});
  ImageView view;
  REQUIRE(measure_image(fat.data(), 1 << 20, &view));
  REQUIRE(view.kind == ImageKind::kFatbin);
  REQUIRE(view.size == fat.size());
  Names names;
  REQUIRE(list_variables(view, &names, collect));
  REQUIRE(names.size() == 2 * kPtxNames.size());

  FatbinWrapper wrapper{kWrapperMagic, 1, fat.data(), nullptr};
  ImageView wrapped;
  REQUIRE(measure_image(&wrapper, sizeof wrapper, &wrapped));
  REQUIRE(wrapped.wrapped);
  REQUIRE(wrapped.bytes == fat.data());
  REQUIRE(wrapped.size == fat.size());

  // Relocatable device code: an empty container, then those to be linked.
  auto first = container({}), other = container({entry(1, 0x11, bytes_of(".global .u32 x;"), 0)});
  const void* parts[] = {fat.data(), other.data(), nullptr};
  FatbinWrapper linked{kWrapperMagic, kLinkedWrapper, first.data(), parts};
  REQUIRE(measure_image(&linked, sizeof linked, &wrapped));
  REQUIRE(wrapped.parts == parts);
  std::vector<uint8_t> all(wrapped.size);
  gather(wrapped, all.data());
  size_t count = 1;
  for (const uint8_t* at = all.data(); (at = next_container(at, all.data() + all.size())); ++count)
    REQUIRE(!memcmp(at, parts[count - 1], 16));
  REQUIRE(count == 3);
  names.clear();
  REQUIRE(list_variables({ImageKind::kFatbin, true, all.data(), all.size()}, &names, collect));
  REQUIRE(names.size() == 2 * kPtxNames.size() + 1);
  REQUIRE(names.back() == "x");
  linked.version = 3;
  REQUIRE_FALSE(measure_image(&linked, sizeof linked, &wrapped));

  // Damage never reads outside and is reported.
  for (size_t at = 16; at < 96; ++at) {
    auto bad = fat;
    bad[at] ^= 0xff;
    ImageView v{ImageKind::kFatbin, false, bad.data(), bad.size()};
    Names ignored;
    list_variables(v, &ignored, collect);
  }
  auto bad = fat;
  bad[16 + 80 + (text.size() + 7) / 8 * 8 + 90] ^= 0xff;  // inside the zstd payload
  ImageView v{ImageKind::kFatbin, false, bad.data(), bad.size()};
  Names some;
  REQUIRE_FALSE(list_variables(v, &some, collect));
  REQUIRE(some == kPtxNames);
}

TEST_CASE("LZ4 blocks") {
  // "abcdabcdabcdabcd!" : 4 literals, match offset 4 length 12, then one literal.
  const uint8_t block[] = {0x48, 'a', 'b', 'c', 'd', 4, 0, 0x10, '!'};
  uint8_t out[32];
  REQUIRE(unpack_lz4(block, sizeof block, out, sizeof out) == 17);
  REQUIRE(!memcmp(out, "abcdabcdabcdabcd!", 17));
  REQUIRE(unpack_lz4(block, sizeof block, out, 10) == 0);
  REQUIRE(unpack_lz4(block, 6, out, sizeof out) == 0);
  const uint8_t wild[] = {0x18, 'a', 9, 0, 0x10, '!'};
  REQUIRE(unpack_lz4(wild, sizeof wild, out, sizeof out) == 0);
}

TEST_CASE("ELF: size and symbols") {
  std::vector<uint8_t> elf(sizeof(Elf64_Ehdr));
  std::string names = std::string("\0.nv.global.init\0.nv.constant3\0.text\0", 37);
  std::string symbols = std::string("\0counter\0limits\0code\0", 21);
  Elf64_Ehdr header{};
  memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 7;
  header.e_shstrndx = 1;
  Elf64_Sym table[4]{};
  table[1] = {1, STT_OBJECT, 0, 3, 0, 4};
  table[2] = {9, STT_OBJECT, 0, 4, 0, 4};
  table[3] = {16, STT_FUNC, 0, 5, 0, 4};
  size_t names_at = elf.size();
  put(elf, names_at, names.data(), names.size());
  size_t symbols_at = elf.size();
  put(elf, symbols_at, symbols.data(), symbols.size());
  size_t table_at = elf.size();
  put(elf, table_at, table, sizeof table);
  Elf64_Shdr sections[7]{};
  sections[1].sh_type = SHT_STRTAB;
  sections[1].sh_offset = names_at;
  sections[1].sh_size = names.size();
  sections[2] = sections[1];
  sections[2].sh_offset = symbols_at;
  sections[2].sh_size = symbols.size();
  sections[3].sh_name = 1;
  sections[3].sh_type = SHT_NOBITS;
  sections[3].sh_size = 1 << 30;  // takes no room in the file
  sections[4].sh_name = 17;
  sections[4].sh_type = SHT_NOBITS;
  sections[5].sh_name = 31;
  sections[6].sh_type = SHT_SYMTAB;
  sections[6].sh_offset = table_at;
  sections[6].sh_size = sizeof table;
  sections[6].sh_entsize = sizeof(Elf64_Sym);
  sections[6].sh_link = 2;
  header.e_shoff = elf.size();
  put(elf, elf.size(), sections, sizeof sections);
  put(elf, 0, header);

  ImageView view;
  REQUIRE(measure_image(elf.data(), elf.size(), &view));
  REQUIRE(view.kind == ImageKind::kElf);
  REQUIRE(view.size == elf.size());
  Names found;
  REQUIRE(list_variables(view, &found, collect));
  REQUIRE(found == Names{"counter", "limits"});
  REQUIRE_FALSE(measure_image(elf.data(), elf.size() - 1, &view));
  for (size_t at = 0; at < elf.size(); ++at) {  // no byte can make it read outside (run under ASan)
    auto bad = elf;
    bad[at] ^= 0xff;
    Names ignored;
    list_elf_variables(bad.data(), bad.size(), &ignored, collect);
  }
}

namespace {
std::vector<uint8_t> plain(uint16_t kind, const std::string& text) {
  return container({entry(kind, 0x11, bytes_of(text), 0)});
}
bool reaches(const std::vector<uint8_t>& fat, const char* what, const char* kernel) {
  NameSet names;
  names.add(what, strlen(what));
  REQUIRE(callers_in({ImageKind::kFatbin, false, fat.data(), fat.size()}, &names));
  return names.has(kernel);
}

const char kCalls[] = R"(
.version 9.0
.target sm_75, texmode_independent
.address_size 64
.extern .func  (.param .b64 func_retval0) malloc
(
  .param .b64 malloc_param_0
)
;
.func outer(.param .b64 p);
.visible .func  (.param .b64 func_retval0) inner(.param .b64 inner_param_0)
{
  { // callseq
  call.uni (retval0), malloc, (param0);
  }
  ret;
}
.global .align 8 .u64 table[2] = {0, inner};
.visible .entry direct(.param .u64 p) .maxntid 32, 1, 1 { call.uni (r), malloc, (q); }
.visible .entry nested(.param .u64 p) { call.uni (r), inner, (q); }
.visible .entry by_table(.param .u64 p) { ld.global.u64 %rd1, [table+8]; call (r), %rd1, (q), P; }
.visible .entry malloc_not(.param .u64 mallocs) { ret; } // malloc
.visible .entry outside(.param .u64 p) { call.uni outer, (q); }
)";
}  // namespace

TEST_CASE("kernels that may call a function are found in PTX") {
  auto fat = plain(1, kCalls);
  for (const char* name : {"direct", "nested", "by_table"}) REQUIRE(reaches(fat, "malloc", name));
  for (const char* name : {"malloc_not", "outside", "table_not"})
    REQUIRE_FALSE(reaches(fat, "malloc", name));
  REQUIRE_FALSE(reaches(fat, "vprintf", "direct"));
  // A part calls what another defines.
  auto other = plain(1, ".visible .func outer(.param .b64 p) { call.uni (r), inner, (q); }");
  fat.resize((fat.size() + 15) / 16 * 16);
  fat.insert(fat.end(), other.begin(), other.end());
  REQUIRE(reaches(fat, "malloc", "outside"));
  for (size_t n = 0; n < sizeof kCalls; ++n) {  // cut anywhere
    NameSet names;
    names.add("malloc", 6);
    std::vector<char> exact(kCalls, kCalls + n);
    callers_in({ImageKind::kText, false, exact.data(), n}, &names);
  }
}

TEST_CASE("kernels that may call a function are found in machine code") {
  // Symbols: 1 malloc (elsewhere), 2 kernel, 3 helper, 4 other, 5 last.
  const std::string strings = std::string("\0malloc\0kernel\0helper\0other\0last\0", 34);
  const std::string sections = std::string("\0.nv.callgraph\0.nv.constant4\0", 29);
  auto make = [&](uint32_t in_table) {
    std::vector<uint8_t> elf(sizeof(Elf64_Ehdr));
    Elf64_Sym symbols[6]{};
    const uint32_t at[] = {0, 1, 8, 15, 22, 28};
    for (uint32_t i = 1; i < 6; ++i)
      symbols[i] = {at[i], STT_FUNC, 0, static_cast<uint16_t>(i == 1 ? 0 : 5), 0, 0};
    const uint32_t calls[] = {2, 3, 3, 1, 0, 0xffffffff, 4, 0xfffffffe, 5, 5};
    const Elf64_Rel relocations[] = {{0, ELF64_R_INFO(uint64_t{1}, 2)},
                                     {8, ELF64_R_INFO(uint64_t{in_table}, 2)}};
    Elf64_Shdr s[7]{};
    auto add = [&](int i, uint32_t type, const void* bytes, size_t size, uint64_t entry,
                   uint32_t link, uint32_t info, uint32_t name) {
      s[i].sh_name = name;
      s[i].sh_type = type;
      s[i].sh_offset = elf.size();
      s[i].sh_size = size;
      s[i].sh_entsize = entry;
      s[i].sh_link = link;
      s[i].sh_info = info;
      put(elf, elf.size(), bytes, size);
    };
    add(1, SHT_STRTAB, sections.data(), sections.size(), 0, 0, 0, 0);
    add(2, SHT_STRTAB, strings.data(), strings.size(), 0, 0, 0, 0);
    add(3, SHT_SYMTAB, symbols, sizeof symbols, sizeof *symbols, 2, 0, 0);
    add(4, 0x70000001, calls, sizeof calls, 8, 3, 0, 1);
    add(5, SHT_PROGBITS, relocations, 16, 0, 0, 0, 15);
    add(6, SHT_REL, relocations, sizeof relocations, sizeof *relocations, 3, 5, 0);
    Elf64_Ehdr header{};
    memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = 7;
    header.e_shstrndx = 1;
    header.e_shoff = elf.size();
    put(elf, elf.size(), s, sizeof s);
    put(elf, 0, header);
    return elf;
  };
  auto look = [](const std::vector<uint8_t>& elf) {
    NameSet names;
    names.add("malloc", 6);
    REQUIRE(callers_in({ImageKind::kElf, false, elf.data(), elf.size()}, &names));
    REQUIRE(names.has("kernel"));
    REQUIRE(names.has("helper"));
    return names.has("other");
  };
  REQUIRE_FALSE(look(make(5)));  // the address of a function that calls nothing
  REQUIRE(look(make(3)));        // of one that leads there: any code may call it
  const auto good = make(3);
  for (size_t at = 0; at < good.size(); ++at) {  // no byte can make it read outside
    auto bad = good;
    bad[at] ^= 0xff;
    NameSet names;
    names.add("malloc", 6);
    callers_in({ImageKind::kElf, false, bad.data(), bad.size()}, &names);
  }
}
