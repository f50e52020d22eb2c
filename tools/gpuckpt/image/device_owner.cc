#include "image/device_owner.h"

#include <array>
#include <filesystem>

#include <fmt/format.h>

#include "image/stacks.h"

namespace gpuckpt::cli {
namespace {

using nlohmann::json;

uint64_t number(const json& hex) {
  return std::strtoull(hex.get<std::string>().c_str(), nullptr, 16);
}

bool holds(const json& range, uint64_t address) {
  uint64_t start = number(range.at("address"));
  return address >= start && address < start + range.at("bytes").get<uint64_t>();
}

// Whether a call instruction ends at `address`.
bool after_a_call(const ImageMemory& memory, uint64_t address) {
  auto before = memory.get<std::array<uint8_t, 7>>(address - 7);
  if (!before) return false;
  const auto& b = *before;
  if (b[2] == 0xe8) return true;  // call rel32
  for (size_t at = 0; at <= 5; ++at)
    if (b[at] == 0xff && (b[at + 1] >> 3 & 7) == 2) return true;  // call r/m64
  return false;
}

}  // namespace

json device_owner(const json& device, uint64_t ordinal, uint64_t address) {
  for (const json& d : device.at("devices"))
    if (d.at("ordinal") == ordinal)
      for (const json& a : d.at("allocations"))
        if (holds(a, address)) return a;
  for (const json& v : device.at("variables"))
    if (holds(v, address)) return v;
  return nullptr;
}

void for_each_owner(const json& device,
                    const std::function<void(uint64_t, uint64_t, uint64_t, const json&)>& see) {
  auto list = [](const json& of, const char* name) {
    return of.is_object() ? of.value(name, json::array()) : json::array();
  };
  auto show = [&](uint64_t ordinal, const json& owner) {
    const uint64_t start = number(owner.at("address"));
    see(ordinal, start, start + owner.at("bytes").get<uint64_t>(), owner);
  };
  try {
    for (const json& d : list(device, "devices")) {
      const uint64_t ordinal = d.at("ordinal").get<uint64_t>();
      for (const json& v : list(device, "variables")) show(ordinal, v);
      for (const json& a : list(d, "allocations")) show(ordinal, a);
    }
  } catch (const json::exception&) {
  }
}

std::string owner_name(const json& owner) {
  if (owner.is_null()) return "memory of no allocation";
  if (owner.contains("name")) return "variable " + owner.at("name").get<std::string>();
  return fmt::format("{} allocation {} of {} bytes", owner.at("kind").get<std::string>(),
                     owner.at("address").get<std::string>(), owner.at("bytes").get<uint64_t>());
}

std::vector<std::string> owner_site(const json& device, const json& owner,
                                    const store::SnapshotReader& reader) {
  std::vector<std::string> out;
  size_t site = owner.is_object() ? owner.value("site", size_t{0}) : 0;
  std::vector<uint8_t> blob;
  std::vector<Record> records;
  if (!site || !device.contains("sites") || site > device["sites"].size() ||
      !reader.blob("process", &blob).ok() || !parse_records(blob, &records).ok())
    return out;
  ImageMemory memory(reader, records);
  ElfSymbols symbols;
  for (const json& text : device["sites"][site - 1]) {
    uint64_t address = number(text);
    const ImageModule* module = memory.module(address);
    if (!module || !after_a_call(memory, address)) continue;
    StackFrame frame = frame_at(address, false, memory, &symbols);
    out.push_back(fmt::format("{} ({}+{:#x})", frame.function.empty() ? "?" : frame.function,
                              std::filesystem::path(module->path).filename().string(),
                              address - module->base));
  }
  return out;
}

}  // namespace gpuckpt::cli
