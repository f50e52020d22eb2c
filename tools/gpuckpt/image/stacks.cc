// libunwind asks for registers, memory and unwind tables through accessors; ours answer from the
// snapshot. The tables are found as a debugger finds them: the ELF header in the image names the
// segment with .eh_frame_hdr, a sorted table that libunwind searches itself.

#include "image/stacks.h"

#include <elf.h>
#include <ucontext.h>

#include <cstring>
#include <span>

#ifdef GPUCKPT_HAVE_UNWIND
#include <libunwind-x86_64.h>

// Exported by libunwind-x86_64 for users that bring their own find_proc_info, in no header.
extern "C" int UNW_OBJ(dwarf_search_unwind_table)(unw_addr_space_t as, unw_word_t ip,
                                                  unw_dyn_info_t* di, unw_proc_info_t* pi,
                                                  int need_unwind_info, void* arg);
#endif

namespace gpuckpt::cli {

StackFrame frame_at(uint64_t pc, bool innermost, const ImageMemory& memory, ElfSymbols* symbols) {
  StackFrame frame{pc, "", ""};
  const ImageModule* module = memory.module(pc);
  if (!module) return frame;
  frame.module = module->path;
  // A return address may lie behind the last instruction of its function, so the symbol of the call
  // before it is looked up.
  if (module->file_there)
    frame.function = symbols->name(module->path, pc - module->base - (innermost ? 0 : 1));
  return frame;
}

#ifdef GPUCKPT_HAVE_UNWIND
namespace {

struct Target {
  const ImageMemory& memory;
  ucontext_t registers;
};

// .eh_frame_hdr of the module at `base`: its address and that of the end of its text.
struct UnwindSegment {
  uint64_t header = 0, start = 0, end = 0;
};

UnwindSegment find_segment(const ImageMemory& memory, const ImageModule& module) {
  UnwindSegment out;
  auto elf = memory.get<Elf64_Ehdr>(module.base);
  if (!elf || memcmp(elf->e_ident, ELFMAG, SELFMAG) != 0 || elf->e_phentsize != sizeof(Elf64_Phdr))
    return out;
  uint64_t bias = 0, header = 0;
  bool first = true;
  for (unsigned i = 0; i < elf->e_phnum; ++i) {
    auto ph = memory.get<Elf64_Phdr>(module.base + elf->e_phoff + i * sizeof(Elf64_Phdr));
    if (!ph) return out;
    if (ph->p_type == PT_LOAD && first) {
      bias = module.base - ((ph->p_vaddr - ph->p_offset) & ~4095ull);
      first = false;
    }
    if (ph->p_type == PT_GNU_EH_FRAME) header = ph->p_vaddr;
  }
  if (header) out = {header + bias, module.base, module.end};
  return out;
}

int find_proc_info(unw_addr_space_t space, unw_word_t ip, unw_proc_info_t* info, int need,
                   void* argument) {
  Target* target = static_cast<Target*>(argument);
  const ImageModule* module = target->memory.module(ip);
  if (!module) return -UNW_ENOINFO;
  UnwindSegment segment = find_segment(target->memory, *module);
  // The only encodings that linkers write: a relative pointer, a count, a table of pairs of 32-bit
  // offsets from the header (Linux Standard Base 5.0, .eh_frame_hdr).
  auto encoding = target->memory.get<uint32_t>(segment.header);
  auto count = target->memory.get<uint32_t>(segment.header + 8);
  if (!segment.header || !encoding || *encoding != 0x3b031b01 || !count) return -UNW_ENOINFO;
  unw_dyn_info_t table{};
  table.start_ip = segment.start;
  table.end_ip = segment.end;
  table.format = UNW_INFO_FORMAT_REMOTE_TABLE;
  table.u.rti.segbase = segment.header;
  table.u.rti.table_data = segment.header + 12;
  table.u.rti.table_len = uint64_t{*count} * 8 / sizeof(unw_word_t);
  return UNW_OBJ(dwarf_search_unwind_table)(space, ip, &table, info, need, argument);
}

void put_unwind_info(unw_addr_space_t, unw_proc_info_t*, void*) {}
int no_dynamic_info(unw_addr_space_t, unw_word_t*, void*) { return -UNW_ENOINFO; }

int access_memory(unw_addr_space_t, unw_word_t address, unw_word_t* value, int write,
                  void* argument) {
  Target* target = static_cast<Target*>(argument);
  if (write) return -UNW_EINVAL;
  auto word = target->memory.get<unw_word_t>(address);
  if (!word) return -UNW_EINVAL;
  *value = *word;
  return 0;
}

int access_register(unw_addr_space_t, unw_regnum_t number, unw_word_t* value, int write,
                    void* argument) {
  static const int index[] = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI,
                              REG_RBP, REG_RSP, REG_R8,  REG_R9,  REG_R10, REG_R11,
                              REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP};
  Target* target = static_cast<Target*>(argument);
  if (write || number < 0 || number > UNW_X86_64_RIP) return -UNW_EBADREG;
  *value = target->registers.uc_mcontext.gregs[index[number]];
  return 0;
}

int no_float(unw_addr_space_t, unw_regnum_t, unw_fpreg_t*, int, void*) { return -UNW_EBADREG; }
int no_resume(unw_addr_space_t, unw_cursor_t*, void*) { return -UNW_EINVAL; }
int no_name(unw_addr_space_t, unw_word_t, char*, size_t, unw_word_t*, void*) {
  return -UNW_ENOINFO;
}

unw_addr_space_t image_space() {
  static unw_accessors_t accessors = {find_proc_info, put_unwind_info, no_dynamic_info,
                                      access_memory,  access_register, no_float,
                                      no_resume,      no_name};
  static unw_addr_space_t space = unw_create_addr_space(&accessors, 0);
  return space;
}

}  // namespace

std::vector<StackFrame> stack_of(const process::Thread& thread, const ImageMemory& memory,
                                 ElfSymbols* symbols, size_t limit) {
  std::vector<StackFrame> out;
  Target target{memory, {}};
  // Only the part that the kernel wrote: glibc's struct is longer.
  std::span<uint8_t> saved{reinterpret_cast<uint8_t*>(&target.registers),
                           offsetof(ucontext_t, uc_sigmask)};
  if (!thread.ucontext || !memory.read(thread.ucontext, saved)) return out;
  unw_cursor_t cursor;
  unw_addr_space_t space = image_space();
  unw_flush_cache(space, 0, 0);
  if (!space || unw_init_remote(&cursor, space, &target) != 0) return out;
  do {
    unw_word_t pc = 0;
    if (unw_get_reg(&cursor, UNW_REG_IP, &pc) != 0 || !pc) break;
    StackFrame frame = frame_at(pc, out.empty(), memory, symbols);
    // A wait that continues after a snapshot (snapshot/park/continued_wait.h) is the program's own.
    if (!out.empty() || frame.function != "gpuckpt_continued_wait") out.push_back(std::move(frame));
  } while (out.size() < limit && unw_step(&cursor) > 0);
  return out;
}

bool can_unwind() { return true; }

#else

std::vector<StackFrame> stack_of(const process::Thread&, const ImageMemory&, ElfSymbols*, size_t) {
  return {};
}
bool can_unwind() { return false; }

#endif

}  // namespace gpuckpt::cli
