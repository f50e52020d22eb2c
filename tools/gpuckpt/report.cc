// gpuckpt report: one HTML page about a store. The page is report.html with the facts inserted as
// JSON; it needs no other file.

#include <map>
#include <set>
#include <unordered_set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/files/new_file.h"
#include "gpuckpt/wire.h"
#include "image/members.h"
#include "image/process_records.h"
#include "image/spaces.h"
#include "report_page.h"
#include "store/format/contents.h"
#include "store/io/json_text.h"
#include "store/store.h"
#include "verb.h"

namespace gpuckpt::cli {
namespace {

using nlohmann::json;

constexpr size_t kCells = 1536;    // of the memory map
constexpr size_t kMappings = 150;  // rows; the rest is one row

using Name = std::array<uint8_t, 16>;
struct NameHash {
  size_t operator()(const Name& n) const {
    size_t h;
    memcpy(&h, n.data(), sizeof(h));
    return h;
  }
};
using Names = std::unordered_set<Name, NameHash>;

// Bytes of memory by origin. `fresh`: in this snapshot for the first time, as far as the one before
// it shows; `shared`: chunks that the one before has as well, or that occur twice in this one.
struct Share {
  uint64_t fresh = 0, shared = 0, zero = 0;
  uint64_t sum() const { return fresh + shared + zero; }
  void add(const Share& o) { fresh += o.fresh, shared += o.shared, zero += o.zero; }
};
struct Piece {
  uint64_t space, address, length;
  Share share;
};

std::vector<Piece> pieces_of(const store::SnapshotReader& reader, const Names& before) {
  std::vector<Piece> out;
  Names seen;
  for (uint64_t space : reader.spaces()) {
    for (const store::NamedExtent& e : reader.named_extents(space)) {
      Piece p{space, e.address, e.length, {}};
      if (e.zero)
        p.share.zero = e.length;
      else
        (before.count(e.name) || !seen.insert(e.name).second ? p.share.shared : p.share.fresh) =
            e.length;
      out.push_back(p);
    }
  }
  return out;
}

Names names_of(const store::SnapshotReader& reader) {
  Names out;
  for (uint64_t space : reader.spaces())
    for (const store::NamedExtent& e : reader.named_extents(space))
      if (!e.zero) out.insert(e.name);
  return out;
}

json json_of(const Share& s) { return {s.fresh, s.shared, s.zero}; }

// All captured memory, in the order of its addresses, in cells of equal size.
json cells_of(const std::vector<Piece>& pieces, uint64_t total) {
  json out = json::array();
  const uint64_t size = std::max<uint64_t>(total / kCells + 1, 4096);
  Share cell;
  for (const Piece& p : pieces) {
    uint64_t Share::*kind = p.share.zero     ? &Share::zero
                            : p.share.shared ? &Share::shared
                                             : &Share::fresh;
    for (uint64_t left = p.length; left;) {
      const uint64_t n = std::min(left, size - cell.sum());
      cell.*kind += n;
      left -= n;
      if (cell.sum() == size) {
        out.push_back(json_of(cell));
        cell = {};
      }
    }
  }
  if (cell.sum()) out.push_back(json_of(cell));
  return {{"bytes", size}, {"cells", out}};
}

struct Mapping {
  std::string name;
  uint64_t size = 0;
  size_t count = 0;
  Share share;
};

// The mappings of one process, those of each file joined.
Status mappings_of(const store::SnapshotReader& reader, const std::string& blob_name,
                   const std::vector<Piece>& pieces, std::map<std::string, Mapping>* out) {
  std::vector<uint8_t> blob;
  std::vector<Record> records;
  if (Status s = reader.blob(blob_name, &blob); !s.ok()) return s;
  if (Status s = parse_records(blob, &records); !s.ok()) return s;
  const size_t dot = blob_name.find('.');
  const uint64_t member = dot == std::string::npos ? 0 : strtoull(&blob_name[dot + 1], nullptr, 10);
  const uint64_t space = member << 32 | wire::kSpaceHost;
  auto at =
      std::find_if(pieces.begin(), pieces.end(), [&](const Piece& p) { return p.space == space; });
  for (const Record& record : records) {
    process::Vma v;
    if (record.type != process::kRecVma || !record.get(&v)) continue;
    std::string name = record.text(sizeof(v));
    if (v.kind == process::kVmaPlaceholder) name = "reserved by the driver";
    if (name.empty())
      name = v.end - v.start >= (8u << 20) ? fmt::format("anonymous at {:#x}", v.start)
                                           : "anonymous, below 8 MiB";
    if (member) name = fmt::format("process {}: {}", member, name);
    Mapping& m = (*out)[name];
    m.name = name;
    m.size += v.end - v.start;
    ++m.count;
    while (at != pieces.end() && at->space == space && at->address < v.start) ++at;
    for (; at != pieces.end() && at->space == space && at->address < v.end; ++at)
      m.share.add(at->share);
  }
  return Status::Ok();
}

// Each process of a job with its share of the memory; nothing for a single process.
json processes_of(const store::SnapshotReader& reader, const std::vector<Piece>& pieces) {
  json out = json::array();
  const json meta = store::parse_json(reader.meta());
  const auto members = members_in(meta);
  if (members.empty()) return out;
  std::map<uint64_t, Share> shares;
  for (const Piece& p : pieces) shares[p.space >> wire::kMemberShift].add(p.share);
  auto add = [&](const json& process, uint64_t number) {
    out.push_back({{"number", number},
                   {"pid", process.value("pid", json())},
                   {"command", process.value("command", json())},
                   {"share", json_of(shares[number])}});
  };
  add(meta, 0);
  for (const json* m : members)
    if (m->value("number", json()).is_number_unsigned()) add(*m, (*m)["number"]);
  return out;
}

json memory_of(const store::SnapshotReader& reader, const store::SnapshotReader* before) {
  const std::vector<Piece> pieces = pieces_of(reader, before ? names_of(*before) : Names{});
  Share all;
  std::map<std::string, Mapping> mappings;
  for (const Piece& p : pieces) {
    all.add(p.share);
    if ((p.space & 0xffffffff) == wire::kSpaceHost) continue;
    Mapping& m = mappings[space_name(p.space)];
    m.name = space_name(p.space);
    m.size += p.length;
    m.share.add(p.share);
    m.count = 1;
  }
  for (const std::string& name : reader.blobs())
    if (name == "process" || name.starts_with("process."))
      if (Status s = mappings_of(reader, name, pieces, &mappings); !s.ok()) complain(s.text());
  std::vector<Mapping> sorted;
  for (auto& [name, m] : mappings) sorted.push_back(std::move(m));
  std::stable_sort(sorted.begin(), sorted.end(), [](const Mapping& a, const Mapping& b) {
    return std::pair(a.share.sum(), a.size) > std::pair(b.share.sum(), b.size);
  });
  Mapping rest{.name = "others", .share = {}};
  for (size_t i = kMappings; i < sorted.size(); ++i) {
    rest.size += sorted[i].size, rest.count += sorted[i].count;
    rest.share.add(sorted[i].share);
  }
  if (sorted.size() > kMappings) sorted.resize(kMappings), sorted.push_back(rest);
  json rows = json::array();
  for (const Mapping& m : sorted)
    rows.push_back(
        {{"name", m.name}, {"size", m.size}, {"count", m.count}, {"share", json_of(m.share)}});
  return {{"id", reader.id()},
          {"before", before ? before->id() : ""},
          {"share", json_of(all)},
          {"map", cells_of(pieces, all.sum())},
          {"processes", processes_of(reader, pieces)},
          {"mappings", rows}};
}

// The parts of a snapshot's description that the page shows.
json summary_of(const store::SnapshotInfo& info) {
  json meta = store::parse_json(info.meta);
  json out = {{"id", info.id}, {"readable", info.status.ok()}};
  if (!meta.is_object()) return out;
  for (const char* key :
       {"time", "time_ns", "job", "tag", "command", "reason", "host", "generation"})
    if (meta.contains(key)) out[key] = meta[key];
  out["processes"] = members_in(meta).size() + 1;
  for (const char* group : {"sizes", "stats"})
    if (meta.contains(group) && meta[group].is_object()) out[group] = meta[group];
  return out;
}

std::string page_of(const json& facts) {
  std::string text = facts.dump(-1, ' ', true, json::error_handler_t::replace);
  // No text in it may end the script element that contains it.
  for (size_t at = 0; (at = text.find('<', at)) != std::string::npos;)
    text.replace(at, 1, "\\u003c");
  std::string page(kReportPage);
  const std::string place = "GPUCKPT_FACTS";
  return page.replace(page.find(place), place.size(), text);
}

Status report(const std::string& reference, const std::string& output, Context* context) {
  std::unique_ptr<store::Store> store;
  std::unique_ptr<store::SnapshotReader> reader, before;
  std::vector<store::SnapshotInfo> snapshots;
  std::string path, name;
  store::split_reference(reference, &path, &name);
  Status status = store::Store::open(path, {.any_owner = any_owner()}, &store);
  if (status.ok()) status = store->list(&snapshots);
  if (!status.ok()) return status;
  json all = json::array();
  for (const store::SnapshotInfo& info : snapshots) {
    if (!info.status.ok()) {
      complain(info.status.text());
      context->exit_code = kExitCorrupt;
    }
    all.push_back(summary_of(info));
  }
  json facts = {{"store", path}, {"version", GPUCKPT_VERSION}, {"snapshots", all}};
  uint64_t bytes = 0, unreadable = 0;
  if (status = store->disk_bytes(&bytes); !status.ok()) return status;
  facts["disk_bytes"] = bytes;
  std::vector<store::CodecUse> codecs;
  if (status = store->codecs(&codecs, &unreadable); !status.ok()) return status;
  facts["unreadable_packs"] = unreadable;
  for (const store::CodecUse& c : codecs)
    facts["codecs"].push_back({{"name", c.name},
                               {"frames", c.frames},
                               {"plain_bytes", c.plain_bytes},
                               {"stored_bytes", c.stored_bytes}});
  std::string id;
  if (!snapshots.empty() || !name.empty()) {
    if (status = store->resolve(name, &id); !status.ok()) return status;
    if (status = store->open_snapshot(id, &reader); !status.ok()) return status;
    for (size_t i = 1; i < snapshots.size(); ++i)
      if (snapshots[i].id == id && snapshots[i - 1].status.ok())
        if (status = store->open_snapshot(snapshots[i - 1].id, &before); !status.ok())
          complain(status.text());
    facts["memory"] = memory_of(*reader, before.get());
  }
  const std::string page = page_of(facts);
  if (output.empty() || output == "-") {
    fputs(page.c_str(), stdout);
    return Status::Ok();
  }
  NewFile file;
  long error = file.create(output.c_str(), NewFile::kUsual);
  if (!error) error = file.write(page.data(), page.size());
  if (!error) error = file.publish();
  if (error)
    return Status::Error(
        fmt::format("cannot write {}: {}", output, strerror(static_cast<int>(-error))));
  return Status::Ok();
}

}  // namespace

void define_report(CommandLine& line, Context* context) {
  auto reference = std::make_shared<std::string>("./gpuckpt.store");
  auto output = std::make_shared<std::string>();
  Verb verb = line.verb(
      "report", "Make one HTML page of a store: its snapshots over time, its memory, its bytes");
  verb.option("STORE[@ID]", *reference,
              "The store; with @ID, @TAG or @latest the snapshot whose memory is shown (default: "
              "the newest)")
      .env("GPUCKPT_STORE")
      .show_default();
  verb.option("-o,--output", *output, "The file to write (default: standard output)")
      .env("GPUCKPT_OUTPUT");
  verb.footer(exit_codes({kExitOk, kExitError, kExitUsage, kExitAbsent, kExitIncompatible,
                          kExitCorrupt, kExitRefused}));
  verb.callback([reference, output, context] {
    context->run([&] { return report(*reference, *output, context); });
  });
}

}  // namespace gpuckpt::cli
