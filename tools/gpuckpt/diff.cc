// gpuckpt diff: what changed between two snapshots, by mapping of the host and by allocation of
// each device.

#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "image/device_owner.h"
#include "image/process_records.h"
#include "image/spaces.h"
#include "store/format/member.h"
#include "store/format/sizes.h"
#include "store/io/json_text.h"
#include "store/store.h"
#include "verb.h"

namespace gpuckpt::cli {
namespace {

using nlohmann::json;
using store::Difference;

struct Options {
  std::string first, second;
  bool ranges = false;
};

// A part of a space with a name: a mapping of the host, an allocation or variable of a device.
struct Part {
  uint64_t end;
  std::string name;
};
using Parts = std::map<uint64_t, Part>;  // by start

std::map<uint64_t, Parts> parts_of(const store::SnapshotReader& reader) {
  std::map<uint64_t, Parts> spaces;
  std::vector<uint8_t> blob;
  std::vector<Record> records;
  // Without a readable description differences are found as well, but not by names.
  if (reader.blob("process", &blob).ok() && parse_records(blob, &records).ok())
    for (const Record& record : records) {
      process::Vma v;
      if (record.type != process::kRecVma || !record.get(&v)) continue;
      const std::string path = record.text(sizeof(v));
      spaces[wire::kSpaceHost][v.start] = {v.end, path.empty() ? "[anonymous]" : path};
    }
  blob.clear();
  if (!reader.blob("device", &blob).ok()) return spaces;
  const json device = store::parse_json(blob);
  for_each_owner(device, [&](uint64_t ordinal, uint64_t start, uint64_t end, const json& owner) {
    spaces[wire::kSpaceDeviceBase + ordinal][start] = {end, owner_name(owner)};
  });
  return spaces;
}

struct Side {
  std::unique_ptr<store::Store> store;
  std::unique_ptr<store::SnapshotReader> reader;
  // By member's number, by space without that number.
  std::map<uint64_t, std::map<uint64_t, Parts>> members;

  Status open(const std::string& reference) {
    Status status = store::open_reference(reference, {.any_owner = any_owner()}, &store, &reader);
    if (!status.ok()) return status;
    for (uint32_t number : store::members_of(*reader))
      members[number] = parts_of(*store::read_member(*reader, number));
    return Status::Ok();
  }
};

struct Sum {
  uint64_t bytes[3] = {};
};

void add_by_part(const Difference& d, Side* side, std::map<std::string, Sum>* sums) {
  const Parts& parts = side->members[d.space >> wire::kMemberShift][d.space & wire::kPlainSpace];
  const bool device = (d.space & wire::kPlainSpace) >= wire::kSpaceDeviceBase;
  const std::string space = space_name(d.space);
  for (uint64_t at = d.address, end = d.address + d.length; at < end;) {
    auto next = parts.upper_bound(at);
    uint64_t to = next == parts.end() ? end : std::min(end, next->first);
    std::string name = space;
    if (next != parts.begin())
      if (const Part& part = std::prev(next)->second; at < part.end) {
        to = std::min(to, part.end);
        name += (device ? ": " : " ") + part.name;
      }
    (*sums)[name].bytes[d.kind] += to - at;
    at = to;
  }
}

Status diff(const Options& options, Context* context) {
  Side first, second;
  if (Status status = first.open(options.first); !status.ok()) return status;
  if (Status status = second.open(options.second); !status.ok()) return status;
  std::vector<Difference> differences;
  if (Status status = store::compare(*first.reader, *second.reader, &differences); !status.ok())
    return status;
  std::vector<std::string> blobs;
  if (Status status = store::compare_blobs(*first.reader, *second.reader, &blobs); !status.ok())
    return status;
  std::map<std::string, Sum> sums;
  Sum total;
  for (const Difference& d : differences) {
    total.bytes[d.kind] += d.length;
    add_by_part(d, d.kind == Difference::kOnlyFirst ? &first : &second, &sums);
  }
  static const char* kinds[] = {"changed", "only_first", "only_second"};
  if (context->json) {
    json parts = json::array(), ranges = json::array();
    for (const auto& [name, sum] : sums) {
      parts.push_back({{"name", name},
                       {"changed_bytes", sum.bytes[0]},
                       {"only_first_bytes", sum.bytes[1]},
                       {"only_second_bytes", sum.bytes[2]}});
    }
    json out = {{"first", first.reader->id()},
                {"second", second.reader->id()},
                {"changed_bytes", total.bytes[0]},
                {"only_first_bytes", total.bytes[1]},
                {"only_second_bytes", total.bytes[2]},
                {"blobs", blobs},
                {"parts", parts}};
    if (options.ranges) {
      for (const Difference& d : differences) {
        ranges.push_back({{"space", space_name(d.space)},
                          {"address", fmt::format("{:#x}", d.address)},
                          {"length", d.length},
                          {"kind", kinds[d.kind]}});
      }
      out["ranges"] = ranges;
    }
    print_json(out);
    return Status::Ok();
  }
  if (options.ranges) {
    for (const Difference& d : differences) {
      print("{:<10} {:#018x} {:>12} {}\n", space_name(d.space), d.address, d.length, kinds[d.kind]);
    }
  } else if (!sums.empty()) {
    print("{:>10} {:>10} {:>10}  {}\n", "CHANGED", "ONLY 1ST", "ONLY 2ND", "WHERE");
    for (const auto& [name, sum] : sums) {
      print("{:>10} {:>10} {:>10}  {}\n", store::show_size(sum.bytes[0]),
            store::show_size(sum.bytes[1]), store::show_size(sum.bytes[2]), name);
    }
  }
  for (const std::string& name : blobs) print("blob \"{}\" differs\n", name);
  print(stderr, "{} changed, {} only in {}, {} only in {}\n", store::show_size(total.bytes[0]),
        store::show_size(total.bytes[1]), first.reader->id(), store::show_size(total.bytes[2]),
        second.reader->id());
  return Status::Ok();
}

}  // namespace

void define_diff(CommandLine& line, Context* context) {
  auto options = std::make_shared<Options>();
  Verb verb = line.verb("diff", "Show what changed between two snapshots");
  verb.option("FIRST", options->first, "STORE@ID").required();
  verb.option("SECOND", options->second, "STORE@ID, of the same or another store").required();
  verb.flag("--ranges", options->ranges, "Every range of addresses that differs");
  add_json(verb, context);
  verb.footer(exit_codes({kExitOk, kExitError, kExitUsage, kExitAbsent, kExitIncompatible,
                          kExitCorrupt, kExitRefused}));
  verb.callback([options, context] { context->run([&] { return diff(*options, context); }); });
}

}  // namespace gpuckpt::cli
