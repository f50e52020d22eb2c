#include "image/python_frames.h"

#include <cstring>

#include <fmt/format.h>

namespace gpuckpt::cli {
namespace {

// Taken by offsetof from the headers of CPython 3.11.7 and 3.12.1; they do not change within a
// minor version.
constexpr PythonFrames::Offsets kPython311 = {.interpreters_head = 40,
                                              .interpreter_next = 0,
                                              .threads_head = 16,
                                              .thread_next = 8,
                                              .native_thread_id = 160,
                                              .current_frame = 56,
                                              .frame_behind_cframe = true,
                                              .cframe_frame = 8,
                                              .previous = 48,
                                              .code = 32,
                                              .instruction = 56,
                                              .owner = 69,
                                              .file = 112,
                                              .qualified_name = 128,
                                              .first_line = 72,
                                              .line_table = 136,
                                              .bytecode = 184,
                                              .ascii_bytes = 48};
constexpr PythonFrames::Offsets kPython312 = {.interpreters_head = 40,
                                              .interpreter_next = 0,
                                              .threads_head = 72,
                                              .thread_next = 8,
                                              .native_thread_id = 144,
                                              .current_frame = 56,
                                              .frame_behind_cframe = true,
                                              .cframe_frame = 0,
                                              .previous = 8,
                                              .code = 0,
                                              .instruction = 56,
                                              .owner = 70,
                                              .file = 112,
                                              .qualified_name = 128,
                                              .first_line = 68,
                                              .line_table = 136,
                                              .bytecode = 192,
                                              .ascii_bytes = 40};

constexpr uint8_t kOwnedByCStack = 3;  // a frame that belongs to the interpreter's C code

// From 3.13 on the runtime begins with a table of its offsets (_Py_DebugOffsets): words of 8 bytes,
// in the order of 3.13.
bool read_debug_offsets(const ImageMemory& memory, uint64_t runtime, PythonFrames::Offsets* out) {
  uint64_t word[44];
  if (!memory.read(runtime, {reinterpret_cast<uint8_t*>(word), sizeof(word)})) return false;
  if (memcmp(word, "xdebugpy", 8) != 0) return false;
  *out = {.interpreters_head = word[5],
          .interpreter_next = word[8],
          .threads_head = word[9],
          .thread_next = word[21],
          .native_thread_id = word[25],
          .current_frame = word[23],
          .frame_behind_cframe = false,
          .cframe_frame = 0,
          .previous = word[29],
          .code = word[30],
          .instruction = word[31],
          .owner = word[33],
          .file = word[35],
          .qualified_name = word[37],
          .first_line = word[39],
          .line_table = word[38],
          .bytecode = word[43],
          .ascii_bytes = 40};
  return true;
}

}  // namespace

PythonFrames::PythonFrames(const ImageMemory& memory, ElfSymbols* symbols) : memory_(memory) {
  for (const ImageModule& module : memory.modules()) {
    std::string file = module.path.substr(module.path.rfind('/') + 1);
    if (!module.file_there || file.find("python") == std::string::npos) continue;
    uint64_t runtime = symbols->offset(module.path, "_PyRuntime");
    if (!runtime) continue;
    uint64_t at = symbols->offset(module.path, "Py_Version");
    auto hex = at ? memory.get<uint64_t>(module.base + at) : std::nullopt;
    unsigned version = hex ? static_cast<unsigned>(*hex >> 16) : 0;
    uint64_t address = module.base + runtime;
    bool known = true;
    if (version == 0x30b)
      offsets_ = kPython311;
    else if (version == 0x30c)
      offsets_ = kPython312;
    else
      known = version == 0x30d && read_debug_offsets(memory, address, &offsets_);
    if (known)
      runtime_ = address;
    else
      unknown_version_ =
          version ? fmt::format("{}.{}", version >> 8, version & 0xff) : "below 3.11";
    return;
  }
}

std::string PythonFrames::string_at(uint64_t object) const {
  auto length = memory_.get<uint64_t>(object + 16);
  auto state = memory_.get<uint32_t>(object + 32);
  if (!length || !state || *length > 4096) return "?";
  // state: interned 2 bits (3.11), kind 3 bits, compact, ascii. The bytes of compact ASCII follow
  // the head; other strings are shown by their UTF-8 copy when there is one.
  bool compact = *state >> 5 & 1, ascii = *state >> 6 & 1;
  if (compact && ascii) return memory_.text(object + offsets_.ascii_bytes, *length);
  auto utf8 = memory_.get<uint64_t>(object + offsets_.ascii_bytes + 8);
  return utf8 && *utf8 ? memory_.text(*utf8, 4096) : "?";
}

int line_of_unit(const std::vector<uint8_t>& table, int first_line, uint64_t unit) {
  size_t at = 0;
  auto byte = [&]() -> unsigned { return at < table.size() ? table[at++] : 0; };
  auto varint = [&] {
    unsigned b = byte(), value = b & 63;
    for (unsigned shift = 6; b & 64 && shift < 30; shift += 6)
      value |= ((b = byte()) & 63) << shift;
    return value;
  };
  auto signed_varint = [&] {
    unsigned v = varint();
    return v & 1 ? -static_cast<int>(v >> 1) : static_cast<int>(v >> 1);
  };
  int line = first_line;
  for (uint64_t start = 0; at < table.size();) {
    unsigned head = byte(), code = head >> 3 & 15, units = (head & 7) + 1;
    bool none = code == 15;
    if (code == 14) {
      line += signed_varint();
      varint(), varint(), varint();
    } else if (code == 13) {
      line += signed_varint();
    } else if (code >= 10 && code <= 12) {
      line += static_cast<int>(code) - 10;
      byte(), byte();
    } else if (!none) {
      byte();
    }
    if (unit < start + units) return none ? 0 : line;
    start += units;
  }
  return 0;
}

PythonFrame PythonFrames::describe(uint64_t frame, uint64_t code) const {
  PythonFrame out;
  if (auto name = memory_.get<uint64_t>(code + offsets_.qualified_name))
    out.function = string_at(*name);
  if (auto file = memory_.get<uint64_t>(code + offsets_.file)) out.file = string_at(*file);
  auto first = memory_.get<int32_t>(code + offsets_.first_line);
  auto table = memory_.get<uint64_t>(code + offsets_.line_table);
  auto instruction = memory_.get<uint64_t>(frame + offsets_.instruction);
  if (!first || !instruction || !table) return out;
  uint64_t size = memory_.get<uint64_t>(*table + 16).value_or(0);
  if (size > 1 << 20) return out;
  std::vector<uint8_t> bytes(size);
  if (!memory_.read(*table + 32, bytes)) return out;
  uint64_t start = code + offsets_.bytecode;
  out.line =
      *instruction < start ? *first : line_of_unit(bytes, *first, (*instruction - start) / 2);
  return out;
}

std::vector<PythonFrame> PythonFrames::walk(uint64_t frame, size_t limit) const {
  std::vector<PythonFrame> out;
  while (frame && out.size() < limit) {
    auto owner = memory_.get<uint8_t>(frame + offsets_.owner);
    auto code = memory_.get<uint64_t>(frame + offsets_.code);
    auto previous = memory_.get<uint64_t>(frame + offsets_.previous);
    if (!owner || !code || !previous) break;
    if (*owner != kOwnedByCStack && *code) out.push_back(describe(frame, *code));
    frame = *previous;
  }
  return out;
}

std::vector<PythonFrame> PythonFrames::of_thread(int tid, size_t limit) const {
  if (!runtime_) return {};
  auto next = [&](uint64_t at) { return memory_.get<uint64_t>(at).value_or(0); };
  // The bounds end the walk when the process was changing a list at the moment of the snapshot.
  uint64_t interpreter = next(runtime_ + offsets_.interpreters_head);
  for (int i = 0; interpreter && i < 64;
       ++i, interpreter = next(interpreter + offsets_.interpreter_next)) {
    uint64_t thread = next(interpreter + offsets_.threads_head);
    for (int j = 0; thread && j < 4096; ++j, thread = next(thread + offsets_.thread_next)) {
      if (next(thread + offsets_.native_thread_id) != static_cast<uint64_t>(tid)) continue;
      uint64_t frame = next(thread + offsets_.current_frame);
      if (offsets_.frame_behind_cframe && frame) frame = next(frame + offsets_.cframe_frame);
      return walk(frame, limit);
    }
  }
  return {};
}

}  // namespace gpuckpt::cli
